"""How long a slot that comes free waits for its next job: from a job's end to the grant after it.

    job ends → response → ack in the log → the scheduler folds it → grant → here

A grant names the record that it came of.  Where that is an ack of this worker, the time since the
jobs that were acked had ended is what it took; grants that jobs or heartbeats bring say nothing
about it.  The clock is this process's own.

Invariant: at most `ASKED_MAX` acks are remembered; an ack that frees a slot for which there is no
job is forgotten as later ones come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from streams.core.record import Position
from streams.edge.worker.held import HeldJob

__all__ = ["ASKED_MAX", "ROUND_TRIP_S", "ROUND_TRIP_S_MAX", "RoundTrip"]

ASKED_MAX = 256

ROUND_TRIP_S = 0.015
"""Until it is measured."""

ROUND_TRIP_S_MAX = 0.25
"""A scheduler that takes longer than that is not waited for with more jobs in hand."""

_KEPT = 64


class RoundTrip:
    """Measures round trips; `seconds` is what three of four of the last ones keep to.

    So some that took very long, while a process was starved, say nothing about the others; jobs
    that were asked for because of them would wait here in vain.
    """

    def __init__(self) -> None:
        self._asked: dict[str, float] = {}
        self._took_s: deque[float] = deque(maxlen=_KEPT)
        self.seconds = ROUND_TRIP_S
        """How long a slot should reckon to wait; asked for at every job, so kept at hand."""

    def acked(self, jobs: Sequence[HeldJob], position: Position) -> None:
        """Note where the ack of jobs stands in the log."""
        ended_s = sum(each.ended_s for each in jobs) / len(jobs)
        self._asked[str(position)] = ended_s
        if len(self._asked) > ASKED_MAX:
            del self._asked[next(iter(self._asked))]

    def granted(self, cause: str, now_s: float) -> None:
        """Note that jobs were granted; `cause` is a record, and a number among what came of it."""
        ended_s = self._asked.pop(cause.rpartition("/")[0], None)
        if ended_s is None:
            return
        self._took_s.append(now_s - ended_s)
        took_s = sorted(self._took_s)
        self.seconds = min(took_s[3 * len(took_s) // 4], ROUND_TRIP_S_MAX)
