"""The records of the application as types: what `Codec.decode` returns and `Codec.encode` takes.

Generated from `schemas/*.avsc` by `python -m schemas.generate`: change those, not this file.  Every
field is there after decoding; one with a default may be left out of a value that is encoded.
Sequences decode as lists and mappings as dicts; neither is ever changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

AgentJobStatus = Literal[
    "pending",
    "running",
    "paused",
    "completed",
    "failed",
    "cancelled",
    "orphaned",
    "unknown",
]
AgentSessionStatus = Literal[
    "queued",
    "running",
    "idle",
    "paused",
    "completed",
    "failed",
    "cancelled",
    "unknown",
]
AgentTurnKind = Literal["goal_loop", "orchestrator_task", "unknown"]
ApplyAnswer = Literal["unchanged", "conflict", "invalid"]
Backoff = Literal["svix", "immediate", "linear", "exponential"]
BindingSource = Literal["manifest", "dynamic", "unknown"]
BindingState = Literal["registering", "active", "draining", "terminated", "unknown"]
ChannelScope = Literal["tenant", "session", "pipeline", "unknown"]
CircuitChange = Literal["opened", "probe", "closed", "untested", "unknown"]
CircuitState = Literal["open", "half_open", "closed", "unknown"]
ClaimRequest = Literal["ack", "renew", "release", "gates", "unknown"]
DeathReason = Literal["max_deliveries", "queue_full", "gate_full", "unknown"]
DispatchStatus = Literal[
    "invoked",
    "running",
    "waiting",
    "returned",
    "gated",
    "parked",
    "evaluating",
    "deferred",
    "unknown",
]
ErrorClass = Literal[
    "none",
    "handler_error",
    "handler_panic",
    "handler_timeout",
    "terminal",
    "auth_failed",
    "provider_5xx",
    "predicate_panic",
    "budget_exhausted",
    "unresolved",
    "invoker_lost",
    "result_too_large",
    "unknown",
]
FairnessDimension = Literal["tenant", "binding", "trigger_id", "tenant_and_binding", "unknown"]
GateVerdict = Literal["admitted", "delayed", "skipped", "lost", "unknown"]
InvocationOutcome = Literal[
    "success",
    "failed",
    "timeout",
    "denied",
    "cancelled",
    "interrupted",
    "unresolved",
    "result_too_large",
    "unknown",
]
InvokePurpose = Literal["handler", "predicate", "unknown"]
MissedTicks = Literal["last", "skip", "all", "unknown"]
QuarantineCode = Literal[
    "undecodable",
    "unknown_kind",
    "oversized",
    "rejected",
    "skipped",
    "unknown",
    "timer_skipped",
]
RefusalReason = Literal["not_claimed", "superseded", "other_holder", "unknown_job", "unknown"]
ResponseOutcome = Literal[
    "none",
    "succeeded",
    "skipped",
    "failed",
    "dlq",
    "cancelled",
    "interrupted",
    "unknown",
]
SchedulerFairnessKey = Literal["tenant", "binding", "trigger_id", "tenant_and_binding", "unknown"]
SchedulerStrategy = Literal["fifo", "drr", "unknown"]
SignatureState = Literal["unsigned", "verified", "failed"]
StarvationMode = Literal["job", "key", "unknown"]
TurnOutcome = Literal[
    "completed",
    "failed",
    "skipped",
    "expired",
    "rejected",
    "interrupted",
    "unknown",
]
TurnPolicy = Literal["enqueue", "reject", "interrupt"]
TurnPriority = Literal["urgent", "high", "normal", "low"]
TurnReleaseReason = Literal["handover", "shutdown", "interrupted", "unknown"]


class AckRequested(TypedDict):
    """A worker has finished jobs: each of them leaves the queue if the claim still counts."""

    queue: str
    consumer_id: str
    incarnation: str
    acks: Sequence[ClaimedJob]


class ActionGraphEdge(TypedDict):
    """An edge of an event's action graph."""

    from_id: str
    to_id: str
    kind: str
    label: str | None


class ActionGraphNode(TypedDict):
    """A node of an event's action graph; a later one of the same id replaces it."""

    id: str
    label: str
    kind: str
    status: str
    outcome: str
    trace_id: str | None
    stage_id: str | None
    node_id: str | None
    worker_id: str | None
    run_id: str | None
    run_path: str | None
    metadata: Mapping[str, str]


class ActionGraphObservability(TypedDict):
    """Nodes and edges in the shared form."""

    schema_version: int
    action_graph_nodes: Sequence[ActionGraphNode]
    action_graph_edges: Sequence[ActionGraphEdge]


class ActionGraphUpdate(TypedDict):
    """What one step of a dispatch adds to the action graph of its event."""

    source: str
    trace_id: str | None
    event_id: str
    observability: ActionGraphObservability
    context: Mapping[str, str]


class AgentGoal(TypedDict):
    """The record AgentGoal.

    A goal as it stands. Created by the API; from then on written by the owner of its partition, and
    by the API again where it has ended or is paused.
    """

    goal_id: str
    session_id: str
    job_id: str
    tenant: str
    status: AgentJobStatus
    agent_name: str
    goal_spec: GoalSpec
    owner_host: str
    claim_unix_ms: int | None
    dispatch_host: str
    executed_by: str
    fence: int
    attempt: int
    iteration_count: int
    iterations: Sequence[GoalIteration]
    result: str | None
    error: str | None
    created_at_ms: int
    updated_at_ms: int


