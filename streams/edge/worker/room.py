"""How many jobs a worker asks for: what it can run, and what its slots run until more can come.

A job that waits here is one that no other worker can take, and one that was chosen early, before
another tenant's that has come since.  So a worker asks ahead for what its slots use up
during one round trip to the scheduler, as measured, and for no more: slots whose jobs take
milliseconds never stand still while there is work, and those of slow handlers leave nothing to
wait.

Invariants: at most CLAIMS_MAX claims, those that failed and wait to run out among them.
"""

from __future__ import annotations

from streams.edge.worker.round_trip import RoundTrip

__all__ = ["CLAIMS_MAX", "PREFETCH_MAX", "Room"]

CLAIMS_MAX = 1_000
"""Claims of one worker: a heartbeat lists them all.  Failed jobs keep theirs until it runs out."""

PREFETCH_MAX = 900
"""Jobs beyond those that run, at most: on their way here, waiting, or being acked."""

_QUICKEST_S = 0.000_1
_WEIGHT = 0.05  # of the newest duration


class Room:
    """Measures jobs, and says how many a worker could hold."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._mean_s: float | None = None
        self.round_trip = RoundTrip()

    def ended(self, seconds: float) -> None:
        """Note how long a job ran."""
        known = self._mean_s
        self._mean_s = seconds if known is None else known + _WEIGHT * (seconds - known)

    def ending_within(self, seconds: float) -> int:
        """Return how many places come free in that time while all are taken; 0 until measured."""
        if self._mean_s is None:
            return 0
        return int(min(self._slots * seconds / max(self._mean_s, _QUICKEST_S), CLAIMS_MAX))

    @property
    def limit(self) -> int:
        """Return how many jobs the worker wants, until their acks are in the log."""
        if self._mean_s is None:
            return self._slots
        # Rounded: half a job ahead of a single slow slot would be a whole one that waits.
        ahead = round(self._slots * self.round_trip.seconds / max(self._mean_s, _QUICKEST_S))
        return self._slots + min(ahead, PREFETCH_MAX)

    def capacity(self, *, busy: int, held: int) -> int:
        """Return how many jobs it could take now, besides what it holds."""
        return max(0, min(self.limit - busy, CLAIMS_MAX - held))
