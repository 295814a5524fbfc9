"""Jobs that were claimed and given back, until they are claimed again, done or removed.

Invariants: `delayed` is the number of those that nobody may claim yet; `parked_of` names those that
wait for a worker to leave.  Each costs what it touches, however many were given back.

Source: DESIGN "A job".
"""

from __future__ import annotations

from collections.abc import Iterator

from streams.core.wire import RowReturned

__all__ = ["Returned", "is_delayed"]


def is_delayed(row: RowReturned, /) -> bool:
    """Whether a returned job may not be claimed yet."""
    return row["parked"] or row["gated"] or row["not_before_ms"] is not None


class Returned:
    """The returned jobs of one queue, by id."""

    __slots__ = ("_parked", "_rows", "delayed")

    def __init__(self) -> None:
        self._rows: dict[str, RowReturned] = {}
        self._parked: dict[str, set[str]] = {}
        self.delayed = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, job: object) -> bool:
        return job in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __getitem__(self, job: str) -> RowReturned:
        return self._rows[job]

    def __setitem__(self, job: str, row: RowReturned) -> None:
        self.pop(job)
        self._rows[job] = row
        self.delayed += is_delayed(row)
        if row["parked"]:
            self._parked.setdefault(row["consumer_id"], set()).add(job)

    def get(self, job: str, /) -> RowReturned | None:
        """Return what is known of a job, if it was given back."""
        return self._rows.get(job)

    def pop(self, job: str, /) -> RowReturned | None:
        """Forget a job; return what was known of it, if it was given back."""
        row = self._rows.pop(job, None)
        if row is None:
            return None
        self.delayed -= is_delayed(row)
        if row["parked"]:
            parked = self._parked[row["consumer_id"]]
            parked.discard(job)
            if not parked:
                del self._parked[row["consumer_id"]]
        return row

    def delayed_jobs(self) -> list[str]:
        """Return the jobs that may not be claimed yet, by id; looks at all that were given back."""
        if not self.delayed:
            return []
        return sorted(job for job, row in self._rows.items() if is_delayed(row))

    def parked_of(self, consumer_id: str, /) -> list[str]:
        """Return the jobs that wait for this worker to leave, by id."""
        return sorted(self._parked.get(consumer_id, ()))