class AgentJob(TypedDict):
    """The record AgentJob.

    An orchestrator task as it stands. Created by the API; from then on written by the owner of its
    partition.
    """

    job_id: str
    session_id: str
    tenant: str
    agent_name: str
    description: str
    dependencies: Sequence[str]
    status: AgentJobStatus
    claimed_by: str
    claim_unix_ms: int | None
    dispatch_host: str
    executed_by: str
    fence: int
    attempt: int
    result: str | None
    error: str | None
    created_at_ms: int
    updated_at_ms: int


class AgentSession(TypedDict):
    """The record AgentSession.

    A session as it stands. Created by the API; from then on written by the owner of its partition.
    """

    session_id: str
    tenant: str
    domain: str
    status: AgentSessionStatus
    background: bool
    needs_input: bool
    metadata_json: str
    said: Sequence[SessionUtterance]
    said_count: int
    created_at_ms: int
    updated_at_ms: int


class AgentSessionDesired(TypedDict):
    """The record AgentSessionDesired.

    What people want of a session. Written by the API alone, under a key of its own, and read before
    each iteration.
    """

    session_id: str
    pause_requested: bool
    kill_requested: bool
    requested_by: str
    reason: str
    requested_at_ms: int


class AgentTurn(TypedDict):
    """The record AgentTurn.

    A turn of a session, on its way to a worker: references, never the body. The same topic takes it
    as a flat JSON object.
    """

    job_id: str
    session_id: str
    kind: AgentTurnKind
    payload_ref: str
    agent_name: str
    tenant: str
    priority: TurnPriority
    deadline_unix_ms: int | None
    attempt: int
    when_busy: TurnPolicy
    enqueued_at_ms: int


class ApplyAnswered(TypedDict):
    """The registry's answer to an apply that published nothing."""

    apply_id: str
    answer: ApplyAnswer
    revision: int
    reason: str


class AttemptEntry(TypedDict):
    """One attempt in a dispatch's history."""

    attempt: int
    outcome: str
    error: str | None
    started_at_ms: int
    completed_at_ms: int


class AttemptRecorded(TypedDict):
    """One finished attempt."""

    trigger_id: str
    binding_key: str
    event_id: str
    dispatch_id: str
    attempt: int
    handler_kind: str
    started_at: str
    completed_at: str
    outcome: str
    error_msg: str | None
    replay_of_event_id: str | None


class BindingDefinition(TypedDict):
    """One version of a trigger binding, as published by the registry."""

    trigger_id: str
    version: int
    binding_key: str
    namespace: str
    kind: str
    provider: str
    events: Sequence[str]
    handler: str
    handler_kind: str
    target_uri: str
    retry: RetryPolicy
    fingerprint: str
    definition: str


class BindingEnded(TypedDict):
    """The record BindingEnded.

    A dispatch partition's word, to the registry, that a drained binding has nothing left in flight
    there.
    """

    binding_key: str
    revision: int
    partition: int
    partitions: int


class BreakerOpened(TypedDict):
    """A dispatch partition's word to the others that a predicate is left alone."""

    binding_key: str
    partition: int
    failures: int
    until_ms: int


class BudgetDeferred(TypedDict):
    """A dispatch waits until its budget is renewed."""

    event_id: str
    dispatch_id: str
    trigger_id: str
    binding_key: str
    handler_kind: str
    target_uri: str
    reason: str
    retry_at: str
    replay_of_event_id: str | None


class BudgetSpent(TypedDict):
    """A dispatch partition's word to the others on what was spent there."""

    scope: str
    partition: int
    day_ms: int
    hour_ms: int
    micros: int


class CancelInvocation(TypedDict):
    """An intent: whoever runs this attempt shall stop it."""

    dispatch_id: str
    attempt: int
    fence: int
    home_partition: int
    reason: str


class CheckpointPart(TypedDict):
    """One part of a partition's full rows."""

    stage: str
    partition: int
    seq: int
    next_offset: int
    now_ms: int
    chain: bytes
    state_hash: bytes
    part: int
    parts: int
    rows: Sequence[CheckpointRow]


class CheckpointRow(TypedDict):
    """One row."""

    key: bytes
    value: bytes


class CircuitChanged(TypedDict):
    """A dispatch partition's word to the others on a destination's circuit."""

    destination: str
    episode: str
    change: CircuitChange
    partition: int
    until_ms: int
    passes: int


class CircuitEpisode(TypedDict):
    """A circuit that some partition opened and has not closed yet."""

    id: str
    until_ms: int


class ClaimExpired(TypedDict):
    """A claim has run out; the job is ready again, unless it has been delivered too often."""

    queue: str
    job_event_id: str
    claim_id: str
    consumer_id: str
    fence: int
    expired_at_ms: int


class ClaimRef(TypedDict):
    """A claim that a worker names."""

    queue: str
    job_event_id: str
    claim_id: str


class ClaimRefused(TypedDict):
    """A worker's word about a claim that is not, or no longer, its own."""

    queue: str
    job_event_id: str
    claim_id: str
    consumer_id: str
    request: ClaimRequest
    reason: RefusalReason
    current_claim_id: str | None
    refused_at_ms: int


class ClaimRenewed(TypedDict):
    """A claim lasts longer."""

    queue: str
    job_event_id: str
    claim_id: str
    consumer_id: str
    fence: int
    renewed_at_ms: int
    expires_at_ms: int


class ClaimedJob(TypedDict):
    """A claim of a queue that its request names."""

    job_event_id: str
    claim_id: str


class ConsumerGates(TypedDict):
    """The gates of one trigger of a consumer manifest."""

    trigger_id: str
    definition: str


class ConsumerRegistered(TypedDict):
    """The record ConsumerRegistered.

    A worker says which gates its manifest declares for the jobs of a queue. The last word about a
    queue stands, from then on.
    """

    queue: str
    consumer_id: str
    digest: str
    gates: Sequence[ConsumerGates]


