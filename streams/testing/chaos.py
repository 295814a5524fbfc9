"""What may go wrong in a run, and how often: one seed decides when.

Every rate is per thousand chances: a step of a stage may crash, an append of an edge may arrive
twice.  A run with the same seed and the same calls is the same run.

Source: STYLE 2.15 "pipeline"; DESIGN "Proof".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Chaos:
    """The weather of a run.  Without any rate only the order of things is random."""

    seed: int
    batch_records_max: int = 8
    """Records folded in one transaction, at most; each step draws its own number."""
    crash_per_mille: int = 0
    """Steps of a stage at which its owner dies, at a random point of its transaction."""
    zombie_per_mille: int = 0
    """Steps at which the owner stalls inside its transaction, and wakes after it was replaced."""
    duplicate_per_mille: int = 0
    """Appends of edges that arrive twice."""
    lose_invoker_per_mille: int = 0
    """Steps of an invoker at which it is lost, with everything that it ran."""
    rebalance_per_mille: int = 0
    """Steps of an invoker before which the group rebalances in an orderly way."""
    lose_broadcaster_per_mille: int = 0
    """Appends of the broadcaster, the canceller or the relay after which another begins anew."""
    pause_ms_max: int = 0
    """Time that passes between two steps, at most."""

    @classmethod
    def storm(cls, seed: int) -> Chaos:
        """Return everything at once, often enough that a short run meets most of it."""
        return cls(
            seed=seed,
            crash_per_mille=40,
            zombie_per_mille=20,
            duplicate_per_mille=50,
            lose_invoker_per_mille=10,
            rebalance_per_mille=20,
            lose_broadcaster_per_mille=50,
            pause_ms_max=40,
        )
