"""Every topic of the application, also those whose stage comes later: a cluster is laid out once.

Source: DESIGN "Topics".  Names are the seeds'.
"""

from __future__ import annotations

from topology.model import Cleanup, PartitionRule, RetentionRule, Topic, TopicRole

_LIFECYCLE_KINDS = (
    ("DispatchStarted", "lifecycle_dispatch_started"),
    ("DispatchSucceeded", "lifecycle_dispatch_succeeded"),
    ("DispatchFailed", "lifecycle_dispatch_failed"),
    ("RetryScheduled", "lifecycle_retry_scheduled"),
    ("DlqMoved", "lifecycle_dlq_moved"),
    ("DispatchCancelled", "lifecycle_dispatch_cancelled"),
    ("EventUnmatched", "lifecycle_event_unmatched"),
    ("EventDeduplicated", "lifecycle_event_deduplicated"),
    ("EventFiltered", "lifecycle_event_filtered"),
    ("CronTicksMissed", "lifecycle_cron_ticks_missed"),
    ("predicate.evaluated", "lifecycle_predicate_evaluated"),
    ("predicate.budget_exceeded", "lifecycle_predicate_budget_exceeded"),
    ("OutcomeRefused", "lifecycle_outcome_refused"),
    ("InvocationLost", "lifecycle_invocation_lost"),
    ("InvocationReissued", "lifecycle_invocation_reissued"),
    ("CircuitChanged", "lifecycle_circuit_changed"),
    ("DispatchParked", "lifecycle_dispatch_parked"),
    ("state_transition", "lifecycle_state_transition"),
)

_GATE_DECISIONS = {
    "batch": ("enqueued", "dispatched"),
    "debounce": ("seen", "selected"),
    "rate_limit": ("allowed", "blocked"),
    "throttle": ("wait", "acquired"),
    "singleton": ("acquired", "skipped", "released"),
    "concurrency": ("acquired", "released"),
}

QUEUE_TOPICS = ("worker.{queue}", "worker.{queue}.claims", "worker.{queue}.responses")
"""Families: the topics of one worker queue; its jobs are on the first."""

LIFECYCLE = "orchestrator.lifecycle"
"""Where members say how they are; nothing is decided by it."""

PARTITION_HALTED = "partition_halted"
"""Kind on `LIFECYCLE`: a stage stands still in the partition of that number."""

GATE_TOPICS = tuple(f"trigger.{gate}.{{binding}}" for gate in _GATE_DECISIONS)
"""Families: one topic per trigger that declares the gate."""

