"""The shipped topology under other names, so that tests can share a broker."""

from __future__ import annotations

import uuid
from dataclasses import replace

from topology import TOPOLOGY, Edge, Stage, Topic, Topology


def renamed_topology() -> Topology:
    """Return the shipped topology with a prefix of its own on every topic and role."""
    prefix = f"t{uuid.uuid4().hex[:8]}."
    return Topology(
        topics=tuple(_topic(prefix, topic) for topic in TOPOLOGY.topics),
        stages=tuple(_stage(prefix, stage) for stage in TOPOLOGY.stages),
        edges=tuple(_edge(prefix, edge) for edge in TOPOLOGY.edges),
    )


def _topic(prefix: str, topic: Topic) -> Topic:
    other = topic.co_partitioned_with
    return replace(
        topic, name=prefix + topic.name, co_partitioned_with=prefix + other if other else None
    )


def _stage(prefix: str, stage: Stage) -> Stage:
    return replace(
        stage,
        role=prefix + stage.role,
        source=prefix + stage.source,
        sinks=tuple(prefix + sink for sink in stage.sinks),
        quarantine=prefix + stage.quarantine,
    )


def _edge(prefix: str, edge: Edge) -> Edge:
    return replace(
        edge,
        reads_in_group=tuple(prefix + name for name in edge.reads_in_group),
        reads=tuple(prefix + name for name in edge.reads),
        writes=tuple(prefix + name for name in edge.writes),
    )
