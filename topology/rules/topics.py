"""What holds for topics: names, kinds, cleanup, partition counts that belong together.

Source: STYLE 2.14; DESIGN "Topics", "Partitions".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

from topology.family import clash_form, name_problem
from topology.layout import Layout
from topology.model import RUNTIME_KINDS, Cleanup, Topic, TopicRole, Topology
from topology.problem import Code, Problem

_LATEST_PER_KEY = (TopicRole.CATALOG, TopicRole.CHANGELOG)
_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")


def broken_names(topology: Topology) -> Iterator[Problem]:
    """Yield names declared twice, illegal ones, and those that Kafka holds for one."""
    names = [topic.name for topic in topology.topics]
    for name, count in Counter(names).items():
        if count > 1:
            yield Problem(Code.DUPLICATE_TOPIC, name, f"declared {count} times, expected once")
    by_form: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        by_form[clash_form(name)].add(name)
        # A family's value is checked when it is expanded; here one letter stands for it.
        if problem := name_problem(_PLACEHOLDER.sub("x", name)):
            yield Problem(Code.ILLEGAL_NAME, name, problem)
    for clashing in by_form.values():
        if len(clashing) > 1:
            first, *others = sorted(clashing)
            yield Problem(
                Code.CLASHING_NAMES,
                first,
                f"equals {', '.join(others)} once '.' is '_', expected names that stay apart",
            )


def broken_kinds(topology: Topology, schemas: Collection[str]) -> Iterator[Problem]:
    """Yield kinds declared twice in a topic, and kinds whose schema does not exist."""
    sources = {stage.source for stage in topology.stages}
    for topic in topology.topics:
        runtime = RUNTIME_KINDS if topic.name in sources else ()
        counts = Counter(kind for kind, _ in (*topic.kinds, *runtime))
        for kind, count in counts.items():
            if count > 1:
                yield Problem(
                    Code.DUPLICATE_KIND,
                    topic.name,
                    f"kind {kind} is declared {count} times, expected once "
                    "(a stage's source has the runtime's own kinds as well)",
                )
        for kind, schema in topic.kinds:
            if schema not in schemas:
                yield Problem(
                    Code.UNKNOWN_SCHEMA,
                    topic.name,
                    f"kind {kind} names schema {schema}, expected a file schemas/{schema}.avsc",
                )


def broken_cleanup(topology: Topology) -> Iterator[Problem]:
    """Yield logs that the broker would thin out, and catalogs that it would cut off."""
    for topic in topology.topics:
        keeps_latest = topic.role in _LATEST_PER_KEY
        if topic.cleanup is Cleanup.COMPACT and not keeps_latest:
            yield Problem(
                Code.COMPACTED_LOG,
                topic.name,
                f"is compacted, expected cleanup delete: a {topic.role} keeps every record, "
                "or it cannot be audited",
            )
        if topic.cleanup is Cleanup.DELETE and keeps_latest:
            yield Problem(
                Code.UNCOMPACTED_CATALOG,
                topic.name,
                f"has cleanup delete, expected compact: a {topic.role} keeps the latest per key",
            )


def broken_partitions(topology: Topology, layout: Layout) -> Iterator[Problem]:
    """Yield counts below one, and topics that share partition numbers but not their count."""
    by_name = {topic.name: topic for topic in topology.topics}
    for topic in topology.topics:
        count = layout.partitions_of(topic)
        if count < 1:
            yield Problem(
                Code.PARTITION_COUNT, topic.name, f"has {count} partitions, expected >= 1"
            )
        if topic.co_partitioned_with is None:
            continue
        other = by_name.get(topic.co_partitioned_with)
        if other is None:
            yield Problem(
                Code.CO_PARTITIONING,
                topic.name,
                f"is co-partitioned with {topic.co_partitioned_with}, which is not declared",
            )
        elif layout.partitions_of(other) != count and topic.role is not TopicRole.CHANGELOG:
            yield Problem(
                Code.CO_PARTITIONING,
                topic.name,
                f"has {count} partitions, expected the {layout.partitions_of(other)} of "
                f"{other.name}, whose partition numbers it uses",
            )


def broken_journal(topology: Topology, layout: Layout) -> Iterator[Problem]:
    """Yield what keeps a stage's partition from having a place in journal and checkpoints."""
    if not topology.stages:
        return
    sources = {stage.source for stage in topology.stages}
    widest = max(
        (layout.partitions_of(topic) for topic in topology.topics if topic.name in sources),
        default=1,
    )
    for role in (TopicRole.JOURNAL, TopicRole.CHECKPOINT):
        found = [topic for topic in topology.topics if topic.role is role]
        if len(found) != 1:
            names = ", ".join(topic.name for topic in found) or "none"
            yield Problem(
                Code.MISSING_JOURNAL, role, f"declared topics: {names}, expected exactly one"
            )
        for topic in found:
            yield from _too_narrow(topic, layout, widest)


def _too_narrow(topic: Topic, layout: Layout, widest: int) -> Iterator[Problem]:
    count = layout.partitions_of(topic)
    if count < widest:
        yield Problem(
            Code.CO_PARTITIONING,
            topic.name,
            f"has {count} partitions, expected >= {widest}: each stage partition writes to the "
            "same number here",
        )
