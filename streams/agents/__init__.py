"""The stage runtime: the only code that knows Faust."""