class DedupeClaim(TypedDict):
    """An event was the first with a value of its trigger's `dedupe_key`."""

    binding_id: str
    dedupe_key: str
    event_id: str
    dispatch_id: str
    expires_at_ms: int


class DispatchCancelRequested(TypedDict):
    """An operator's word: the dispatch of this event by this binding shall end as cancelled."""

    binding_key: str
    event_id: str
    requested_at: str
    requested_by: str | None
    audit_id: str | None


class DlqDiscardRequested(TypedDict):
    """An operator's word: this dead letter needs no delivery."""

    entry_id: str
    requested_at: str
    requested_by: str | None
    audit_id: str | None


class DlqEntry(TypedDict):
    """What became of a dead letter: the operators' view, one record a change."""

    entry_id: str
    event_id: str
    trigger_id: str
    binding_key: str
    provider: str
    event_kind: str
    state: str
    status: str
    reason: str
    error: str
    error_class: str
    replays: int
    replaying: Sequence[str]
    history: Sequence[DlqNote]
    replay_event_id: str | None
    requested_by: str | None
    audit_id: str | None


class DlqMoved(TypedDict):
    """The record DlqMoved.

    A dispatch that could not be delivered, with everything needed to deliver it again: its terminal
    record.
    """

    entry_id: str
    dispatch_id: str
    trigger_id: str
    binding_key: str
    event: TriggerEvent
    attempt_count: int
    final_error: str
    error_class: str
    reason: str
    attempts: Sequence[AttemptEntry]
    replay_of_event_id: str | None


class DlqNote(TypedDict):
    """One line of a dead letter's history."""

    at_ms: int
    status: str
    event_id: str
    attempts: int
    error: str


class DlqReplayed(TypedDict):
    """How far the replay of a dead letter is, told to the partition that keeps its entry."""

    entry_id: str
    event_id: str
    replay_of_event_id: str
    outcome: str
    trigger_id: str
    binding_key: str
    provider: str
    event_kind: str
    attempts: int
    reason: str
    error: str
    error_class: str


class Emission(TypedDict):
    """What a handler emits to a channel; it becomes an event once the attempt has succeeded."""

    channel: str
    scope: ChannelScope
    scope_id: str
    payload: str
    dedupe_key: str | None


class EventIngested(TypedDict):
    """An envelope: one accepted event on its way to the inbox."""

    trigger_id: str | None
    binding_version: int | None
    replay_of_event_id: str | None
    webhook_path: str | None
    event: TriggerEvent
    dlq_entry_id: str | None


class EventMatched(TypedDict):
    """The inbox's word that an event goes to a binding: the start of a dispatch."""

    dispatch_id: str
    trigger_id: str
    binding_key: str
    accepted_at_ms: int
    keys: Mapping[str, str]
    replay_of_event_id: str | None
    event: TriggerEvent
    dlq_entry_id: str | None


class FairnessState(TypedDict):
    """How one fairness key of a queue stands."""

    fairness_key: str
    weight: int
    deficit: int
    in_flight: int
    selected_total: int
    deferred_total: int
    starvation_promotions_total: int
    ready_jobs: int
    oldest_ready_at_ms: int | None


class FleetWorker(TypedDict):
    """Heartbeat of a worker that runs turns: as of the last one."""

    worker_id: str
    token: str
    host: str
    capacity: int
    active_sessions: Sequence[str]
    queue_backend: str
    partitions: Sequence[int]
    draining: bool
    started_at_ms: int
    last_heartbeat_ms: int


class GateAnswer(TypedDict):
    """What the gates said of a job that a worker has asked for."""

    claim_id: str
    answer: GateVerdict


class GateDecision(TypedDict):
    """What a gate decided about one dispatch."""

    gate: str
    dispatch_id: str
    event_id: str
    token: int
    size: int | None
    count: int | None
    max: int | None
    delay_ms: int | None


class GatePass(TypedDict):
    """A limit that let a job pass."""

    gate: str
    key: str
    max: int
    period_ms: int | None
    at_ms: int


class GatedJob(TypedDict):
    """A job whose trigger has gates, in the hands of a worker that asks for it."""

    job_event_id: str
    claim_id: str
    trigger_id: str
    dispatch_id: str
    keys: Mapping[str, str]


class GatesAnswered(TypedDict):
    """What the gates said of the jobs that a worker has asked for."""

    consumer_id: str
    incarnation: str
    queue: str
    answers: Sequence[GateAnswer]


class GatesRequested(TypedDict):
    """A worker asks whether jobs may start that it has claimed: their trigger has gates."""

    queue: str
    consumer_id: str
    incarnation: str
    jobs: Sequence[GatedJob]


class GoalIteration(TypedDict):
    """One round of work on a goal."""

    number: int
    summary: str
    validated: bool | None
    exit_code: int | None
    output: str
    started_at_ms: int
    ended_at_ms: int


class GoalSpec(TypedDict):
    """What a goal is, as it was asked for."""

    objective: str
    end_state: str
    validation_cmd: str | None
    max_iterations: int
    constraints: Sequence[str]


class GrantedJob(TypedDict):
    """A job in the hands of a worker."""

    job_event_id: str
    claim_id: str
    fence: int
    delivery: int
    occurred_at_ms: int
    expires_at_ms: int
    traceparent: str | None
    admitted: bool
    fairness_key: str
    body: bytes


class HeldClaim(TypedDict):
    """A claim in force."""

    job_event_id: str
    fence: int
    delivery: int
    expires_at_ms: int


class InvocationCompleted(TypedDict):
    """An executor's word on how an invocation ended."""

    dispatch_id: str
    attempt: int
    fence: int
    invoker_id: str
    outcome: InvocationOutcome
    result: str | None
    error: str | None
    error_class: ErrorClass
    retry_after_ms: int | None
    usage: Usage | None
    emissions: Sequence[Emission]
    started_at_ms: int
    completed_at_ms: int


