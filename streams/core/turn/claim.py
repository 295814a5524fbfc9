"""Whether a turn that was handed to a worker is run, and by whom: the decision over its record.

    record                             answer
    none                               Skip "unknown_record"
    completed, failed, cancelled       Skip "terminal"
    paused                             Skip "paused": who resumes it enqueues another turn
    running under another's live claim Wait: never acked, or the turn would be lost with its holder
    deadline passed                    Expire: it fails without running
    anything else                      Run: pending, orphaned, or a claim that is dead

Where partitions have owners, a claim lives as long as its owner: it is dead at once when its fence
is lower than that of the owner that asks, since who took the partition has fenced whoever had it.
A claim with the asker's own fence is that of a turn that it still runs, under another session, and
no age ends it.  A higher fence says that the asker itself was fenced; it waits, and nothing that it
writes counts.  Elsewhere a claim is dead when it is `ttl_ms` old: a task's is as old as the claim,
a goal's as its last change, and each iteration is one.  A status of a later release may be an end:
it waits for the release that knows.

A turn that runs is not failed under its holder, whatever its deadline; a paused goal does not
expire.  The deadline is looked at before each attempt, and not while a body runs.

Source: SEMANTICS 8.5, 8.6, 10.1 A1, 10.2.27, 10.2.31; DESIGN "A turn".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.wire import AgentGoal, AgentJob, AgentJobStatus

__all__ = [
    "CLAIM_TTL_MS",
    "ENDED",
    "Claimable",
    "Decision",
    "Expire",
    "Run",
    "Skip",
    "Wait",
    "claimable_goal",
    "claimable_job",
    "decide",
]

CLAIM_TTL_MS = 3_600_000
"""When a claim is presumed dead, unless a setting says otherwise."""

ENDED: Final[frozenset[AgentJobStatus]] = frozenset({"completed", "failed", "cancelled"})
"""What a record never leaves again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimable:
    """What a decision needs of a goal's or task's record; times are ms since the epoch.

    `alive_at_ms` is when its holder was last heard of through the record, None when never.
    """

    status: AgentJobStatus
    claimed_by: str = ""
    alive_at_ms: int | None = None
    fence: int = 0
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """Claim the record, and run the turn: it is its `attempt`-th time, from 1.

    `taken_from` is the token of a dead claim that is taken over, empty when there is none.
    """

    attempt: int
    taken_from: str = ""


@dataclass(frozen=True, slots=True)
class Skip:
    """There is nothing to do: the turn ends as skipped, and is acked."""

    reason: Literal["terminal", "paused", "unknown_record"]


@dataclass(frozen=True, slots=True)
class Wait:
    """Another has it: look again when its record changes, at the latest at `until_ms`.

    None when no time will change the answer: the asker runs it itself for another turn, was fenced,
    or is too old for the record.
    """

    until_ms: int | None


@dataclass(frozen=True, slots=True)
class Expire:
    """Its deadline has passed: it fails durably without running, and is acked."""

    error: str


Decision = Run | Skip | Wait | Expire


def claimable_goal(goal: AgentGoal, /) -> Claimable:
    """Return what a decision needs of a goal."""
    return Claimable(
        status=goal["status"],
        claimed_by=goal["owner_host"],
        alive_at_ms=None if goal["claim_unix_ms"] is None else goal["updated_at_ms"],
        fence=goal["fence"],
        attempt=goal["attempt"],
    )


def claimable_job(job: AgentJob, /) -> Claimable:
    """Return what a decision needs of an orchestrator task."""
    return Claimable(
        status=job["status"],
        claimed_by=job["claimed_by"],
        alive_at_ms=job["claim_unix_ms"],
        fence=job["fence"],
        attempt=job["attempt"],
    )


def decide(
    envelope: AgentTurnEnvelope,
    record: Claimable | None,
    /,
    *,
    now_ms: int,
    ttl_ms: int = CLAIM_TTL_MS,
    fence: int | None = None,
) -> Decision:
    """Decide what a worker does with a turn.

    Args:    record: as loaded under the session's guard; None when there is none of that id.
             now_ms: on the clock that stamped the claims.
             ttl_ms: age at which a claim is dead, where partitions have no owner.
             fence: of the asking owner of the partition; None where partitions have no owner.
    """
    if record is None:
        return Skip("unknown_record")
    if record.status in ENDED:
        return Skip("terminal")
    if record.status == "paused":
        return Skip("paused")
    if record.status == "unknown":
        return Wait(None)
    if record.status == "running" and (wait := _live(record, now_ms, ttl_ms, fence)):
        return wait
    if envelope.expired_at(now_ms) and envelope.deadline_ms is not None:
        late_ms = now_ms - envelope.deadline_ms
        return Expire(f"expired: its deadline had passed {late_ms} ms before it could be run")
    taken_from = record.claimed_by if record.status == "running" else ""
    return Run(record.attempt + 1, taken_from)


def _live(record: Claimable, now_ms: int, ttl_ms: int, fence: int | None) -> Wait | None:
    """Return how long to wait for a running record's claim; None when it is dead."""
    if fence is not None:
        return None if record.fence < fence else Wait(None)
    if record.alive_at_ms is None:
        return None  # nobody ever claimed it: whoever wrote it runs nothing
    # A clock that went back makes no claim older, and none live for longer than its age limit.
    dead_at_ms = record.alive_at_ms + ttl_ms
    return None if now_ms >= dead_at_ms else Wait(dead_at_ms)
