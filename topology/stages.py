"""The stages: which mailbox each one folds, what it may write, and the rows it keeps.

The folds themselves live in `streams.core`; `streams.app` binds them to these declarations.

Source: DESIGN "Roles", "Following the work".
"""

from __future__ import annotations

from topology.model import RowType, Stage, Table
from topology.topics import GATE_TOPICS, QUEUE_TOPICS

REGISTRY = Stage(
    name="registry",
    version=1,
    role="registry",
    source="triggers.registry",
    sinks=("triggers.registry", "triggers.lifecycle"),
    quarantine="trigger.dlq",
    doc="Accepts manifests by compare-and-set and publishes revisions.",
    table=Table(
        name="bindings",
        rows=(
            RowType(prefix="revision", schema="row_revision", doc="The last revision, one row."),
            RowType(
                prefix="b",
                schema="row_registered_binding",
                doc="`b:<id>@v<version>`: a binding version and its state.",
            ),
            RowType(
                prefix="environment",
                schema="row_proposal",
                doc="What an environment proposed last for the scheduler, one row.",
            ),
        ),
    ),
)

INBOX = Stage(
    name="inbox",
    version=1,
    role="inbox",
    source="trigger.inbox.envelopes",
    sinks=("trigger.dispatches", "trigger.inbox.envelopes", "triggers.lifecycle"),
    quarantine="trigger.dlq",
    doc="Deduplicates events and matches them with the bindings in force; fires cron triggers.",
    table=Table(
        name="inbox",
        rows=(
            RowType(prefix="revision", schema="row_revision", doc="The last revision, one row."),
            RowType(
                prefix="b",
                schema="row_binding",
                doc="`b:<id>@v<version>`: a binding in force.",
            ),
            RowType(
                prefix="s",
                schema="row_seen",
                doc="`s:<provider>:<dedupe key>` or `s::<event id>`: seen within the window.",
                due_field="expires_at_ms",
                ticking=False,
            ),
            RowType(
                prefix="dedupe",
                schema="row_dedupe",
                doc="Repeats dropped, and how many `s:` rows there are; one row.",
                told=True,
            ),
            RowType(
                prefix="c",
                schema="row_cron",
                doc="`c:<trigger id>`: a cron trigger that fires here; due at its next tick.",
                due_field="due_ms",
            ),
        ),
    ),
)

DISPATCH = Stage(
    name="dispatch",
    version=1,
    role="dispatch",
    source="trigger.dispatches",
    sinks=(
        "trigger.inbox.claims",
        "trigger.inbox.envelopes",
        "worker.queues",
        "trigger.invocations",
        "trigger.invocations.cancels",
        "trigger.attempts",
        "trigger.outbox",
        "trigger.dlq",
        "triggers.lifecycle",
        "observability.action_graph",
        "triggers.registry",
        "trigger.dispatches",
    ),
    family_sinks=(*GATE_TOPICS, QUEUE_TOPICS[0]),
    quarantine="trigger.dlq",
    doc="Runs each dispatch to its one terminal outcome: attempts, leases, retries, dead letters.",
    table=Table(
        name="dispatches",
        rows=(
            RowType(prefix="revision", schema="row_revision", doc="The last revision, one row."),
            RowType(
                prefix="b",
                schema="row_dispatch_binding",
                doc="`b:<id>@v<version>`: a binding version, and how far its draining is.",
            ),
            RowType(
                prefix="d",
                schema="row_dispatch",
                doc="`d:<dispatch id>`: a live dispatch; due at its lease's end or its retry.",
                due_field="due_ms",
                tally_field="status",
            ),
            RowType(
                prefix="w",
                schema="row_window",
                doc="`w:<gate>:<binding key>:<key>`: the last starts at a windowed gate's key.",
                due_field="expires_at_ms",
                ticking=False,
            ),
            RowType(
                prefix="q",
                schema="row_dlq",
                doc="`q:<dispatch id>`: a dead letter that nobody has dealt with.",
                due_field="expires_at_ms",
                ticking=False,
            ),
            RowType(
                prefix="c",
                schema="row_cancel",
                doc="`c:<length>:<binding key>:<event id>`: a cancel request before its dispatch.",
                due_field="expires_at_ms",
                ticking=False,
            ),
            RowType(
                prefix="o",
                schema="row_circuit",
                doc="`o:<destination>`: failures in a row, or an open circuit; due at its probe.",
                due_field="due_ms",
            ),
            RowType(
                prefix="k",
                schema="row_claim",
                doc="`k:<length of the id>:<trigger id>:<dedupe key>`: claimed until it expires.",
                due_field="expires_at_ms",
                ticking=False,
            ),
            RowType(
                prefix="dedupe",
                schema="row_dedupe",
                doc="Repeats by a trigger's own key, and how many `k:` rows there are; one row.",
                told=True,
            ),
            RowType(
                prefix="p",
                schema="row_predicate",
                doc="`p:<id>@v<version>`: how a binding's predicate fails, and what it costs.",
            ),
            RowType(
                prefix="m",
                schema="row_budget",
                doc="`m:t:<trigger id>` or `m:n:<namespace>`: money spent in this hour and day.",
                due_field="expires_at_ms",
                ticking=False,
            ),
            RowType(
                prefix="e",
                schema="row_event",
                doc="`e:<dispatch id>`: a live dispatch's event, if it is large.",
            ),
        ),
    ),
)