class InvocationsRunning(TypedDict):
    """An invoker's word that it runs these invocations: starts or renews their leases."""

    invoker_id: str
    running: Sequence[RunningInvocation]


class Invoke(TypedDict):
    """An intent: run this handler, or this predicate, with this event."""

    dispatch_id: str
    attempt_id: str
    attempt: int
    fence: int
    home_partition: int
    trigger_id: str
    binding_key: str
    handler: str
    accepted_at_ms: int
    purpose: InvokePurpose
    timeout_ms: int | None
    replay_of_event_id: str | None
    event: TriggerEvent


class JobAcked(TypedDict):
    """A job is done."""

    queue: str
    job_event_id: str
    claim_id: str
    consumer_id: str
    fence: int
    skipped_by: str | None
    acked_at_ms: int


class JobAdmitted(TypedDict):
    """A claimed job has passed the gates of its trigger: its worker starts it."""

    queue: str
    job_event_id: str
    claim_id: str
    consumer_id: str
    trigger_id: str
    passed: Sequence[GatePass]
    admitted_at_ms: int


class JobClaimed(TypedDict):
    """A job is a worker's until the claim expires."""

    queue: str
    job_event_id: str
    claim_id: str
    consumer_id: str
    fence: int
    incarnation: str
    delivery: int
    fairness_key: str
    promoted: bool
    claimed_at_ms: int
    expires_at_ms: int


class JobDead(TypedDict):
    """A job leaves the queue undone. What it was is in this record."""

    queue: str
    job_event_id: str
    reason: DeathReason
    deliveries: int
    trigger_id: str
    event_id: str
    occurred_at_ms: int
    dead_at_ms: int
    body: bytes


class JobPurged(TypedDict):
    """An operator removed a job that nobody had claimed."""

    queue: str
    job_event_id: str
    purged_by: str
    reason: str | None
    purged_at_ms: int


class JobRejected(TypedDict):
    """The record JobRejected.

    A record of a queue's topic that is no job. The scheduler quarantines it under its own position.
    """

    queue: str
    shard: int | None
    shards: int
    topic: str
    source_partition: int
    offset: int
    timestamp_ms: int
    oversized: bool
    reason: str
    kind: str | None
    key: bytes | None
    raw: bytes
    raw_size: int
    raw_sha256: str


class JobReleased(TypedDict):
    """A claimed job is ready again before its claim has expired."""

    queue: str
    job_event_id: str
    claim_id: str
    consumer_id: str
    fence: int
    reason: str | None
    not_before_ms: int | None
    released_at_ms: int


class JobResponse(TypedDict):
    """What a handler made of a job."""

    queue: str
    job_event_id: str
    claim_id: str
    consumer_id: str
    trigger_id: str | None
    event_id: str | None
    dispatch_id: str | None
    handled_at_ms: int
    outcome: ResponseOutcome
    result: str | None
    error: str | None
    claim_lost: bool
    skipped_by: str | None


class JobsGranted(TypedDict):
    """Jobs that a worker has claimed by its capacity, with their bodies."""

    consumer_id: str
    incarnation: str
    queue: str
    granted_at_ms: int
    claim_ttl_ms: int
    gates_digest: str
    jobs: Sequence[GrantedJob]


class JobsReady(TypedDict):
    """The record JobsReady.

    Jobs of one partition of a queue's topic, in their order: all of them from `first_offset` up to,
    not including, `next_offset` that belong to this queue or shard.
    """

    queue: str
    shard: int | None
    shards: int
    source_partition: int
    first_offset: int
    next_offset: int
    jobs: Sequence[ReadyJob]


class JobsWaiting(TypedDict):
    """The record JobsWaiting.

    To a worker that divides its room among partitions: jobs wait in this one, and it has no room
    for them here.
    """

    consumer_id: str
    incarnation: str
    partition: int
    weight: int


class JournalEntry(TypedDict):
    """What one stage transaction did; the chain makes tampering visible."""

    stage: str
    fold: str
    partition: int
    seq: int
    first_offset: int
    next_offset: int
    now_ms: int
    records: int
    outputs: int
    rows: int
    skipped: Sequence[int]
    skipped_timers: Sequence[str]
    chain: bytes
    state_hash: bytes


class LifecycleCircuitChanged(TypedDict):
    """Lifecycle: a destination's circuit opened, is probed, or closed."""

    destination: str
    state: CircuitState
    partition: int
    failures: int
    until_ms: int | None
    parked: int


class LifecycleCronTicksMissed(TypedDict):
    """Lifecycle: ticks of a cron trigger that passed and do not fire."""

    trigger_id: str
    binding_key: str
    missed: str
    count: int
    first_tick_at: str
    last_tick_at: str


class LifecycleDispatchCancelled(TypedDict):
    """Lifecycle: a dispatch ended because somebody cancelled it."""

    event_id: str
    dispatch_id: str
    attempt_count: int
    error: str
    replay_of_event_id: str | None


class LifecycleDispatchFailed(TypedDict):
    """Lifecycle: an attempt failed."""

    event_id: str
    dispatch_id: str
    attempt: int
    handler_kind: str
    target_uri: str
    error: str
    replay_of_event_id: str | None


class LifecycleDispatchParked(TypedDict):
    """Lifecycle: a dispatch waits because the circuit of its destination is open."""

    event_id: str
    dispatch_id: str
    trigger_id: str
    destination: str
    attempt: int
    until_ms: int
    replay_of_event_id: str | None


class LifecycleDispatchStarted(TypedDict):
    """Lifecycle: an attempt started."""

    event_id: str
    dispatch_id: str
    attempt: int
    handler_kind: str
    target_uri: str
    replay_of_event_id: str | None


