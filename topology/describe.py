"""A topology for people and programs: rows, a Mermaid flowchart, JSON, and the page in docs.

Pure: everything here is a function of declarations and, where numbers are shown, a layout.

Source: DESIGN "Topics", "Roles".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from topology.layout import FOREVER_MS, Layout
from topology.model import PartitionRule, Stage, Topic, Topology
from topology.resolve import resolve_topic

__all__ = ["TopicRow", "as_json", "duration", "mermaid", "page", "topic_rows"]

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))
_COUNTS = {PartitionRule.MAILBOX: "N", PartitionRule.TURNS: "T"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """One line of the table of topics, as text."""

    name: str
    role: str
    partitions: str
    key: str
    cleanup: str
    retention: str
    used_by: str
    doc: str


def topic_rows(topology: Topology, layout: Layout) -> tuple[TopicRow, ...]:
    """Return one row per declared topic and family, with the numbers of `layout`."""
    return tuple(
        _row(
            topology,
            topic,
            partitions=str(layout.partitions_of(topic)),
            retention=duration(layout.retention_ms_of(topic)),
        )
        for topic in topology.topics
    )


def duration(milliseconds: int) -> str:
    """Return an age as people say it: `7 d`, `90 min`, `for ever`."""
    if milliseconds == FOREVER_MS:
        return "for ever"
    for unit_ms, name in _UNITS:
        if milliseconds >= unit_ms and milliseconds % unit_ms == 0:
            return f"{milliseconds // unit_ms} {name}"
    return f"{milliseconds} ms"


def mermaid(topology: Topology) -> str:
    """Return a Mermaid flowchart: what flows between topics, stages and edges.

    Boxes are stages, hexagons edges, slanted boxes topics, cylinders tables.  Topics that nothing
    of this release reads or writes are left out, as are the journal and checkpoints, to which
    every stage writes.
    """
    lines = ["flowchart LR"]
    lines += [f'  {_node("s", stage.name)}["{stage.name}"]' for stage in topology.stages]
    lines += [f'  {_node("e", edge.name)}{{{{"{edge.name}"}}}}' for edge in topology.edges]
    for stage in topology.stages:
        lines.append(f'  {_node("t", stage.table.name)}[("{stage.table.name}")]')
    links = list(_links(topology))
    drawn = {name for link in links for name in link[1:]}
    lines += [
        f'  {_node("k", topic.name)}[/"{topic.name}"/]'
        for topic in topology.topics
        if _node("k", topic.name) in drawn
    ]
    lines += [f"  {start} {arrow} {end}" for arrow, start, end in links]
    return "\n".join(lines) + "\n"


def as_json(topology: Topology, layout: Layout) -> dict[str, Any]:
    """Return topics, families, stages and edges as plain values, resolved by `layout`."""
    return {
        "topics": [_topic_json(topology, topic, layout) for topic in topology.topics],
        "stages": [_stage_json(stage) for stage in topology.stages],
        "edges": [
            {
                "name": edge.name,
                "group": edge.group if edge.reads_in_group else None,
                "reads": [*edge.reads_in_group, *edge.reads],
                "writes": list(edge.writes),
                "doc": edge.doc,
            }
            for edge in topology.edges
        ],
    }


def page(topology: Topology) -> str:
    """Return docs/topology.md: every declaration, with counts and ages by their setting's name."""
    topics = "".join(
        f"| `{row.name}` | {row.role} | {row.partitions} | {row.key} | {row.cleanup} | "
        f"{row.retention} | {row.doc} |\n"
        for topic in topology.topics
        for row in (_row(topology, topic, _count(topic), str(topic.retention)),)
    )
    stages = "".join(
        f"| `{stage.fold_id}` | `{stage.group}` | `{stage.source}` | {_names(stage.sinks)} | "
        f"`{stage.table.name}` | {stage.doc} |\n"
        for stage in topology.stages
    )
    rows = "".join(
        f"| `{stage.table.name}` | `{row.prefix}` | `{row.schema}` | {row.due_field or ''} | "
        f"{row.doc} |\n"
        for stage in topology.stages
        for row in stage.table.rows
    )
    edges = "".join(
        f"| `{edge.name}` | {_names((*edge.reads_in_group, *edge.reads))} | {_names(edge.writes)} "
        f"| {edge.doc} |\n"
        for edge in topology.edges
    )
    return _PAGE.format(
        flow=mermaid(topology), topics=topics, stages=stages, rows=rows, edges=edges
    )


