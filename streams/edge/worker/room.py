"""How many jobs a worker asks for: what it can run, and what it is about to run.

A job that waits here is one that no other worker can take, and one that was chosen early: so a
worker asks ahead only for what it begins with within some hundredths of a second, which covers the
way to the scheduler and back.  Slow handlers leave nothing to wait; quick ones find their next.

Invariants: at most CLAIMS_MAX claims, those that failed and wait to run out among them.
"""

from __future__ import annotations

__all__ = ["CLAIMS_MAX", "PREFETCH_MAX", "Room"]

CLAIMS_MAX = 1_000
"""Claims of one worker: a heartbeat lists them all.  Failed jobs keep theirs until it runs out."""

PREFETCH_MAX = 512
"""Jobs that wait here, at most."""

_AHEAD_S = 0.03
_QUICKEST_S = 0.000_1
_WEIGHT = 0.05  # of the newest duration


class Room:
    """Measures jobs, and says how many a worker could hold."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._mean_s: float | None = None

    def ended(self, seconds: float) -> None:
        """Note how long a job ran."""
        known = self._mean_s
        self._mean_s = seconds if known is None else known + _WEIGHT * (seconds - known)

    @property
    def limit(self) -> int:
        """Return how many jobs the worker wants, running or waiting."""
        if self._mean_s is None:
            return self._slots
        ahead = int(self._slots * _AHEAD_S / max(self._mean_s, _QUICKEST_S))
        return self._slots + min(ahead, PREFETCH_MAX)

    def capacity(self, *, busy: int, held: int) -> int:
        """Return how many jobs it could take now, besides what it holds."""
        return max(0, min(self.limit - busy, CLAIMS_MAX - held))