class LifecycleDispatchSucceeded(TypedDict):
    """Lifecycle: a dispatch succeeded."""

    event_id: str
    dispatch_id: str
    attempt: int
    handler_kind: str
    target_uri: str
    result: str | None
    replay_of_event_id: str | None


class LifecycleDlqMoved(TypedDict):
    """Lifecycle: a dispatch ended in the dead letter queue."""

    event_id: str
    dispatch_id: str
    attempt_count: int
    final_error: str
    reason: str
    replay_of_event_id: str | None


class LifecycleEventDeduplicated(TypedDict):
    """The record LifecycleEventDeduplicated.

    Lifecycle: the event, or its delivery, was seen within the event id window; it was dropped.
    """

    event_id: str
    provider: str
    dedupe_key: str | None
    first_event_id: str


class LifecycleEventFiltered(TypedDict):
    """The record LifecycleEventFiltered.

    Lifecycle: a binding's filter keeps the event out; the terminal record of the event for that
    binding.
    """

    event_id: str
    trigger_id: str
    binding_key: str
    replay_of_event_id: str | None


class LifecycleEventUnmatched(TypedDict):
    """Lifecycle: no binding takes the event; its terminal record."""

    event_id: str
    provider: str
    event_kind: str
    trigger_id: str | None
    replay_of_event_id: str | None


class LifecycleInvocationLost(TypedDict):
    """The record LifecycleInvocationLost.

    Lifecycle: a lease ended without a word; the same attempt is issued again under the next fence.
    """

    event_id: str
    dispatch_id: str
    attempt: int
    fence: int
    invoker_id: str
    losses: int


class LifecycleInvocationReissued(TypedDict):
    """The record LifecycleInvocationReissued.

    Lifecycle: an invoker gave an invocation back; the same attempt is issued again, uncounted.
    """

    event_id: str
    dispatch_id: str
    attempt: int
    fence: int
    reason: str
    delay_ms: int


class LifecycleOutcomeRefused(TypedDict):
    """The record LifecycleOutcomeRefused.

    Lifecycle: an executor's word came from a holder whose fence is old, or after the end; it
    changed nothing.
    """

    dispatch_id: str
    attempt: int
    fence: int
    invoker_id: str
    current_fence: int | None
    outcome: str
    reason: str


class LifecyclePredicateBudgetExceeded(TypedDict):
    """The record LifecyclePredicateBudgetExceeded.

    Lifecycle: a binding's budget does not allow another evaluation, or one took more than it may.
    """

    event_id: str
    dispatch_id: str
    trigger_id: str
    reason: str
    strategy: str
    expected_cost_usd_micros: int
    cost_usd_micros: int
    tokens: int
    daily_limit_usd_micros: int | None
    hourly_limit_usd_micros: int | None
    cost_today_usd_micros: int
    cost_hour_usd_micros: int
    replay_of_event_id: str | None


class LifecyclePredicateEvaluated(TypedDict):
    """Lifecycle: a binding's predicate was evaluated over an event."""

    event_id: str
    dispatch_id: str
    trigger_id: str
    predicate: str
    result: bool
    reason: str | None
    cost_usd_micros: int
    tokens: int
    latency_ms: int
    cached: bool
    on_budget_exhausted: str | None
    replay_of_event_id: str | None
    binding_key: str


class LifecycleRetryScheduled(TypedDict):
    """Lifecycle: a failed attempt will be repeated."""

    event_id: str
    dispatch_id: str
    attempt: int
    delay_ms: int
    error: str
    replay_of_event_id: str | None


class LifecycleStateTransition(TypedDict):
    """Lifecycle: a binding version changed its state."""

    id: str
    binding_key: str
    version: int
    provider: str
    kind: str
    source: str
    handler_kind: str
    definition_fingerprint: str
    from_state: str | None
    to_state: str
    namespace: str
    revision: int


class ManifestApplied(TypedDict):
    """Somebody asks the registry to make a manifest the truth for its namespace."""

    apply_id: str
    namespace: str
    expected_revision: int
    bindings: Sequence[BindingDefinition]
    policy: Policy | None
    applied_by: str


class NothingReady(TypedDict):
    """A worker that takes what there is has it all: no job of the queue is ready for it."""

    consumer_id: str
    incarnation: str
    queue: str
    seq: int


class OutboxDispatchCancelled(TypedDict):
    """A dispatch ended because somebody cancelled it: its terminal record."""

    event_id: str
    dispatch_id: str
    trigger_id: str
    binding_key: str
    handler_kind: str
    target_uri: str
    attempt: int
    error: str
    replay_of_event_id: str | None


class OutboxDispatchFailed(TypedDict):
    """An attempt failed; the dispatch may go on."""

    event_id: str
    dispatch_id: str
    trigger_id: str
    binding_key: str
    handler_kind: str
    target_uri: str
    attempt: int
    error: str
    replay_of_event_id: str | None


class OutboxDispatchSkipped(TypedDict):
    """A dispatch ended without an attempt: its terminal record."""

    event_id: str
    dispatch_id: str
    trigger_id: str
    binding_key: str
    handler_kind: str
    target_uri: str
    skip_stage: str
    detail: str
    replay_of_event_id: str | None


class OutboxDispatchStarted(TypedDict):
    """An attempt starts."""

    event_id: str
    dispatch_id: str
    trigger_id: str
    binding_key: str
    handler_kind: str
    target_uri: str
    attempt: int
    replay_of_event_id: str | None


class OutboxDispatchSucceeded(TypedDict):
    """A dispatch ended well: its terminal record."""

    event_id: str
    dispatch_id: str
    trigger_id: str
    binding_key: str
    handler_kind: str
    target_uri: str
    attempt: int
    result: str | None
    replay_of_event_id: str | None


