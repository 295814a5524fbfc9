"""The application's topology as values: topics, stages and tables, checked, drawn and provisioned.

Nothing happens at import beyond building frozen values.
"""

from __future__ import annotations

from topology.application import TOPOLOGY
from topology.model import (
    Cleanup,
    PartitionRule,
    RetentionRule,
    RowType,
    Stage,
    Table,
    Topic,
    TopicRole,
    Topology,
)

__all__ = [
    "TOPOLOGY",
    "Cleanup",
    "PartitionRule",
    "RetentionRule",
    "RowType",
    "Stage",
    "Table",
    "Topic",
    "TopicRole",
    "Topology",
]