TRIGGER_TOPICS: tuple[Topic, ...] = (
    Topic(
        name="trigger.inbox.envelopes",
        role=TopicRole.MAILBOX,
        retention=RetentionRule.MAILBOX,
        key="provider:dedupe_key, else event id",
        doc="Mailbox of inbox; the durable ingress stream.",
        kinds=(
            ("event_ingested", "event_ingested"),
            ("source_rejected", "source_rejected"),
            ("revision_published", "revision_published"),
        ),
    ),
    Topic(
        name="trigger.inbox",
        role=TopicRole.LEGACY,
        key="none",
        doc="Legacy mixed topic: copied once, never written.",
    ),
    Topic(
        name="trigger.inbox.claims",
        role=TopicRole.CATALOG,
        cleanup=Cleanup.COMPACT,
        retention=RetentionRule.FOREVER,
        key="binding id:dedupe key",
        doc="Dedupe claims with expiry.",
        kinds=(("dedupe_claim", "dedupe_claim"),),
    ),
    Topic(
        name="trigger.dispatches",
        role=TopicRole.MAILBOX,
        retention=RetentionRule.MAILBOX,
        key="event id, or the gate scope of the binding",
        co_partitioned_with="trigger.inbox.envelopes",
        doc="Mailbox of dispatch: matched events, outcomes, leases, cancels, ticks.",
        kinds=(
            ("event_matched", "event_matched"),
            ("invocations_running", "invocations_running"),
            ("invocation_completed", "invocation_completed"),
            ("dispatch_cancel_requested", "dispatch_cancel_requested"),
            ("dlq_replayed", "dlq_replayed"),
            ("dlq_discard_requested", "dlq_discard_requested"),
            ("revision_published", "revision_published"),
            ("revision_reached", "revision_reached"),
            ("circuit_changed", "circuit_changed"),
            ("breaker_opened", "breaker_opened"),
            ("budget_spent", "budget_spent"),
        ),
    ),
    Topic(
        name="trigger.invocations",
        role=TopicRole.INTENT,
        retention=RetentionRule.MAILBOX,
        key="dispatch id",
        doc="Intents for invokers.",
        kinds=(("invoke", "invoke"),),
    ),
    Topic(
        name="trigger.invocations.cancels",
        role=TopicRole.INTENT,
        partitions=1,
        retention=RetentionRule.SHORT,
        key="dispatch id",
        doc="Cancel intents; every invoker reads it, without a group.",
        kinds=(("cancel_invocation", "cancel_invocation"),),
    ),
    Topic(
        name="trigger.attempts",
        role=TopicRole.OUTPUT,
        key="event id",
        doc="Every finished attempt and every scheduled retry.",
        kinds=(
            ("attempt_recorded", "attempt_recorded"),
            ("retry_scheduled", "retry_scheduled"),
            ("budget_deferred", "budget_deferred"),
        ),
    ),
    Topic(
        name="trigger.outbox",
        role=TopicRole.OUTPUT,
        key="event id",
        doc="What each dispatch came to.",
        kinds=(
            ("dispatch_started", "outbox_dispatch_started"),
            ("dispatch_succeeded", "outbox_dispatch_succeeded"),
            ("dispatch_failed", "outbox_dispatch_failed"),
            ("dispatch_skipped", "outbox_dispatch_skipped"),
            ("dispatch_cancelled", "outbox_dispatch_cancelled"),
        ),
    ),
    Topic(
        name="trigger.dlq",
        role=TopicRole.OUTPUT,
        key="event id, or the position of a quarantined record",
        doc="Undelivered events and quarantined records.",
        kinds=(
            ("dlq_moved", "dlq_moved"),
            ("dlq_entry", "dlq_entry"),
            ("record_quarantined", "record_quarantined"),
        ),
    ),
    Topic(
        name="triggers.lifecycle",
        role=TopicRole.OUTPUT,
        key="event id, or binding key",
        doc="What happened to events, dispatches and bindings, step by step.",
        kinds=_LIFECYCLE_KINDS,
    ),
    Topic(
        name="triggers.registry",
        role=TopicRole.MAILBOX,
        partitions=1,
        retention=RetentionRule.FOREVER,
        key="namespace",
        doc="Mailbox of registry: applies, revisions, broadcasts.",
        kinds=(
            ("manifest_applied", "manifest_applied"),
            ("trigger_registered", "trigger_registered"),
            ("trigger_drain_requested", "trigger_drain_requested"),
            ("scheduler_policy_proposed", "scheduler_policy_proposed"),
            ("revision_published", "revision_published"),
            ("apply_answered", "apply_answered"),
            ("revision_broadcast", "revision_broadcast"),
            ("binding_ended", "binding_ended"),
        ),
    ),
    Topic(
        name="trigger.cancel.requests",
        role=TopicRole.REQUEST,
        key="binding key + event id",
        doc="External cancel requests; broadcast to trigger.dispatches.",
        kinds=(("dispatch_cancel_requested", "dispatch_cancel_requested"),),
    ),
    Topic(
        name="trigger.operations.audit",
        role=TopicRole.OUTPUT,
        key="audit id",
        doc="What operators did.",
        kinds=(("trigger_operation_audit", "trigger_operation_audit"),),
    ),
    Topic(
        name="observability.action_graph",
        role=TopicRole.OUTPUT,
        key="event id",
        doc="Nodes and edges of each event's work.",
        kinds=(("action_graph_update", "action_graph_update"),),
    ),
    Topic(
        name=LIFECYCLE,
        role=TopicRole.OUTPUT,
        key="member, or stage/partition",
        doc="How members are: partitions that are halted, and what the pump holds back.",
        kinds=(
            *((f"pump_{word}", "pump_reported") for word in ("paused", "resumed", "acked")),
            (PARTITION_HALTED, "partition_halted"),
        ),
    ),
    *(
        Topic(
            name=f"trigger.{gate}.{{binding}}",
            role=TopicRole.OUTPUT,
            partitions=1,
            key="gate value",
            doc=f"Decisions of the {gate} gate of one trigger.",
            kinds=tuple((f"{gate}_{decided}", "gate_decision") for decided in decisions),
        )
        for gate, decisions in _GATE_DECISIONS.items()
    ),
)