class PartitionHalted(TypedDict):
    """The record PartitionHalted.

    A stage stands still in one partition, since its fold raised. It is so for as long as the stage
    has committed nothing beyond that record.
    """

    stage: str
    fold: str
    topic: str
    partition: int
    offset: int
    timer: str | None
    reason: str
    member: str


class Policy(TypedDict):
    """The record Policy.

    Settings that folds read; they travel in the log, so that a replay sees those that were in
    force.
    """

    event_id_window_ms: int
    dedupe_rows_max: int
    lease_ms: int
    cancel_ttl_ms: int
    dlq_ttl_ms: int
    action_graph: bool
    pump_max_outstanding: int
    scheduler: SchedulerPolicy | None


class PumpCursor(TypedDict):
    """How far a partition of a mailbox has come."""

    partition: int
    next_offset: int


class PumpReported(TypedDict):
    """How the pump of one member stands; nothing is decided by it."""

    topic: str
    member: str
    outstanding: int | None
    max_outstanding: int | None
    invokers: int | None
    paused_ms: int | None
    admitted: int | None
    cursors: Sequence[PumpCursor]


class PurgeAnswered(TypedDict):
    """What a purge came to."""

    queue: str
    request_id: str
    purged: int
    purged_at_ms: int


class PurgeRequested(TypedDict):
    """An operator removes the jobs of a queue that nobody has claimed."""

    queue: str
    request_id: str
    purged_by: str
    reason: str | None
    deliveries_partition: int | None


class QueueConfigured(TypedDict):
    """The record QueueConfigured.

    What a queue was created with. The first word about a queue stands: its jobs are dealt out by
    it.
    """

    queue: str
    shards: int
    shard_by: FairnessDimension
    numbers: Sequence[int]
    configured_at: str
    configured_by: str


class QueueSeen(TypedDict):
    """A trigger names a worker queue."""

    queue: str


class QueueSummary(TypedDict):
    """How a queue stands, or a shard of it. The key is `summary:` and the queue's or shard's."""

    queue: str
    shard: int | None
    shards: int
    partition: int
    folded_offset: int
    at_ms: int
    ready: int
    delayed: int
    in_flight: int
    acked: int
    purged: int
    dead: int
    oldest_ready_at_ms: int | None
    workers: int
    policy: SchedulerPolicy
    policy_revision: int
    rounds_completed: int
    starvation_promotions_total: int
    keys: Sequence[FairnessState]
    other_keys: FairnessState | None
    keys_total: int
    relayed: Sequence[RelayedOffset]
    request_id: str | None


class ReadyJob(TypedDict):
    """The record ReadyJob.

    A job as the relay read it from its queue's topic; its body is not looked into again before the
    worker.
    """

    offset: int
    occurred_at_ms: int
    priority: str
    tenant_id: str | None
    binding_key: str
    trigger_id: str
    event_id: str
    traceparent: str | None
    body: bytes


class RecordQuarantined(TypedDict):
    """A record that a stage could not use, kept with its position."""

    stage: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    code: QuarantineCode
    reason: str
    kind: str | None
    key: bytes | None
    raw: bytes | None
    raw_size: int
    raw_sha256: str


class RelayedOffset(TypedDict):
    """How far a queue's topic has been folded."""

    source_partition: int
    next_offset: int


class ReleaseRequested(TypedDict):
    """A worker gives jobs back without having finished them."""

    queue: str
    consumer_id: str
    incarnation: str
    claims: Sequence[ClaimedJob]
    reason: str | None


class RenewRequested(TypedDict):
    """A worker is still at work on what it claimed."""

    consumer_id: str
    incarnation: str
    claim_ttl_ms: int
    claims: Sequence[ClaimRef]


class RetryPolicy(TypedDict):
    """How often and how far apart a failed attempt is repeated."""

    backoff: Backoff
    max_attempts: int
    delay_ms: int
    cap_ms: int


class RetryScheduled(TypedDict):
    """A failed attempt will be repeated."""

    event_id: str
    dispatch_id: str
    attempt: int
    trigger_id: str
    binding_key: str
    delay_ms: int
    error: str
    replay_of_event_id: str | None


class RevisionBroadcast(TypedDict):
    """The broadcaster's word that every partition of every mailbox has acknowledged a revision."""

    revision: int


class RevisionPublished(TypedDict):
    """The record RevisionPublished.

    The registry's word: bindings that enter and leave force. Broadcast to every mailbox partition
    that needs it.
    """

    revision: int
    namespace: str
    added: Sequence[BindingDefinition]
    drained: Sequence[str]
    policy: Policy
    apply_id: str


class RevisionReached(TypedDict):
    """The record RevisionReached.

    An inbox partition's word, to a dispatch partition, that no event under an older revision will
    follow.
    """

    revision: int
    inbox_partition: int
    inbox_partitions: int


class RowBinding(TypedDict):
    """Inbox: a binding version in force."""

    binding: BindingDefinition
    revision: int


class RowBudget(TypedDict):
    """What was spent against a budget, as far as a dispatch partition knows."""

    scope: str
    hour_ms: int
    hour_micros: int
    day_ms: int
    day_micros: int
    unreported_micros: int
    expires_at_ms: int


class RowCancel(TypedDict):
    """A cancel request whose dispatch has not come yet."""

    binding_key: str
    event_id: str
    reason: str
    expires_at_ms: int


class RowCircuit(TypedDict):
    """What a dispatch partition knows of a destination that fails."""

    destination: str
    failures: int
    episodes: Sequence[CircuitEpisode]
    own: str | None
    probe: str | None
    passes: int
    due_ms: int | None


