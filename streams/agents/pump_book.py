"""How much work may go to the invokers: a pure function of what was sampled, and when.

The invokers' backlog is what lies in their topic behind their group's offsets.  It may be as long
as `max_outstanding` for each of them; and, since offsets are committed a tenth of a second late,
as long as what they finish in two seconds at their present pace.  So slow handlers see a short
queue, and fast ones never wait for a sample.

Between two samples each record that is admitted counts as one invocation.

Invariants: nothing is admitted beyond the limit, apart from records that match several bindings;
without a sample the backlog counts as none, and after a failed one nothing is held back.

Source: DESIGN "Backpressure"; SEMANTICS 2.2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["PumpBook", "Sample", "Standing"]

RATE_OVER_S = 0.3
"""The pace is that of three samples: it triples within one where invokers turn out to be fast."""

PACE_S = 2.0
"""Work for so long may be before the invokers: more than an outcome's way into their group's offset
takes on a machine that has other things to do, or the pump would slow down what it measures."""

_RATE_OVER_S_MIN = 0.05
STALE_AFTER_S = 2.0
"""A sample that is older says nothing: nobody asked, since nothing came."""


class Sample(NamedTuple):
    """The intents' topic and its group at one moment; offsets by partition.

    A partition without a committed offset stands at its first record.
    """

    at_s: float
    ends: Mapping[int, int]
    committed: Mapping[int, int]
    invokers: int


class Standing(NamedTuple):
    """What the invokers have before them, and how much that may be."""

    outstanding: int
    limit: int
    invokers: int


class PumpBook:
    """What is known of the invokers.  All times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._sample: Sample | None = None
        self._finished: deque[tuple[float, int]] = deque()  # time, and sum of committed offsets
        self._admitted = 0  # since the sample
        self._open = False

    def sampled(self, sample: Sample) -> None:
        """Take a sample."""
        self._open = False
        self._sample = sample
        self._admitted = 0
        done = sum(sample.committed.values())
        if self._finished and done < self._finished[-1][1]:
            self._finished.clear()  # the topic was made anew, or its group set back
        self._finished.append((sample.at_s, done))
        while len(self._finished) > 2 and self._finished[1][0] <= sample.at_s - RATE_OVER_S:
            self._finished.popleft()

    def failed(self) -> None:
        """Hold nothing back until there is a sample again: an outage is not the invokers'."""
        self._open = True

    def admitted(self, records: int) -> None:
        """Count records that went on."""
        self._admitted += records

    def standing(self, max_outstanding: int, now_s: float) -> Standing:
        """Return where the invokers stand."""
        sample = self._sample
        if sample is None or sample.at_s < now_s - STALE_AFTER_S:
            invokers = 1 if sample is None else max(1, sample.invokers)
            return Standing(self._admitted, max_outstanding * invokers, invokers)
        behind = sum(
            # Behind the last intent there is the mark of its transaction's end.
            max(0, end - sample.committed.get(partition, 0) - 1)
            for partition, end in sample.ends.items()
        )
        invokers = max(1, sample.invokers)
        limit = max(max_outstanding * invokers, int(PACE_S * self._pace()))
        return Standing(behind + self._admitted, limit, invokers)

    def room(self, max_outstanding: int, now_s: float) -> int | None:
        """Return how many records may go on; None when there is no bound."""
        if self._open:
            return None
        standing = self.standing(max_outstanding, now_s)
        return max(0, standing.limit - standing.outstanding)

    def _pace(self) -> float:
        """Return how many invocations are finished in a second."""
        first_s, first = self._finished[0]
        last_s, last = self._finished[-1]
        passed_s = last_s - first_s
        return 0.0 if passed_s < _RATE_OVER_S_MIN else (last - first) / passed_s
