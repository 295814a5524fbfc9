"""The application's topology as values: topics, stages, edges and tables.

Nothing happens at import beyond building frozen values.
"""

from __future__ import annotations

from topology.application import TOPOLOGY
from topology.model import (
    Cleanup,
    Edge,
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
    "Edge",
    "PartitionRule",
    "RetentionRule",
    "RowType",
    "Stage",
    "Table",
    "Topic",
    "TopicRole",
    "Topology",
]