WORKER_TOPICS: tuple[Topic, ...] = (
    Topic(
        name="worker.queues",
        role=TopicRole.CATALOG,
        cleanup=Cleanup.COMPACT,
        retention=RetentionRule.FOREVER,
        key="queue, or summary:queue",
        doc="Queue catalog and latest summary.",
        kinds=(
            ("queue_seen", "queue_seen"),
            ("queue_configured", "queue_configured"),
            ("queue_summary", "queue_summary"),
        ),
    ),
    Topic(
        name="worker.requests",
        role=TopicRole.MAILBOX,
        retention=RetentionRule.MAILBOX,
        key="queue, or queue#shard",
        doc="Mailbox of scheduler: jobs that are ready, and what workers and operators ask for.",
        kinds=(
            ("jobs_ready", "jobs_ready"),
            ("job_rejected", "job_rejected"),
            ("worker_heartbeat", "worker_heartbeat"),
            ("renew_requested", "renew_requested"),
            ("ack_requested", "ack_requested"),
            ("release_requested", "release_requested"),
            ("purge_requested", "purge_requested"),
            ("summary_requested", "summary_requested"),
            ("consumer_registered", "consumer_registered"),
            ("gates_requested", "gates_requested"),
            ("revision_published", "revision_published"),
        ),
    ),
    Topic(
        name="worker.deliveries",
        role=TopicRole.QUEUE,
        key="consumer id",
        doc="Granted jobs with their body, and other answers, for the worker that they are about.",
        kinds=(
            ("jobs_granted", "jobs_granted"),
            ("nothing_ready", "nothing_ready"),
            ("jobs_waiting", "jobs_waiting"),
            ("worker_replaced", "worker_replaced"),
            ("gates_answered", "gates_answered"),
            ("purge_answered", "purge_answered"),
        ),
    ),
    Topic(
        name="worker.{queue}",
        role=TopicRole.QUEUE,
        partitions=1,
        key="queue, or queue#shard",
        doc="Enqueued jobs; anyone may produce to it.",
        kinds=(("trigger_dispatch", "trigger_dispatch"),),
    ),
    Topic(
        name="worker.{queue}.claims",
        role=TopicRole.QUEUE,
        partitions=1,
        key="job id",
        doc="What the scheduler decided.",
        kinds=(
            ("job_claimed", "job_claimed"),
            ("job_admitted", "job_admitted"),
            ("claim_renewed", "claim_renewed"),
            ("job_released", "job_released"),
            ("claim_expired", "claim_expired"),
            ("claim_refused", "claim_refused"),
            ("job_acked", "job_acked"),
            ("job_purged", "job_purged"),
            ("job_dead", "job_dead"),
        ),
    ),
    Topic(
        name="worker.{queue}.responses",
        role=TopicRole.QUEUE,
        partitions=1,
        key="job id",
        doc="Handler outcomes, with claim id.",
        kinds=(("job_response", "job_response"),),
    ),
)

POOL_TOPICS: tuple[Topic, ...] = (
    Topic(
        name="lifecycle.pool.requests",
        role=TopicRole.MAILBOX,
        retention=RetentionRule.MAILBOX,
        key="pool id",
        doc="Mailbox of pools.",
    ),
    Topic(
        name="lifecycle.pool.audit",
        role=TopicRole.OUTPUT,
        key="pool id",
        doc="Submissions, dequeues, drops and completions.",
    ),
)

TURN_TOPICS: tuple[Topic, ...] = (
    Topic(
        name="agent_turns",
        role=TopicRole.REQUEST,
        partitions=PartitionRule.TURNS,
        key="session:<id>",
        doc="Turn envelopes; group agent-dispatch.",
        kinds=(("agent_turn", "agent_turn"),),
    ),
    Topic(
        name="agent.turns.claims",
        role=TopicRole.OUTPUT,
        partitions=PartitionRule.TURNS,
        key="job id",
        doc="Claims and ends of turns, in the same partition number as the turn.",
        co_partitioned_with="agent_turns",
        kinds=(
            ("turn_claimed", "turn_claimed"),
            ("turn_claim_released", "turn_claim_released"),
            ("turn_finished", "turn_finished"),
        ),
    ),
    *(
        Topic(
            name=name,
            role=TopicRole.CATALOG,
            partitions=PartitionRule.TURNS,
            cleanup=Cleanup.COMPACT,
            retention=RetentionRule.FOREVER,
            key=key,
            doc=doc,
            co_partitioned_with="agent_turns",
            kinds=tuple((kind, kind) for kind in kinds),
        )
        for name, key, doc, kinds in (
            (
                "agent.sessions",
                "session:<id>, or desired:<id>",
                "Sessions, and what people want of them, in the same partition number as the turn.",
                ("agent_session", "agent_session_desired"),
            ),
            (
                "agent.jobs",
                "goal:<id>, or job:<id>",
                "Goals and orchestrator tasks, in the same partition number as the turn.",
                ("agent_goal", "agent_job"),
            ),
        )
    ),
    Topic(
        name="agent.turns.dlq",
        role=TopicRole.OUTPUT,
        partitions=PartitionRule.TURNS,
        key="position of the turn",
        doc="Poison turns with their bytes and position, in the same partition number as the turn.",
        co_partitioned_with="agent_turns",
        kinds=(("turn_dead_lettered", "turn_dead_lettered"),),
    ),
    Topic(
        name="fleet.workers",
        role=TopicRole.CATALOG,
        cleanup=Cleanup.COMPACT,
        retention=RetentionRule.FOREVER,
        partitions=1,
        key="worker id",
        doc="Heartbeats of workers.",
        kinds=(("fleet_worker", "fleet_worker"),),
    ),
)

TURN_RECORDS = tuple(
    topic.name for topic in TURN_TOPICS if topic.co_partitioned_with == "agent_turns"
)
"""The topics about turns that share partition numbers with them."""
