"""What holds for stages, their tables, and edges.

Source: STYLE 2.14; DESIGN "The one idea" law 1, "Roles".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, cast

from schemas import Schema
from topology.layout import Layout
from topology.model import RowType, Topic, TopicRole, Topology
from topology.problem import Code, Problem

QUARANTINE_KIND = "record_quarantined"

# Stage names go into transactional ids, journal keys `stage/partition` and `stage@version`.
_STAGE_NAME = re.compile(r"[a-z][a-z0-9_.-]*")
_UNWRITTEN = (TopicRole.LEGACY, TopicRole.CHANGELOG, TopicRole.JOURNAL, TopicRole.CHECKPOINT)
_DUE_TYPES = ("long", ["null", "long"])


def broken_stage_names(topology: Topology) -> Iterator[Problem]:
    """Yield stages declared twice, folds of one id, illegal names, and mailboxes shared."""
    sources: defaultdict[str, set[str]] = defaultdict(set)
    readers: defaultdict[str, list[str]] = defaultdict(list)
    for stage in topology.stages:
        sources[stage.name].add(stage.source)
        readers[stage.source].append(stage.name)
        if not _STAGE_NAME.fullmatch(stage.name) or stage.version < 1:
            yield Problem(
                Code.ILLEGAL_STAGE,
                f"stage {stage.name}",
                f"is {stage.fold_id!r}, expected a lower-case word and a version >= 1",
            )
    for name, count in Counter(stage.name for stage in topology.stages).items():
        if count > 1:
            yield Problem(
                Code.DUPLICATE_STAGE,
                f"stage {name}",
                f"declared {count} times with sources {', '.join(sorted(sources[name]))}, "
                "expected one declaration with one source",
            )
    for fold_id, count in Counter(stage.fold_id for stage in topology.stages).items():
        if count > 1:
            yield Problem(Code.DUPLICATE_FOLD, fold_id, f"names {count} folds, expected one")
    for source, names in readers.items():
        if len(names) > 1:
            yield Problem(
                Code.SHARED_SOURCE,
                source,
                f"is the source of {', '.join(names)}, expected one stage per mailbox",
            )


def broken_sources(topology: Topology) -> Iterator[Problem]:
    """Yield sources that are not declared, or not as one mailbox."""
    by_name = {topic.name: topic for topic in topology.topics}
    for stage in topology.stages:
        topic = by_name.get(stage.source)
        if topic is None:
            yield _undeclared(f"stage {stage.name}", "source", stage.source)
        elif topic.role is not TopicRole.MAILBOX or topic.is_family:
            kind = "family" if topic.is_family else topic.role
            yield Problem(
                Code.NOT_A_MAILBOX,
                f"stage {stage.name}",
                f"reads {topic.name}, a {kind}, expected one mailbox: the broker's clock must "
                "order what a fold reads",
            )


def broken_sinks(topology: Topology) -> Iterator[Problem]:
    """Yield sinks and quarantines that are not declared, or that no stage may write."""
    by_name = {topic.name: topic for topic in topology.topics}
    for stage in topology.stages:
        where = f"stage {stage.name}"
        for sink, count in Counter(stage.sinks).items():
            if count > 1:
                yield Problem(Code.UNWRITABLE_SINK, where, f"names sink {sink} {count} times")
            topic = by_name.get(sink)
            if topic is None:
                yield _undeclared(where, "sink", sink)
            else:
                yield from _unwritable(where, topic)
        quarantine = by_name.get(stage.quarantine)
        if quarantine is None:
            yield _undeclared(where, "quarantine", stage.quarantine)
        elif QUARANTINE_KIND not in dict(quarantine.kinds):
            yield Problem(
                Code.QUARANTINE,
                where,
                f"quarantines into {quarantine.name}, expected a topic with kind {QUARANTINE_KIND}",
            )


def broken_tables(topology: Topology, layout: Layout) -> Iterator[Problem]:
    """Yield changelogs that are missing, or whose partitions are not their source's."""
    by_name = {topic.name: topic for topic in topology.topics}
    for stage in topology.stages:
        where = f"stage {stage.name}"
        changelog, source = by_name.get(stage.changelog), by_name.get(stage.source)
        if changelog is None:
            yield _undeclared(where, "changelog", stage.changelog)
        elif changelog.role is not TopicRole.CHANGELOG:
            yield Problem(
                Code.TABLE_PARTITIONS,
                where,
                f"keeps its rows in {changelog.name}, a {changelog.role}, expected a changelog",
            )
        elif source is not None:
            rows, records = layout.partitions_of(changelog), layout.partitions_of(source)
            if rows != records:
                yield Problem(
                    Code.TABLE_PARTITIONS,
                    where,
                    f"table {stage.table.name} has {rows} partitions, expected the {records} of "
                    f"its source {source.name}",
                )


