"""What holds between the numbers of a layout: replicas, ages, and times that must outlast others.

Source: STYLE 2.14; DESIGN "Partitions", "The stage runtime" (Transactions).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from topology.layout import FOREVER_MS, Layout
from topology.model import Cleanup, Topic, TopicRole, Topology
from topology.problem import Code, Problem

_PROOF = (TopicRole.JOURNAL, TopicRole.CHECKPOINT)


def broken_replication(layout: Layout) -> Iterator[Problem]:
    """Yield a demand for more replicas in sync than there are."""
    if layout.min_insync_replicas > layout.replication_factor:
        yield Problem(
            Code.REPLICATION,
            "min_insync_replicas",
            f"is {layout.min_insync_replicas}, expected <= replication_factor = "
            f"{layout.replication_factor}: nothing could be written",
        )


def broken_retention_order(topology: Topology, layout: Layout) -> Iterator[Problem]:
    """Yield ages under which an audit would miss the outputs or the proof of what it re-runs.

    A mailbox kept for ever is exempt: its audit starts at the oldest checkpoint.
    """
    bounded = {
        topic.name: age
        for topic in topology.topics
        if topic.role is TopicRole.MAILBOX and (age := _age_ms(layout, topic)) < math.inf
    }
    mailbox_ms = max(bounded.values(), default=0)
    outputs = [topic for topic in topology.topics if topic.role is TopicRole.OUTPUT]
    output_ms = max(
        (age for topic in outputs if (age := _age_ms(layout, topic)) < math.inf), default=mailbox_ms
    )
    for topic in topology.topics:
        age = _age_ms(layout, topic)
        if topic.role is TopicRole.OUTPUT and age < mailbox_ms:
            yield _shorter(topic, age, mailbox_ms, "the mailboxes: their outputs are audited")
        if topic.role in _PROOF and age < max(output_ms, mailbox_ms):
            longest = max(output_ms, mailbox_ms)
            yield _shorter(topic, age, longest, "mailboxes and outputs: it proves them")
        if topic.cleanup is Cleanup.COMPACT and age < math.inf:
            yield _shorter(topic, age, FOREVER_MS, "its keys: a compacted topic is kept for ever")


def broken_retention(topology: Topology, layout: Layout) -> Iterator[Problem]:
    """Yield ages at which a record could go while the work that it began is still retried."""
    work_ms = layout.longest_retry_ms + layout.lease_ms
    wait_ms = layout.lease_ms + layout.reader_wait_ms
    for topic in topology.topics:
        age = _age_ms(layout, topic)
        if topic.role is TopicRole.MAILBOX and age < work_ms:
            yield Problem(
                Code.RETENTION_TOO_SHORT,
                topic.name,
                f"keeps records {age} ms, expected >= {work_ms} ms: the longest retry "
                f"({layout.longest_retry_ms} ms) and a lease ({layout.lease_ms} ms)",
            )
        if topic.role is TopicRole.INTENT and age < wait_ms:
            yield Problem(
                Code.RETENTION_TOO_SHORT,
                topic.name,
                f"keeps intents {age} ms, expected >= {wait_ms} ms: a lease and a reader's wait",
            )


def broken_times(layout: Layout) -> Iterator[Problem]:
    """Yield times so short that a stopped owner elsewhere would make them look expired."""
    if 3 * layout.heartbeat_interval_ms > layout.session_timeout_ms:
        yield Problem(
            Code.SESSION,
            "heartbeat_interval_ms",
            f"is {layout.heartbeat_interval_ms}, expected <= a third of session_timeout_ms = "
            f"{layout.session_timeout_ms}: two lost heartbeats must not end a membership",
        )
    least_ms = 2 * layout.reader_wait_ms
    for name in ("lease_ms", "heartbeat_ttl_ms", "drain_ms"):
        value_ms: int = getattr(layout, name)
        if value_ms < least_ms:
            yield Problem(
                Code.READER_WAIT,
                name,
                f"is {value_ms}, expected >= {least_ms}: twice the {layout.reader_wait_ms} ms that "
                "a reader may wait behind a stopped owner's transaction",
            )


def _age_ms(layout: Layout, topic: Topic) -> float:
    age_ms = layout.retention_ms_of(topic)
    return math.inf if age_ms == FOREVER_MS else age_ms


def _shorter(topic: Topic, age_ms: float, least_ms: float, why: str) -> Problem:
    least = "no bound" if least_ms == FOREVER_MS else f">= {least_ms} ms"
    return Problem(
        Code.RETENTION_ORDER,
        topic.name,
        f"keeps records {age_ms} ms, expected {least}, as long as {why}",
    )
