"""One thing that is wrong with a topology."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Code", "Problem"]


class Code(StrEnum):
    """Which invariant is broken; stable, so that people and tests can name it."""

    # Topics
    DUPLICATE_TOPIC = "duplicate_topic"
    ILLEGAL_NAME = "illegal_name"
    CLASHING_NAMES = "clashing_names"
    DUPLICATE_KIND = "duplicate_kind"
    UNKNOWN_SCHEMA = "unknown_schema"
    PARTITION_COUNT = "partition_count"
    COMPACTED_LOG = "compacted_log"
    UNCOMPACTED_CATALOG = "uncompacted_catalog"
    CO_PARTITIONING = "co_partitioning"
    MISSING_JOURNAL = "missing_journal"
    # Stages, tables and edges
    DUPLICATE_STAGE = "duplicate_stage"
    DUPLICATE_FOLD = "duplicate_fold"
    ILLEGAL_STAGE = "illegal_stage"
    SHARED_SOURCE = "shared_source"
    UNDECLARED_TOPIC = "undeclared_topic"
    NOT_A_MAILBOX = "not_a_mailbox"
    UNWRITABLE_SINK = "unwritable_sink"
    QUARANTINE = "quarantine"
    TABLE_PARTITIONS = "table_partitions"
    ROW_PREFIX = "row_prefix"
    DUE_FIELD = "due_field"
    TALLY_FIELD = "tally_field"
    DUPLICATE_EDGE = "duplicate_edge"
    # Numbers
    REPLICATION = "replication"
    RETENTION_ORDER = "retention_order"
    RETENTION_TOO_SHORT = "retention_too_short"
    SESSION = "session"
    READER_WAIT = "reader_wait"
    # Bindings
    UNBOUND_STAGE = "unbound_stage"
    UNKNOWN_STAGE = "unknown_stage"
    DOUBLY_BOUND = "doubly_bound"


@dataclass(frozen=True, slots=True)
class Problem:
    """A broken invariant: which one, at what declaration, and what was expected."""

    code: Code
    where: str
    message: str

    def __str__(self) -> str:
        """Return one line for a person."""
        return f"{self.where}: {self.message} ({self.code})"