def broken_rows(topology: Topology, schemas: Mapping[str, Schema]) -> Iterator[Problem]:
    """Yield row prefixes that cannot be told apart, unknown schemas, unusable due fields."""
    for stage in topology.stages:
        where = f"stage {stage.name} table {stage.table.name}"
        for prefix, count in Counter(row.prefix for row in stage.table.rows).items():
            if count > 1:
                yield Problem(
                    Code.ROW_PREFIX, where, f"prefix {prefix!r} has {count} rows, expected one"
                )
            if not prefix or "\0" in prefix or ":" in prefix:
                yield Problem(
                    Code.ROW_PREFIX,
                    where,
                    f"prefix {prefix!r}, expected a word without ':' (it ends the prefix in a key) "
                    "and without '\\0' (it starts the runtime's own rows)",
                )
        for row in stage.table.rows:
            yield from _broken_row(where, row, schemas)


def broken_edges(topology: Topology) -> Iterator[Problem]:
    """Yield edges of one name, or of a stage's group, and topics that are not declared."""
    by_name = {topic.name: topic for topic in topology.topics}
    groups = {stage.group: stage.name for stage in topology.stages}
    for name, count in Counter(edge.name for edge in topology.edges).items():
        if count > 1:
            yield Problem(Code.DUPLICATE_EDGE, f"edge {name}", f"declared {count} times")
    for edge in topology.edges:
        where = f"edge {edge.name}"
        if edge.reads_in_group and edge.group in groups:
            yield Problem(
                Code.DUPLICATE_EDGE,
                where,
                f"has the group {edge.group} of stage {groups[edge.group]}, expected its own",
            )
        for read in (*edge.reads_in_group, *edge.reads):
            if read not in by_name:
                yield _undeclared(where, "topic it reads", read)
        for written in edge.writes:
            topic = by_name.get(written)
            if topic is None:
                yield _undeclared(where, "topic it writes", written)
            else:
                yield from _unwritable(where, topic)


def _undeclared(where: str, what: str, name: str) -> Problem:
    return Problem(Code.UNDECLARED_TOPIC, where, f"{what} {name} is not declared as a topic")


def _unwritable(where: str, topic: Topic) -> Iterator[Problem]:
    if topic.role in _UNWRITTEN:
        yield Problem(
            Code.UNWRITABLE_SINK,
            where,
            f"writes to {topic.name}, a {topic.role}, expected a topic that outputs may go to",
        )
    elif not topic.kinds:
        yield Problem(
            Code.UNWRITABLE_SINK,
            where,
            f"writes to {topic.name}, which declares no kinds, expected at least one",
        )


def _broken_row(where: str, row: RowType, schemas: Mapping[str, Schema]) -> Iterator[Problem]:
    if row.tally_field is not None and row.due_field is None:
        yield Problem(
            Code.TALLY_FIELD,
            where,
            f"row {row.prefix!r} is counted by {row.tally_field} and never due, expected a due "
            "field: the rows of the others are not looked at when a partition is loaded",
        )
    schema = schemas.get(row.schema)
    if schema is None:
        yield Problem(
            Code.UNKNOWN_SCHEMA,
            where,
            f"row {row.prefix!r} names schema {row.schema}, "
            f"expected a file schemas/{row.schema}.avsc",
        )
    else:
        yield from _broken_fields(where, row, schema)


def _broken_fields(where: str, row: RowType, schema: Schema) -> Iterator[Problem]:
    fields = cast("list[dict[str, Any]]", schema.definition["fields"])
    types = {str(field["name"]): field["type"] for field in fields}
    if row.tally_field is not None and row.tally_field not in types:
        yield Problem(
            Code.TALLY_FIELD,
            where,
            f"row {row.prefix!r} is counted by {row.tally_field}, "
            f"expected a field of schema {row.schema}",
        )
    if row.due_field is not None and types.get(row.due_field) not in _DUE_TYPES:
        found = types.get(row.due_field, "no such field")
        yield Problem(
            Code.DUE_FIELD,
            where,
            f"row {row.prefix!r} is due at {row.due_field} of schema {row.schema}: {found}, "
            'expected a field of type "long" or ["null", "long"]',
        )
