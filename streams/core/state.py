"""What a fold may read and write: the rows of one partition, its clock, and a derived index.

The runtime, the in-memory driver and the auditor provide the implementation; folds see this
interface only. Rows are immutable values: a fold replaces a row, it never edits one.

Source: DESIGN "The stage runtime", "State".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from streams.core.record import Output, Record, Rejection, Value


class Rows(Protocol):
    """The rows of one partition: committed ones under those written by the current batch."""

    def get(self, key: str, /) -> Any:  # noqa: ANN401 - the row's TypedDict, by its prefix
        """Return the row stored under `key`, or None."""
        ...

    def put(self, key: str, value: Value, /) -> None:
        """Store a row; its key prefix names its schema.  A due field arms its timer."""
        ...

    def delete(self, key: str, /) -> None:
        """Remove a row, if it is there; its timer dies with it."""
        ...

    def scan(self, prefix: str, /) -> Iterator[tuple[str, Any]]:
        """Iterate over the rows whose key starts with `prefix`, in key order.

        O(rows): for indexes and configuration only.
        """
        ...

    def each(self, prefix: str, /) -> Iterator[tuple[str, Any]]:
        """Iterate over the rows whose key starts with `prefix`, in any order, without keeping any.

        O(rows): for indexes over many rows, where the order makes no difference.
        """
        ...

    def count(self, prefix: str, /) -> int:
        """Return how many rows of the timer kind `prefix` there are, armed or not; exact, O(1)."""
        ...

    def oldest(self, prefix: str, /) -> str | None:
        """Return the key of the row of the timer kind `prefix` that is due first, or None."""
        ...


@dataclass(slots=True)
class State:
    """One partition as a fold sees it.

    `now_ms` is stream time: it never goes back.  `partitions` is how many partitions the stage has.
    `index` is what the stage's `build_index` made of the rows; a fold may mutate it, the runtime
    rebuilds it whenever the partition's memory is dropped.
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


def no_timers(
    _state: State,
    _key: str,
    _row: Any,  # noqa: ANN401 - the row's TypedDict, by its prefix
    _record: Record,
    /,
) -> Iterable[Output]:
    """Answer nothing: `on_due` of a stage whose rows are no timers."""
    return ()


def no_index(_state: State, /) -> Any:  # noqa: ANN401 - what each stage makes of its rows
    """Derive nothing: `build_index` of a stage without an index."""
    return None


@dataclass(frozen=True, slots=True)
class Fold:
    """The pure behaviour of a stage.

    `on_record` folds one record.  `on_due` is called for each row whose due time has come, before
    the record that moved time, in (due, key) order; the record is passed for its position and
    time.  `build_index` derives the index from loaded rows.
    """

    on_record: FoldFn
    on_due: DueFn = no_timers
    build_index: IndexFn = no_index
