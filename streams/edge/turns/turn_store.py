"""The durable records behind turns: what an envelope refers to, who works on it, what came of it.

    pending ──claim──▸ running ──finish──▸ completed · failed · cancelled · paused
       ▴                  │ └─claim of another, once the one before is older than CLAIM_TTL_S
       └─────release──────┘
    pending ──deadline passed──▸ failed;  paused · pending · orphaned ──move──▸ as the API asks

Each claim has a fence, one higher than that of the claim before: what an earlier holder writes
after it lost its claim is refused, so a record that has ended stays as it ended.

Source: seed queue-driven-agent-dispatch, "Delivery and idempotency guarantees", "Fleet visibility";
SEMANTICS 8.5, 8.6 and 8.9, 10.1 A1, 10.2.31.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from streams.core.turn.claim import CLAIM_TTL_MS, Decision
from streams.core.turn.envelope import AgentTurnEnvelope

__all__ = [
    "CLAIM_TTL_MS",
    "LISTED_MAX",
    "RESULT_CHARS_MAX",
    "WORKER_TTL_MS",
    "ClaimAnswer",
    "Claimant",
    "FleetWorker",
    "Progress",
    "Session",
    "Status",
    "TurnRecord",
    "TurnStore",
    "Utterance",
]

WORKER_TTL_MS = 90_000
"""A worker without a heartbeat for longer is not listed."""

RESULT_CHARS_MAX = 4_000
LISTED_MAX = 1_000


class Status(StrEnum):
    """Where a record is on its way."""

    UNKNOWN = "unknown"
    """Of a later release; whoever reads it leaves it alone."""
    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ORPHANED = "orphaned"

    @classmethod
    def _missing_(cls, _value: object) -> Status:
        return cls.UNKNOWN


class Claimant(NamedTuple):
    """Who claims a record."""

    token: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """A goal or an orchestrator's task; times in ms since the epoch, on the database's clock."""

    record_id: str
    kind: str
    """`goal_loop` or `orchestrator_task`."""
    session_id: str
    spec: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What is to be done: a goal's spec, or a task's description and agent."""
    status: Status = Status.PENDING
    iterations: int = 0
    progress: Sequence[Mapping[str, Any]] = ()
    """The newest iterations of a goal, as `goal_iteration` of the schemas has them."""
    fence: int = 0
    """How often it was claimed; a holder proves by it that its claim is the latest."""
    claimed_by: str = ""
    """The worker's token while it is claimed; a goal's `owner_host`."""
    claimed_at_ms: int | None = None
    renewed_at_ms: int | None = None
    """When the holder was last heard of: the age of a claim counts from here."""
    dispatch_host: str = ""
    executed_by: str = ""
    result: str | None = None
    error: str | None = None
    created_at_ms: int = 0
    updated_at_ms: int = 0


class Progress(NamedTuple):
    """How far a goal is: how many iterations were done, the newest of them, and their result."""

    iterations: int
    newest: Sequence[Mapping[str, Any]]
    result: str | None


class ClaimAnswer(NamedTuple):
    """What became of a claim."""

    decision: Decision
    """`Run`: run it, and ack once its end is written.  `Skip`, `Expire`: ack.  `Wait`: give the
    turn back to the queue for `retry_after_ms`, and never ack it."""
    record: TurnRecord | None
    """As it is now; None when there is none."""
    retry_after_ms: int = 0
    """When to look again, at the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A conversation; the two requests are written by people and read before each iteration."""

    session_id: str
    domain: str = ""
    status: str = "queued"
    background: bool = True
    needs_input: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    pause_requested: bool = False
    kill_requested: bool = False
    created_at_ms: int = 0
    updated_at_ms: int = 0


class Utterance(NamedTuple):
    """What was said in a session."""

    number: int
    """From 1, without gaps, in the order of being written."""
    role: str
    content: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetWorker:
    """A worker, as of its last heartbeat."""

    worker_id: str
    host: str
    capacity: int
    active_sessions: tuple[str, ...]
    queue_backend: str
    started_at_ms: int = 0
    last_heartbeat_ms: int = 0


