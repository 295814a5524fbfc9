"""Jobs that were granted and have not begun: fairness keys take turns, those of a key keep order.

What a worker asked ahead of need was chosen before another tenant's jobs came.  They do not wait
until it is used up: the key that has just come is next.  How much of a worker each key gets in the
long run is the scheduler's to say, since everything that it grants is run.

Invariant: a key has a turn exactly while one of its jobs waits.

Source: DESIGN "A job"; SEMANTICS 6.4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

__all__ = ["FairLine"]

_Job = TypeVar("_Job")


class FairLine(Generic[_Job]):
    """Each operation but `remove` and iterating costs the same however many wait."""

    def __init__(self) -> None:
        self._jobs: dict[Hashable, deque[_Job]] = {}
        self._turns: deque[Hashable] = deque()
        self._count = 0

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
            self._turns.append(key)
        else:
            jobs.append(job)
        self._count += 1

    def popleft(self) -> _Job:
        """Take the oldest job of the key whose turn it is; there is one."""
        key = self._turns.popleft()
        jobs = self._jobs[key]
        job = jobs.popleft()
        if jobs:
            self._turns.append(key)
        else:
            del self._jobs[key]
        self._count -= 1
        return job

    def remove(self, key: Hashable, job: _Job, /) -> None:
        """Take a job out of the middle; it waits here."""
        jobs = self._jobs[key]
        jobs.remove(job)
        if not jobs:
            del self._jobs[key]
            self._turns.remove(key)
        self._count -= 1

    def clear(self) -> None:
        """Let nothing wait."""
        self._jobs.clear()
        self._turns.clear()
        self._count = 0