class RowClaim(TypedDict):
    """A value of a trigger's `dedupe_key` that is claimed."""

    trigger_id: str
    dedupe_key: str
    event_id: str
    dispatch_id: str
    expires_at_ms: int


class RowConsumer(TypedDict):
    """The gates of a queue's consumers."""

    digest: str
    gates: Sequence[ConsumerGates]


class RowCron(TypedDict):
    """Inbox: the timer of a cron trigger, in the one partition that fires it."""

    trigger_id: str
    binding_key: str
    schedule: str
    timezone: str
    missed: MissedTicks
    considered_ms: int
    due_ms: int | None
    zone_rules: str


class RowDedupe(TypedDict):
    """How many repeats a partition has dropped, and what it remembers to know them by."""

    duplicates: int
    forgotten: int
    active: int


class RowDispatch(TypedDict):
    """A live dispatch."""

    dispatch_id: str
    trigger_id: str
    binding_key: str
    event_id: str
    replay_of_event_id: str | None
    tenant_id: str | None
    traceparent: str | None
    status: DispatchStatus
    attempt: int
    fence: int
    due_ms: int | None
    invoker_id: str | None
    losses: int
    returns: int
    accepted_at_ms: int
    attempts: Sequence[AttemptEntry]
    keys: Mapping[str, str]
    arrival: int
    rank: int
    gate: str | None
    holds: Sequence[str]
    since_ms: int
    body_bytes: int
    members: Sequence[str]
    cancelled: str | None
    reserved_micros: int
    deferrals: int
    dlq_entry_id: str | None
    trace_id: str
    event: TriggerEvent | None


class RowDispatchBinding(TypedDict):
    """Dispatch: a binding version and how far its draining is."""

    binding: BindingDefinition
    drained_at: int | None
    reached: Sequence[int]
    ended: bool


class RowDlq(TypedDict):
    """A dead letter that nobody has dealt with: an entry of the DLQ."""

    entry_id: str
    event_id: str
    trigger_id: str
    binding_key: str
    provider: str
    event_kind: str
    reason: str
    error: str
    error_class: str
    replays: int
    replaying: Sequence[str]
    history: Sequence[DlqNote]
    moved_at_ms: int
    expires_at_ms: int


class RowEvent(TypedDict):
    """The record RowEvent.

    The event of a live dispatch that is too large to be written again with each change of its row.
    """

    event: TriggerEvent


class RowFairnessKey(TypedDict):
    """A fairness key of a queue."""

    fairness_key: str
    dimension: str
    credit: int
    round: int
    selected: int
    deferred: int
    promotions: int
    served_at_ms: int
    capped_at: int | None
    forget_at_ms: int | None


class RowGated(TypedDict):
    """The record RowGated.

    A job that has met the gates of its trigger: what a worker found in its event, and how far it
    is.
    """

    trigger_id: str
    dispatch_id: str
    keys: Mapping[str, str]
    rank: int
    arrival: int
    since_ms: int
    gate: str | None
    again: bool
    passed: Sequence[GatePass]


class RowHolder(TypedDict):
    """The claims of one worker on one queue."""

    consumer_id: str
    claims: Sequence[HeldClaim]
    due_ms: int


class RowJob(TypedDict):
    """A job that is neither done, purged nor dead. It is written once."""

    occurred_at_ms: int
    priority: str
    tenant_id: str | None
    binding_key: str
    trigger_id: str
    event_id: str
    traceparent: str | None
    body: bytes


class RowPosition(TypedDict):
    """Where a partition's state stands: written by every transaction under a reserved key."""

    seq: int
    next_offset: int
    now_ms: int
    chain: bytes
    state_hash: bytes


class RowPredicate(TypedDict):
    """What a dispatch partition knows of a binding version's predicate."""

    binding_key: str
    failures: int
    open_until_ms: int
    samples: Sequence[int]


class RowProposal(TypedDict):
    """What an environment proposed last: the same again changes nothing."""

    policy: SchedulerPolicy


class RowQueue(TypedDict):
    """A queue, or a shard of it: what is counted and how far its topic is folded."""

    queue: str
    shard: int | None
    shards: int
    relayed: Sequence[RelayedOffset]
    rounds: int
    selects: int
    last_selected: str | None
    selected: int
    promotions: int
    acked: int
    purged: int
    dead: int
    forgotten_selected: int
    forgotten_deferred: int
    forgotten_promotions: int
    summary_due_ms: int | None
    summary_at_ms: int


class RowRegisteredBinding(TypedDict):
    """Registry: a binding version and its state."""

    binding: BindingDefinition
    state: BindingState
    source: BindingSource
    revision: int
    ended: Sequence[int]


class RowReturned(TypedDict):
    """A job that was claimed before and is not now: what must be remembered of it."""

    fence: int
    deliveries: int
    consumer_id: str
    incarnation: str
    open: bool
    parked: bool
    not_before_ms: int | None
    gated: bool


class RowRevision(TypedDict):
    """The last revision that a partition has folded, and the policy in force."""

    revision: int
    policy: Policy


class RowSeen(TypedDict):
    """Inbox: an event or delivery that was seen."""

    event_id: str
    expires_at_ms: int


class RowTurn(TypedDict):
    """Queue of this partition that was served last among several for one worker."""

    queue: str


class RowWindow(TypedDict):
    """The last starts of a rate limit's or throttle's gate key, which the row's key names."""

    starts: bytes
    planned: bytes
    expires_at_ms: int


class RowWorker(TypedDict):
    """A worker that takes jobs of this partition's queues."""

    consumer_id: str
    incarnation: str
    deliveries_partition: int
    queues: Sequence[str]
    slots: int
    claim_ttl_ms: int
    draining: bool
    once: bool
    seq: int
    answered_seq: int
    superseded: str
    missing: Sequence[str]
    coming: Sequence[str]
    due_ms: int


