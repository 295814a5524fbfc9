"""The invariants of a topology, one file per kind of declaration."""
