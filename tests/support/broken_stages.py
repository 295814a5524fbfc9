"""The shipped topology with one thing wrong: stages, their tables, and edges."""

from __future__ import annotations

from dataclasses import replace

from tests.support.broken_topology import (
    ENVELOPES,
    SECOND_CHANGELOG,
    SECOND_INBOX,
    Case,
    edge,
    rows,
    stage,
    topic,
    topics,
)
from topology import TOPOLOGY
from topology.check import Code
from topology.model import (
    RowType,
    TopicRole,
)

STAGE_CASES = {
    "one stage is declared with two sources": Case(
        code=Code.DUPLICATE_STAGE,
        where="stage inbox",
        says="declared 2 times with sources trigger.dispatches, trigger.inbox.envelopes",
        topology=replace(
            TOPOLOGY,
            stages=(
                *TOPOLOGY.stages,
                replace(TOPOLOGY.stage("inbox"), version=2, source="trigger.dispatches"),
            ),
        ),
    ),
    "two folds have one id": Case(
        code=Code.DUPLICATE_FOLD,
        where="inbox@1",
        says="names 2 folds",
        topology=replace(TOPOLOGY, stages=(*TOPOLOGY.stages, TOPOLOGY.stage("inbox"))),
    ),
    "a stage's name would break the journal's keys": Case(
        code=Code.ILLEGAL_STAGE,
        where="stage in/box",
        says="expected a lower-case word",
        topology=stage("inbox", name="in/box"),
    ),
    "a fold's version is not a version": Case(
        code=Code.ILLEGAL_STAGE,
        where="stage inbox",
        says="'inbox@0'",
        topology=stage("inbox", version=0),
    ),
    "two stages read one mailbox": Case(
        code=Code.SHARED_SOURCE,
        where=ENVELOPES,
        says="is the source of inbox, second",
        topology=replace(topics(SECOND_CHANGELOG), stages=(*TOPOLOGY.stages, SECOND_INBOX)),
    ),
    "a source is not declared": Case(
        code=Code.UNDECLARED_TOPIC,
        where="stage inbox",
        says="source nowhere is not declared",
        topology=stage("inbox", source="nowhere"),
    ),
    "a sink is not declared": Case(
        code=Code.UNDECLARED_TOPIC,
        where="stage inbox",
        says="sink nowhere is not declared",
        topology=stage("inbox", sinks=("nowhere",)),
    ),
    "a quarantine is not declared": Case(
        code=Code.UNDECLARED_TOPIC,
        where="stage inbox",
        says="quarantine nowhere is not declared",
        topology=stage("inbox", quarantine="nowhere"),
    ),
    "a table's changelog is not declared": Case(
        code=Code.UNDECLARED_TOPIC,
        where="stage inbox",
        says="changelog inbox-inbox-changelog is not declared",
        topology=topics(without="inbox-inbox-changelog"),
    ),
    "an edge reads what is not declared": Case(
        code=Code.UNDECLARED_TOPIC,
        where="edge probe",
        says="topic it reads nowhere",
        topology=edge(reads=("nowhere",)),
    ),
    "an edge writes what is not declared": Case(
        code=Code.UNDECLARED_TOPIC,
        where="edge probe",
        says="topic it writes nowhere",
        topology=edge(writes=("nowhere",)),
    ),
    "a source is stamped by its producers": Case(
        code=Code.NOT_A_MAILBOX,
        where="stage inbox",
        says="reads trigger.inbox.envelopes, a request, expected one mailbox",
        topology=topic(ENVELOPES, role=TopicRole.REQUEST),
    ),
    "a source is a family": Case(
        code=Code.NOT_A_MAILBOX,
        where="stage inbox",
        says="a family",
        topology=stage("inbox", source="worker.{queue}"),
    ),
    "a sink is written by nobody": Case(
        code=Code.UNWRITABLE_SINK,
        where="stage inbox",
        says="trigger.inbox, a legacy",
        topology=stage("inbox", sinks=("trigger.inbox",)),
    ),
    "a sink has no kinds to encode": Case(
        code=Code.UNWRITABLE_SINK,
        where="stage inbox",
        says="declares no kinds",
        topology=stage("inbox", sinks=("lifecycle.pool.audit",)),
    ),
    "a sink is named twice": Case(
        code=Code.UNWRITABLE_SINK,
        where="stage inbox",
        says="names sink trigger.dispatches 2 times",
        topology=stage("inbox", sinks=("trigger.dispatches", "trigger.dispatches")),
    ),
    "a quarantine cannot hold a quarantined record": Case(
        code=Code.QUARANTINE,
        where="stage inbox",
        says="expected a topic with kind record_quarantined",
        topology=stage("inbox", quarantine="trigger.outbox"),
    ),
    "a table has other partitions than its source": Case(
        code=Code.TABLE_PARTITIONS,
        where="stage inbox",
        says="table inbox has 7 partitions, expected the 12 of its source",
        topology=topic("inbox-inbox-changelog", partitions=7),
    ),
    "a table's rows go to a topic that is no changelog": Case(
        code=Code.TABLE_PARTITIONS,
        where="stage inbox",
        says="expected a changelog",
        topology=topic("inbox-inbox-changelog", role=TopicRole.CATALOG),
    ),
    "two kinds of row share a prefix": Case(
        code=Code.ROW_PREFIX,
        where="stage inbox table inbox",
        says="prefix 's' has 2 rows",
        topology=rows(RowType(prefix="s", schema="row_seen", doc="Again.")),
    ),
    "a row takes the runtime's prefix": Case(
        code=Code.ROW_PREFIX,
        where="stage inbox table inbox",
        says="starts the runtime's own rows",
        topology=rows(RowType(prefix="\0seq", schema="row_seen", doc="Not ours.")),
    ),
    "a prefix holds the separator": Case(
        code=Code.ROW_PREFIX,
        where="stage inbox table inbox",
        says="prefix 's:x'",
        topology=rows(RowType(prefix="s:x", schema="row_seen", doc="Ambiguous.")),
    ),
    "a due field does not exist": Case(
        code=Code.DUE_FIELD,
        where="stage inbox table inbox",
        says="no such field",
        topology=rows(RowType(prefix="x", schema="row_seen", doc="A row.", due_field="due_ms")),
    ),
    "a due field is not a time": Case(
        code=Code.DUE_FIELD,
        where="stage inbox table inbox",
        says='string, expected a field of type "long"',
        topology=rows(RowType(prefix="x", schema="row_seen", doc="A row.", due_field="event_id")),
    ),
    "rows are counted by a field that they have not": Case(
        code=Code.TALLY_FIELD,
        where="stage inbox table inbox",
        says="expected a field of schema row_seen",
        topology=rows(
            RowType(
                prefix="x",
                schema="row_seen",
                doc="A row.",
                due_field="expires_at_ms",
                tally_field="status",
            )
        ),
    ),
    "rows are counted that are never due": Case(
        code=Code.TALLY_FIELD,
        where="stage inbox table inbox",
        says="expected a due field",
        topology=rows(
            RowType(prefix="x", schema="row_seen", doc="A row.", tally_field="expires_at_ms")
        ),
    ),
    "two edges have one name": Case(
        code=Code.DUPLICATE_EDGE,
        where="edge invoker",
        says="declared 2 times",
        topology=edge(name="invoker"),
    ),
    "an edge would join a stage's group": Case(
        code=Code.DUPLICATE_EDGE,
        where="edge inbox",
        says="has the group harn.inbox of stage inbox",
        topology=edge(name="inbox", reads_in_group=("trigger.invocations",)),
    ),
}
