"""Jobs that were granted and have not begun: fairness keys take turns, those of a key keep order.

What a worker asked ahead of need was chosen before another tenant's jobs came.  They do not wait
until it is used up: the key that has just come takes its turns.  A key whose jobs were used up and
whose next grant came late makes up for the turns that it has missed meanwhile: the others ran what
was here, while its own jobs stood at the scheduler.  How much of a worker each key gets in the long
run is the scheduler's to say, since everything that it grants is run.

Invariants: a key has a turn exactly while one of its jobs waits; at most MISSED_MAX keys that have
none are remembered.

Source: DESIGN "A job"; SEMANTICS 6.4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

__all__ = ["MISSED_MAX", "FairLine"]

MISSED_MAX = 128
"""Jobs that begin until a key that has none here counts as one that was not there."""

_Job = TypeVar("_Job")


class FairLine(Generic[_Job]):
    """Each operation but `remove` and iterating costs the same however many wait."""

    def __init__(self) -> None:
        self._jobs: dict[Hashable, deque[_Job]] = {}
        self._turns: deque[Hashable] = deque()
        self._owed: dict[Hashable, int] = {}
        self._left: dict[Hashable, int] = {}  # keys without jobs: how many had begun by then
        self._begun = self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[_Job]:
        for jobs in self._jobs.values():
            yield from jobs

    def append(self, key: Hashable, job: _Job, /) -> None:
        """Let a job wait behind those of its key."""
        jobs = self._jobs.get(key)
        if jobs is None:
            self._jobs[key] = deque((job,))
            self._enter(key)
        else:
            jobs.append(job)
        self._count += 1

    def _enter(self, key: Hashable) -> None:
        """Give a key its turn: the next ones, where it has missed some."""
        since = self._begun - self._left.pop(key, self._begun)
        missed = since // (len(self._turns) + 1)
        if missed and since < MISSED_MAX:
            self._owed[key] = missed
            self._turns.appendleft(key)
        else:
            self._turns.append(key)

    def popleft(self) -> _Job:
        """Take the oldest job of the key whose turn it is; there is one."""
        turns = self._turns
        key = turns[0]
        jobs = self._jobs[key]
        job = jobs.popleft()
        self._begun += 1
        self._count -= 1
        if not jobs:
            self._leave(key)
        elif key in self._owed:
            self._owed[key] -= 1
            if not self._owed[key]:
                del self._owed[key]
        else:
            turns.rotate(-1)
        return job

    def _leave(self, key: Hashable) -> None:
        """The key whose turn it is has no job left."""
        self._turns.popleft()
        del self._jobs[key]
        self._owed.pop(key, None)
        left = self._left
        left[key] = self._begun
        first = next(iter(left))
        while self._begun - left[first] >= MISSED_MAX:
            del left[first]
            first = next(iter(left))

    def remove(self, key: Hashable, job: _Job, /) -> None:
        """Take a job out of the middle; it waits here."""
        jobs = self._jobs[key]
        jobs.remove(job)
        if not jobs:
            del self._jobs[key]
            self._turns.remove(key)
            self._owed.pop(key, None)
        self._count -= 1

    def clear(self) -> None:
        """Let nothing wait, and nothing be owed."""
        for kept in (self._jobs, self._turns, self._owed, self._left):
            kept.clear()
        self._count = 0