class RunningInvocation(TypedDict):
    """One invocation that is running."""

    dispatch_id: str
    attempt: int
    fence: int


class SchedulerPolicy(TypedDict):
    """How jobs are selected; in force for all queues."""

    strategy: SchedulerStrategy
    fairness_key: SchedulerFairnessKey
    quantum: int
    starvation_age_ms: int
    starvation_mode: StarvationMode
    max_concurrent_per_key: int
    default_weight: int
    weights: Mapping[str, int]
    max_deliveries: int
    max_waiting: int
    worker_ttl_ms: int


class SchedulerPolicyProposed(TypedDict):
    """A process that hosts the scheduler says what its environment wants of it."""

    request_id: str
    policy: SchedulerPolicy
    proposed_by: str


class SessionUtterance(TypedDict):
    """Something that was said in a session."""

    number: int
    role: str
    content: str
    at_ms: int


class SourceRejected(TypedDict):
    """The record SourceRejected.

    A record of a topic that is not ours, which cannot become an event. The inbox quarantines it
    under its own position.
    """

    trigger_id: str | None
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    oversized: bool
    reason: str
    kind: str | None
    key: bytes | None
    raw: bytes
    raw_size: int
    raw_sha256: str


class StageResume(TypedDict):
    """An operator's word that a halted partition shall try its record again."""

    stage: str
    partition: int
    requested_by: str


class StageSkip(TypedDict):
    """An operator's word that a stage shall pass over one record."""

    stage: str
    topic: str
    partition: int
    offset: int
    timer: str | None
    requested_by: str
    reason: str


class SummaryRequested(TypedDict):
    """Somebody wants to know how a queue stands."""

    queue: str
    request_id: str


class Tick(TypedDict):
    """Says that time has come: the only way time passes without traffic."""

    due_ms: int


class TriggerDispatch(TypedDict):
    """A job: an event that a trigger sent to a worker queue."""

    queue: str
    dispatch_id: str
    trigger_id: str
    binding_key: str
    binding_version: int
    priority: str
    replay_of_event_id: str | None
    event: TriggerEvent


class TriggerDrainRequested(TypedDict):
    """The record TriggerDrainRequested.

    Somebody asks that a trigger takes no new event, and ends once it has finished what it has.
    """

    request_id: str
    trigger_id: str
    dynamic_only: bool
    requested_by: str


class TriggerEvent(TypedDict):
    """A normalized event as a provider delivered it."""

    id: str
    provider: str
    kind: str
    received_at: str
    occurred_at: str | None
    dedupe_key: str | None
    trace_id: str
    tenant_id: str | None
    headers: Mapping[str, str]
    raw_body: bytes | None
    provider_payload: str
    signature_state: SignatureState
    signature_reason: str | None
    batch: Sequence[str] | None


class TriggerOperationAudit(TypedDict):
    """What an operator did, or would have done, to events and dispatches."""

    audit_id: str
    operation: str
    dry_run: bool
    filter: str | None
    requested_at: str
    requested_by: str | None
    matched_count: int
    requested_count: int
    skipped_count: int
    rate_limit: str | None
    targets: Sequence[str]
    accepted_from: str | None
    accepted_before: str | None
    only_for: str | None


class TriggerRegistered(TypedDict):
    """Somebody asks the registry to put a trigger in force that no manifest holds."""

    request_id: str
    namespace: str
    binding: BindingDefinition
    registered_by: str


class TurnClaimReleased(TypedDict):
    """A worker gave up a turn that it had begun: the next owner begins it again, at once."""

    job_id: str
    session_id: str
    turn_offset: int
    claimed_by: str
    fence: int
    reason: TurnReleaseReason
    released_at_ms: int


class TurnClaimed(TypedDict):
    """A worker began a turn. In the partition number of the turn, as all about it."""

    job_id: str
    session_id: str
    kind: AgentTurnKind
    payload_ref: str
    turn_offset: int
    attempt: int
    claimed_by: str
    dispatch_host: str
    fence: int
    claimed_at_ms: int


class TurnDeadLettered(TypedDict):
    """A record of `agent_turns` that can be no turn, kept before its offset moved."""

    partition: int
    offset: int
    timestamp_ms: int
    error: str
    job_id: str | None
    session_id: str | None
    key: bytes | None
    raw: bytes | None
    raw_size: int
    raw_sha256: str
    executed_by: str


class TurnFinished(TypedDict):
    """A turn has ended for good: it is never run again."""

    job_id: str
    session_id: str
    kind: AgentTurnKind
    payload_ref: str
    turn_offset: int
    outcome: TurnOutcome
    record_status: AgentJobStatus | None
    error: str | None
    executed_by: str
    fence: int
    attempt: int
    started_at_ms: int | None
    finished_at_ms: int


class Usage(TypedDict):
    """What one run of a handler or predicate has spent, by its own word."""

    cost_usd_micros: int
    tokens: int


class WorkerHeartbeat(TypedDict):
    """The record WorkerHeartbeat.

    A worker says what it could take, and which claims it has. To every partition of the mailbox
    that has one of its queues, with the queues and claims of that partition.
    """

    consumer_id: str
    incarnation: str
    deliveries_partition: int
    queues: Sequence[str]
    capacity: int
    claims: Sequence[ClaimRef]
    claim_ttl_ms: int
    draining: bool
    once: bool
    divided: bool
    seq: int
    granted_at_ms: int | None


class WorkerReplaced(TypedDict):
    """The record WorkerReplaced.

    To a worker whose name another start has taken since: what it had claimed is released, and
    nothing is granted to it.
    """

    consumer_id: str
    incarnation: str
