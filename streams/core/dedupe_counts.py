"""How many repeats a partition has dropped: kept in its rows, so that any host can read it.

Invariant: what was ever remembered is active or forgotten.

Source: SEMANTICS 2.12 "Counters", 5.5.
"""

from __future__ import annotations

from typing import Final

from streams.core.state import State
from streams.core.wire import RowDedupe

DEDUPE_ROW: Final = "dedupe"


def count(state: State, prefix: str, /, *, duplicates: int = 0, forgotten: int = 0) -> None:
    """Count what has become of one event; `prefix` is that of the rows by which repeats are known.

    Those rows must be as the event leaves them.
    """
    row: RowDedupe | None = state.rows.get(DEDUPE_ROW)
    counted: RowDedupe = {
        "duplicates": duplicates if row is None else row["duplicates"] + duplicates,
        "forgotten": forgotten if row is None else row["forgotten"] + forgotten,
        "active": state.rows.count(prefix),
    }
    state.rows.put(DEDUPE_ROW, counted)
