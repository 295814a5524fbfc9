"""What a fold may read and write: the rows of one partition, its clock, and a derived index.

The runtime, the in-memory driver and the auditor provide the implementation; folds see this interface only.
Rows are immutable values: a fold replaces a row, it never edits one.

Source: DESIGN "The stage runtime", "State".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from streams.core.record import Output, Record, Rejection, Value


class Rows(Protocol):
    """The rows of one partition: committed ones under those written by the current batch."""

    def get(self, key: str, /) -> Any:
        """The row stored under `key`, or None."""
        ...

    def put(self, key: str, value: Value, /) -> None:
        """Store a row; its key prefix names its schema.  A due field arms its timer."""
        ...

    def delete(self, key: str, /) -> None:
        """Remove a row, if it is there; its timer dies with it."""
        ...

    def scan(self, prefix: str, /) -> Iterator[tuple[str, Any]]:
        """Every row whose key starts with `prefix`, in key order.  O(rows): for indexes and configuration only."""
        ...

    def count(self, prefix: str, /) -> int:
        """How many rows of the timer kind `prefix` are armed, stale entries included: a bound, not an exact size."""
        ...

    def oldest(self, prefix: str, /) -> str | None:
        """Key of the row of the timer kind `prefix` that is due first, or None."""
        ...


@dataclass(slots=True)
class State:
    """One partition as a fold sees it.

    `now_ms` is stream time: it never goes back.  `partitions` is how many partitions the stage has.
    `index` is what the stage's `build_index` made of the rows; a fold may mutate it, the runtime rebuilds it whenever the
    partition's memory is dropped.
    """

    rows: Rows
    partition: int
    partitions: int
    now_ms: int = 0
    index: Any = None


Answer = Iterable[Output] | Rejection
FoldFn = Callable[[State, Record], Answer]
DueFn = Callable[[State, str, Any, Record], Iterable[Output]]
IndexFn = Callable[[State], Any]


def no_timers(_state: State, _key: str, _row: Any, _record: Record, /) -> Iterable[Output]:
    """`on_due` of a stage whose rows are not timers."""
    return ()


def no_index(_state: State, /) -> Any:
    """`build_index` of a stage that derives nothing from its rows."""
    return None


@dataclass(frozen=True, slots=True)
class Fold:
    """The pure behaviour of a stage.

    `on_record` folds one record.  `on_due` is called for each row whose due time has come, before the record that moved
    time, in (due, key) order; the record is passed for its position and time.  `build_index` derives the index from loaded rows.
    """

    on_record: FoldFn
    on_due: DueFn = no_timers
    build_index: IndexFn = no_index