SCHEDULER = Stage(
    name="scheduler",
    version=1,
    role="scheduler",
    source="worker.requests",
    sinks=("worker.queues", "worker.deliveries"),
    family_sinks=QUEUE_TOPICS[1:],
    quarantine="trigger.dlq",
    doc="Selects jobs of worker queues, fairly, and leases them to workers.",
    table=Table(
        name="queues",
        rows=(
            RowType(prefix="revision", schema="row_revision", doc="The last revision, one row."),
            RowType(
                prefix="q",
                schema="row_queue",
                doc="`q:<queue>`: a queue or shard; due when its next summary is.",
                due_field="summary_due_ms",
            ),
            RowType(
                prefix="f",
                schema="row_fairness_key",
                doc="`f:<queue>:<dimension>:<fairness key>`: its credit and counts.",
                due_field="forget_at_ms",
                ticking=False,
            ),
            RowType(
                prefix="j",
                schema="row_job",
                doc="`j:<queue>:<job id>`: a job, written once, gone when it is done.",
            ),
            RowType(
                prefix="l",
                schema="row_holder",
                doc="`l:<queue>:<consumer id>`: claims in force; due when the first one expires.",
                due_field="due_ms",
            ),
            RowType(
                prefix="n",
                schema="row_returned",
                doc="`n:<queue>:<job id>`: a job claimed before; due when it may be again.",
                due_field="not_before_ms",
            ),
            RowType(
                prefix="w",
                schema="row_worker",
                doc="`w:<consumer id>`: a worker; due when it counts as gone.",
                due_field="due_ms",
            ),
            RowType(
                prefix="g",
                schema="row_consumer",
                doc="`g:<queue>`: gates of the consumers of a queue.",
            ),
            RowType(
                prefix="a",
                schema="row_gated",
                doc="`a:<queue>:<job id>`: a job that has met gates: its keys, and how far it is.",
            ),
            RowType(
                prefix="s",
                schema="row_window",
                doc="`s:<gate>:<queue>/<trigger id>:<key>`: the last starts at a gate's key.",
                due_field="expires_at_ms",
                ticking=False,
            ),
            RowType(prefix="turn", schema="row_turn", doc="Queue that was served last, one row."),
        ),
    ),
)

STAGES: tuple[Stage, ...] = (REGISTRY, INBOX, DISPATCH, SCHEDULER)
