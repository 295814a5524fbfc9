"""The edges: where the world is met, and so what is written without being folded first.

Source: DESIGN "Roles".
"""

from __future__ import annotations

from topology.model import Edge
from topology.topics import GATE_TOPICS, LIFECYCLE, QUEUE_TOPICS, TURN_RECORDS

INGEST = Edge(
    name="ingest",
    reads=("triggers.registry", "trigger.inbox"),
    writes=("trigger.inbox.envelopes",),
    foreign_groups="harn.stream.",
    doc="Takes events from the world and answers after the broker's ack; reads topics of others.",
)

INVOKER = Edge(
    name="invoker",
    reads_in_group=("trigger.invocations",),
    reads=("trigger.invocations.cancels",),
    writes=("trigger.dispatches",),
    doc="Runs handlers and appends their outcomes.",
)

PUMP = Edge(
    name="pump",
    reads=INVOKER.reads_in_group,
    watched_groups=(INVOKER.group,),
    writes=(LIFECYCLE,),
    doc="Part of inbox: looks how far the invokers are behind, and holds inbox back meanwhile.",
)

BROADCASTER = Edge(
    name="broadcaster",
    reads=("triggers.registry",),
    writes=(
        "trigger.inbox.envelopes",
        "trigger.dispatches",
        "worker.requests",
        "triggers.registry",
    ),
    doc="Copies each revision into every mailbox partition that needs it.",
)

CANCELLER = Edge(
    name="canceller",
    reads_in_group=("trigger.cancel.requests",),
    writes=("trigger.dispatches",),
    doc="Copies each cancel request into every dispatch partition: one of them has the dispatch.",
)

RELAY = Edge(
    name="relay",
    reads_in_group=(QUEUE_TOPICS[0],),
    reads=("worker.queues",),
    writes=("worker.requests",),
    creates=QUEUE_TOPICS[1:],
    doc="Tells the scheduler of every queue's jobs, in their order, queue by queue.",
)

WORKER = Edge(
    name="worker",
    reads=("worker.deliveries", "worker.queues"),
    writes=("worker.requests", QUEUE_TOPICS[2]),
    doc="Runs the handlers of jobs that it was granted; answers, and says that they are done.",
)

PROPOSER = Edge(
    name="proposer",
    reads=("triggers.registry",),
    writes=("triggers.registry",),
    doc="Part of scheduler: says once what its environment wants of it.",
)

TURN_WORKER = Edge(
    name="turn-worker",
    reads_in_group=("agent_turns",),
    reads=("agent.turns.claims", "agent.sessions", "agent.jobs"),
    writes=(*TURN_RECORDS, "fleet.workers"),
    known_group="agent-dispatch",
    transactional=True,
    sets_group=True,
    doc="Runs the turns of sessions; what came of a turn is committed with its place in the topic.",
)

TURN_API = Edge(
    name="turn-api",
    reads=("agent.sessions", "agent.jobs", "fleet.workers"),
    writes=("agent_turns", "agent.sessions", "agent.jobs", "fleet.workers"),
    watched_groups=(TURN_WORKER.group,),
    doc="Creates goals and tasks, enqueues or runs their turns, and tells how they stand.",
)

OPERATOR = Edge(
    name="operator",
    reads=(
        "triggers.registry",
        "trigger.inbox.envelopes",
        "trigger.dispatches",
        "trigger.cancel.requests",
        "trigger.operations.audit",
        "trigger.attempts",
        "trigger.outbox",
        "trigger.dlq",
        "triggers.lifecycle",
        "observability.action_graph",
        "dispatch-dispatches-changelog",
        "worker.queues",
        "worker.requests",
        "worker.deliveries",
        LIFECYCLE,
        *GATE_TOPICS,
        *QUEUE_TOPICS,
        "agent_turns",
        *TURN_RECORDS,
        "fleet.workers",
    ),
    examines=True,
    writes=(
        "triggers.registry",
        "worker.queues",
        "worker.requests",
        "trigger.inbox.envelopes",
        "trigger.dispatches",
        "trigger.cancel.requests",
        "trigger.operations.audit",
    ),
    doc="A person at the command line: applies, emits, cancels, resumes, skips, explains.",
)

EDGES: tuple[Edge, ...] = (
    INGEST,
    INVOKER,
    PUMP,
    BROADCASTER,
    CANCELLER,
    RELAY,
    WORKER,
    TURN_WORKER,
    TURN_API,
    PROPOSER,
    OPERATOR,
)