def _row(topology: Topology, topic: Topic, partitions: str, retention: str) -> TopicRow:
    return TopicRow(
        name=topic.name,
        role=str(topic.role),
        partitions=partitions,
        key=topic.key,
        cleanup=str(topic.cleanup),
        retention=retention,
        used_by=", ".join(_users(topology, topic.name)),
        doc=topic.doc,
    )


def _count(topic: Topic) -> str:
    if isinstance(topic.partitions, PartitionRule):
        return _COUNTS[topic.partitions]
    return str(topic.partitions)


def _users(topology: Topology, name: str) -> Iterator[str]:
    """Yield who reads (`<`) and who writes (`>`) the topic `name`."""
    for stage in topology.stages:
        if name in (stage.source, stage.changelog):
            yield f"<{stage.name}"
        if name in (*stage.sinks, stage.quarantine, stage.changelog):
            yield f">{stage.name}"
    for edge in topology.edges:
        if name in (*edge.reads_in_group, *edge.reads):
            yield f"<{edge.name}"
        if name in edge.writes:
            yield f">{edge.name}"


def _links(topology: Topology) -> Iterator[tuple[str, str, str]]:
    """Yield (arrow, from, to): heavy to a table, dotted to the quarantine."""
    for stage in topology.stages:
        node = _node("s", stage.name)
        yield "-->", _node("k", stage.source), node
        for sink in stage.sinks:
            yield "-->", node, _node("k", sink)
        if stage.quarantine not in stage.sinks:
            yield "-.->", node, _node("k", stage.quarantine)
        yield "===", node, _node("t", stage.table.name)
    for edge in topology.edges:
        node = _node("e", edge.name)
        for read in (*edge.reads_in_group, *edge.reads):
            yield "-->", _node("k", read), node
        for written in edge.writes:
            yield "-->", node, _node("k", written)


def _node(kind: str, name: str) -> str:
    return f"{kind}_{name.translate(_TO_NODE)}"


_TO_NODE = str.maketrans({".": "_", "-": "_", "{": "_", "}": "_"})


def _topic_json(topology: Topology, topic: Topic, layout: Layout) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": topic.name,
        "family": topic.is_family,
        "role": str(topic.role),
        "key": topic.key,
        "partitions": layout.partitions_of(topic),
        "replication_factor": layout.replication_factor,
        "kinds": dict(topic.kinds),
        "used_by": list(_users(topology, topic.name)),
        "doc": topic.doc,
    }
    if not topic.is_family:
        described["config"] = dict(resolve_topic(topic, layout).config)
    return described


def _stage_json(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "version": stage.version,
        "role": stage.role,
        "group": stage.group,
        "source": stage.source,
        "sinks": list(stage.sinks),
        "quarantine": stage.quarantine,
        "table": stage.table.name,
        "changelog": stage.changelog,
        "rows": [
            {
                "prefix": row.prefix,
                "schema": row.schema,
                "due_field": row.due_field,
                "ticking": row.ticking if row.due_field else None,
                "doc": row.doc,
            }
            for row in stage.table.rows
        ],
        "doc": stage.doc,
    }


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


_PAGE = """# Topology

Every topic, stage, table and edge of the application, as declared in `topology/`. `harn topology
check` proves that they fit together; `harn topology plan` compares them with a cluster and `harn
topology apply` creates what is missing. This page is written by
`harn topology describe --format markdown`.

## Flow

Boxes are stages, hexagons edges, slanted boxes topics, cylinders tables; a dotted line leads to the
quarantine. Every stage also appends ticks to its own source, and one record per transaction to
`audit.journal`.

```mermaid
{flow}```

## Topics

N is `HARN_PARTITIONS`, T is `AGENT_TURNS_PARTITIONS`. Retention `mailbox` is
`HARN_RETENTION_MAILBOX_MS` (7 days), `output` is `HARN_RETENTION_OUTPUT_MS` (8 days), `audit` is
`HARN_RETENTION_AUDIT_MS` (30 days), `short` an hour. A name with `{{…}}` is a family: each of its
topics is created when a queue or a binding names it.

| topic | role | partitions | key | cleanup | retention | holds |
|---|---|---|---|---|---|---|
{topics}
## Stages

| fold | group | source | sinks | table | does |
|---|---|---|---|---|---|
{stages}
## Rows

A row with a due field is a timer: its stage is called once stream time reaches the value.

| table | prefix | schema | due field | holds |
|---|---|---|---|---|
{rows}
## Edges

| edge | reads | writes | does |
|---|---|---|---|
{edges}"""
