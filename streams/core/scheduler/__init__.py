"""The scheduler of worker queues: the fold of `worker.requests`."""

from __future__ import annotations

from streams.core.record import Record
from streams.core.state import Answer, Fold, State


def _on_record(_state: State, _record: Record, /) -> Answer:
    return ()


FOLD = Fold(on_record=_on_record)
