"""The engine: the pure step from mailbox bytes to committed bytes.

The live agent, the in-memory driver and the auditor share it.
"""

from __future__ import annotations

from streams.engine.bound import MAX_INPUT_BYTES, MAX_RECORD_BYTES, BoundStage
from streams.engine.evidence import row_hash
from streams.engine.failed import FoldFailed
from streams.engine.fetched import RawRecord
from streams.engine.memory import POSITION_KEY, START, Memory, StatePosition
from streams.engine.step import EncodedOutput, Step, fold_batch, settle
from streams.engine.store import MemoryStore, RowChange, Store
from streams.engine.tally import STANDING, Standing, read_standing

__all__ = [
    "MAX_INPUT_BYTES",
    "MAX_RECORD_BYTES",
    "POSITION_KEY",
    "STANDING",
    "START",
    "BoundStage",
    "EncodedOutput",
    "FoldFailed",
    "Memory",
    "MemoryStore",
    "RawRecord",
    "RowChange",
    "Standing",
    "StatePosition",
    "Step",
    "Store",
    "fold_batch",
    "read_standing",
    "row_hash",
    "settle",
]