class TurnStore(Protocol):
    """Records, sessions and workers, shared by all that use the same database.

    Every method raises TaskQueueUnavailable when it cannot be reached, and ValueError for an id
    that cannot be one.
    """

    def create(self, record: TurnRecord, /) -> bool:
        """Write a new record; false, and nothing is changed, when there is one of that id."""
        ...

    def read(self, record_id: str, /) -> TurnRecord | None:
        """Return a record."""
        ...

    def claim(self, envelope: AgentTurnEnvelope, by: Claimant, /) -> ClaimAnswer:
        """Take the record that an envelope refers to, if it may be taken.

        Of several who ask at once, one is answered `Run`.  What `decide` says is done: the claim of
        the one that runs it is written, and the failure of one whose deadline has passed.
        """
        ...

    def cancel(self, envelope: AgentTurnEnvelope, error: str, /) -> ClaimAnswer:
        """End the record of a turn that is not to run as cancelled, if nobody has it.

        The answer is what `claim` would have been: after `Run` and `Expire` the record is
        cancelled; otherwise it is left as it is.
        """
        ...

    def renew(self, record_id: str, fence: int, /) -> bool:
        """Say that the holder lives; false when the claim was lost."""
        ...

    def iterate(self, record_id: str, fence: int, progress: Progress, /) -> bool:
        """Write how far a claimed goal is, and that its holder lives; false when it was lost."""
        ...

    def release(self, record_id: str, fence: int, /) -> bool:
        """Give a claim back, unfinished: the record is pending again.  False when it was lost."""
        ...

    def finish(
        self,
        record_id: str,
        fence: int,
        status: Status,
        /,
        *,
        result: str | None = None,
        error: str | None = None,
        progress: Progress | None = None,
        says: bool = False,
    ) -> bool:
        """Write the end of a claimed record; false, and nothing is changed, when it was lost.

        `result` and `error` are cut at 4,000 characters.  `progress` comes with it when the last
        iteration is written by its end; `says` writes the result into the session as well.
        """
        ...

    def move(
        self,
        record_id: str,
        /,
        *,
        from_: Collection[Status],
        to: Status,
        error: str | None = None,
    ) -> bool:
        """Change the status of a record that nobody runs; false when it had none of `from_`.

        For whoever enqueues (failed when the carrier refused), resumes or cancels.
        """
        ...

    def records(
        self,
        *,
        kind: str | None = None,
        session_id: str | None = None,
        status: Status | None = None,
        limit: int = 200,
        offset: int = 0,
    ) -> list[TurnRecord]:
        """Return records, the last changed first; `limit` is 1 to 1,000."""
        ...

    def create_session(self, session: Session, /) -> bool:
        """Write a new session; false, and nothing is changed, when there is one of that id."""
        ...

    def read_session(self, session_id: str, /) -> Session | None:
        """Return a session."""
        ...

    def set_session(
        self, session_id: str, /, *, status: str | None = None, needs_input: bool | None = None
    ) -> bool:
        """Change what is given of a session; false when there is no such session."""
        ...

    def move_session(self, session_id: str, /, *, from_: Collection[str], to: str) -> bool:
        """Change the status of a session; false when it had none of `from_`, or is not there."""
        ...

    def request(
        self, session_id: str, /, *, pause: bool | None = None, kill: bool | None = None
    ) -> bool:
        """Ask for a session's pause or end, or take that back; false when there is none."""
        ...

    def sessions(
        self, *, status: str | None = None, limit: int = 200, offset: int = 0
    ) -> list[Session]:
        """Return sessions, the last changed first; `limit` is 1 to 1,000."""
        ...

    def say(self, session_id: str, role: str, content: str, /) -> int:
        """Append to what was said in a session, and return its number.

        Raises: ValueError, when there is no such session.
        """
        ...

    def said(self, session_id: str, /, *, after: int = 0, limit: int = 200) -> list[Utterance]:
        """Return what was said in a session after that number, oldest first."""
        ...

    def forget(self, unchanged_ms: int, /) -> int:
        """Delete what has ended and was not changed for that long, and return how much that was.

        Records that completed, failed or were cancelled, then sessions that have no record left,
        with what was said in them: at most 1,000 of each in a call.  A turn that is delivered after
        its record was forgotten is skipped.
        """
        ...

    def beat(self, worker: FleetWorker, /) -> None:
        """Write a worker's heartbeat, now; when it started is kept from its first one."""
        ...

    def leave(self, worker_id: str, /) -> None:
        """Forget a worker, since it has ended."""
        ...

    def workers(self) -> list[FleetWorker]:
        """Return the workers heard of within 90 s, the last heard of first."""
        ...
