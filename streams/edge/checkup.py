"""What was found of a running application, and what of it needs somebody: facts in, findings out.

A problem keeps work from being done, or will; advice is what an operator may want to know.

Source: seed trigger-dispatcher, "The dispatcher keeps per-thread stats"; SEMANTICS 2.3.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from streams.core import scheduler_policy
from streams.core.record import Position
from streams.core.shards import mailbox_key
from streams.core.wire import PartitionHalted, Policy, QueueSummary, RowDispatch, SchedulerPolicy
from streams.edge.scheduler_proposal import differences

__all__ = [
    "LAG_RECORDS_MAX",
    "Checkup",
    "Dispatcher",
    "Finding",
    "Group",
    "Level",
    "Registry",
    "diagnose",
    "given_back",
    "unlucky",
]

LAG_RECORDS_MAX = 10_000
"""From here on a role is called late; below it may just have been given work."""

GIVEN_BACK_MIN = 5
"""After half a minute: what an invoker of an older manifest gives back, a newer one takes."""

LOSSES_MIN = 3
"""Whoever loses its invoker so often is rather what kills it."""

UNSERVED_MS_MIN = 60_000
"""A queue whose jobs have waited for so long should have a worker."""

OVERDUE_MS_MAX = 60_000
"""A lease or a retry so long overdue is nobody's: owners tick within a second."""


class Level(StrEnum):
    """How much a finding matters; the command fails with a problem."""

    PROBLEM = "problem"
    ADVICE = "advice"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, and what to do about it."""

    level: Level
    what: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The registry's view: `states` counts binding versions by state.

    `proposed` is the scheduler's policy that a member's environment proposed last, if any did.
    """

    revision: int
    broadcast: int
    states: Mapping[str, int]
    policy: Policy
    proposed: SchedulerPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A consumer group of ours: the members that its role has, and what they have not read yet.

    `lags` are records by partition; above 1,000 the ends of transactions are counted with them.
    """

    id: str
    role: str
    topic: str
    state: str
    members: int
    lags: Mapping[int, int]

    @property
    def lag(self) -> int:
        """Records of all partitions that were not read yet."""
        return sum(self.lags.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatcher:
    """A dispatch partition, as its changelog has it.

    `statuses` counts live dispatches, and `given_back` those that invokers have given back at least
    GIVEN_BACK_MIN times, by binding; `unlucky` is the one that has lost most invokers, from
    LOSSES_MIN on; `oldest_ms` is when the oldest one was accepted, and
    `overdue_ms` when the timer that should have fired first was due, both ms since epoch.
    """

    partition: int
    revision: int
    statuses: Mapping[str, int]
    dead_letters: int
    open_circuits: tuple[str, ...] = ()
    given_back: Mapping[str, int] = field(default_factory=dict[str, int])
    unlucky: RowDispatch | None = None
    oldest_ms: int | None = None
    overdue_ms: int | None = None

    @property
    def in_flight(self) -> int:
        """Dispatches that an invoker has, or is about to have."""
        return sum(self.statuses.get(each, 0) for each in ("invoked", "running", "evaluating"))

    @property
    def retries(self) -> int:
        """Dispatches that wait for their next attempt."""
        return sum(self.statuses.get(each, 0) for each in ("waiting", "returned", "deferred"))

    @property
    def gated(self) -> int:
        """Dispatches that wait at a gate."""
        return self.statuses.get("gated", 0)

    @property
    def parked(self) -> int:
        """Dispatches that wait for a circuit to close."""
        return self.statuses.get("parked", 0)


def given_back(live: Iterable[RowDispatch]) -> Mapping[str, int]:
    """Count the dispatches that invokers have given back at least GIVEN_BACK_MIN times."""
    returned = (row for row in live if row["status"] == "returned")
    return Counter(row["binding_key"] for row in returned if row["returns"] >= GIVEN_BACK_MIN)


def unlucky(live: Iterable[RowDispatch]) -> RowDispatch | None:
    """Return the dispatch that has lost most invokers, if they are LOSSES_MIN at least."""
    found = max(live, key=lambda row: row["losses"], default=None)
    return found if found is not None and found["losses"] >= LOSSES_MIN else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """What was found at `at_ms`, ms since epoch by this machine's clock.

    `topics` are differences from the declarations, refusals and missing topics first, each with
    whether it keeps roles from starting.  `policy` is what the settings here would put in force,
    and `scheduler` what a member with the settings here would propose.
    `halted` are the partitions that stand still, each with what halts it.
    `queues` are what the scheduler last published of each queue or shard.
    `secrets` says of each webhook path what keeps it from being checked here; None is nothing.
    """

    at_ms: int
    versions: Mapping[str, str]
    bootstrap: str
    brokers: tuple[str, ...]
    topics: tuple[tuple[str, bool], ...]
    policy: Policy
    scheduler: SchedulerPolicy | None = None
    registry: Registry | None = None
    groups: tuple[Group, ...] = ()
    dispatchers: tuple[Dispatcher, ...] = ()
    secrets: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    queues: tuple[QueueSummary, ...] = ()
    halted: tuple[PartitionHalted, ...] = ()


def diagnose(checkup: Checkup) -> list[Finding]:
    """Return what needs somebody, problems first."""
    found = [
        *_of_topics(checkup),
        *_of_halts(checkup.halted),
        *_of_registry(checkup),
        *_of_scheduler(checkup),
        *_of_groups(checkup.groups),
        *_of_dispatchers(checkup),
        *_of_queues(checkup),
        *_of_secrets(checkup),
    ]
    return sorted(found, key=lambda finding: finding.level is not Level.PROBLEM)


def _of_topics(checkup: Checkup) -> Iterator[Finding]:
    for difference, is_vital in checkup.topics:
        if is_vital:
            remedy = (
                "run `harn topology plan`, then `apply`; where there are ACLs, grant what "
                "`harn topology acls` prints for role operator"
            )
            yield Finding(Level.PROBLEM, difference, remedy)
        else:
            remedy = "`harn topology apply --sync` sets what can be set"
            yield Finding(Level.ADVICE, difference, remedy)


def _of_halts(halted: Iterable[PartitionHalted]) -> Iterator[Finding]:
    for each in halted:
        stage, partition, offset = each["stage"], each["partition"], each["offset"]
        position = Position(each["topic"], partition, offset)
        timer = each["timer"]
        what = "" if timer is None else f", at the timer of row {timer}"
        skipped = str(position) if timer is None else f"{position} --timer {shlex.quote(timer)}"
        yield Finding(
            Level.PROBLEM,
            f"stage {stage} is halted before {position}{what}: {each['reason']}",
            f"look at the record: `harn log tail {position.topic} --partition {partition} --from "
            f"{offset} --limit 1`; with a fold that takes it, `harn stage resume {stage} "
            f"{partition}`; or give it up: `harn stage skip {skipped}`",
        )


def _of_registry(checkup: Checkup) -> Iterator[Finding]:
    registry = checkup.registry
    if registry is None:
        return
    if registry.broadcast < registry.revision:
        yield Finding(
            Level.PROBLEM,
            f"revision {registry.revision} is published and not broadcast "
            f"(the last one is {registry.broadcast}): mailboxes still go by the one before",
            "see that a role registry runs, and look for `broadcast_delayed` in its log",
        )
    if registry.revision == 0:
        yield Finding(
            Level.ADVICE, "no manifest was ever applied: every event is unmatched", _APPLY
        )
        return
    for name, here in checkup.policy.items():
        in_force = registry.policy.get(name)
        if in_force != here and name != "scheduler":  # which an apply leaves as it is
            yield Finding(
                Level.ADVICE,
                f"policy {name} is {in_force} in force, and {here} by the settings here",
                f"{_APPLY} to put the settings in force, or set them alike",
            )


_APPLY = "run `harn trigger apply`"


def _of_scheduler(checkup: Checkup) -> Iterator[Finding]:
    """Yield where environments say another policy of the scheduler than the one in force.

    Variables that nobody has set say nothing.
    """
    registry, here = checkup.registry, checkup.scheduler
    if registry is None:
        return
    present = scheduler_policy.in_force(registry.policy)
    remedy = (
        "a manifest's [orchestrator.scheduler] counts once it is applied, an environment once it "
        "changes: set them alike, or restart a scheduler with the variables that shall hold"
    )
    silent = (None, scheduler_policy.DEFAULT)
    if here is not None and here not in silent and (differing := differences(here, present)):
        what = f"the scheduler does not go by HARN_SCHEDULER_* here: {'; '.join(differing)}"
        yield Finding(Level.ADVICE, what, remedy)
    proposed = registry.proposed
    if proposed is None or proposed in (*silent, here):
        return
    if differing := differences(proposed, present):
        said = "; ".join(differing)
        what = f"the scheduler does not go by what a member's environment proposed last: {said}"
        yield Finding(Level.ADVICE, what, remedy)


def _of_groups(groups: Iterable[Group]) -> Iterator[Finding]:
    """Yield a group without members once, however many topics it reads, and each topic's lag."""
    unread: dict[str, int] = {}
    empty: dict[str, Group] = {}
    for group in groups:
        if group.members == 0:
            empty[group.id] = group
            unread[group.id] = unread.get(group.id, 0) + group.lag
        else:
            yield from _of_lag(group)
    for name, group in empty.items():
        waiting = f", and {unread[name]} records wait" if unread[name] else ""
        yield Finding(
            Level.PROBLEM,
            f"nobody runs role {group.role} (group {name} has no member){waiting}",
            f"start one: `harn orchestrator serve --role {group.role}`",
        )


def _of_lag(group: Group) -> Iterator[Finding]:
    if group.lag >= LAG_RECORDS_MAX:
        latest = max(group.lags, key=lambda partition: group.lags[partition])
        yield Finding(
            Level.PROBLEM,
            f"role {group.role} is {group.lag} records behind on {group.topic}, "
            f"{group.lags[latest]} of them in partition {latest}",
            "add members up to the number of partitions, or look what holds the latest one up",
        )


def _of_dispatchers(checkup: Checkup) -> Iterator[Finding]:
    registry, partitions = checkup.registry, checkup.dispatchers
    dead_letters = sum(each.dead_letters for each in partitions)
    if dead_letters:
        what = f"{dead_letters} dead letters wait for somebody"
        yield Finding(Level.ADVICE, what, "`harn trigger dlq list`, then replay or discard them")
    for destination in sorted({name for each in partitions for name in each.open_circuits}):
        yield Finding(
            Level.ADVICE,
            f"the circuit of {destination} is open: its dispatches are parked",
            "look at what it answers; it is probed once a minute and closes by itself",
        )
    returned = sum((Counter(each.given_back) for each in partitions), Counter[str]())
    for binding_key, count in sorted(returned.items()):
        yield Finding(
            Level.PROBLEM,
            f"invokers give {count} dispatches of {binding_key} back: they have not loaded its "
            "handler, or can start no process for it",
            "restart the invokers with the manifest in force; look for `handler_not_loaded` in "
            "their log",
        )
    for row in (each.unlucky for each in partitions if each.unlucky is not None):
        named = f"{row['event_id']} --binding {shlex.quote(row['binding_key'])}"
        yield Finding(
            Level.PROBLEM,
            f"{row['losses']} invokers were lost while they ran event {row['event_id']} for "
            f"{row['binding_key']}",
            "look at its handler: it may end its process, or use up its memory; "
            f'`harn trigger cancel {named}` stops it, and `executor = "process"` keeps others out',
        )
    behind = [
        each.partition
        for each in partitions
        if registry is not None and each.revision < registry.broadcast
    ]
    if behind:
        named = ", ".join(str(partition) for partition in behind)
        yield Finding(
            Level.PROBLEM,
            f"dispatch partitions {named} have not folded revision "
            f"{registry.broadcast if registry else 0}",
            "see that a role dispatch runs, and that none of its partitions is halted",
        )
    for each in partitions:
        late_ms = 0 if each.overdue_ms is None else checkup.at_ms - each.overdue_ms
        if late_ms > OVERDUE_MS_MAX:
            yield Finding(
                Level.PROBLEM,
                f"a timer of dispatch partition {each.partition} is {late_ms // 1000} s overdue",
                "see that a role dispatch runs, and that none of its partitions is halted",
            )


def _of_queues(checkup: Checkup) -> Iterator[Finding]:
    for summary in checkup.queues:
        name = mailbox_key(summary["queue"], summary["shard"])
        policy, oldest_ms = summary["policy"], summary["oldest_ready_at_ms"]
        age_ms = 0 if oldest_ms is None else checkup.at_ms - oldest_ms
        promotes = policy["strategy"] == "drr" and policy["starvation_mode"] == "job"
        if promotes and 0 < policy["starvation_age_ms"] <= age_ms and summary["keys_total"] > 1:
            yield Finding(
                Level.ADVICE,
                f"queue {name} has jobs older than {policy['starvation_age_ms'] // 1_000} s, which "
                "go first whoever they are of: an old backlog undoes the shares of its keys",
                "HARN_SCHEDULER_STARVATION_MODE=key promotes the key that has waited longest "
                "instead; or raise HARN_SCHEDULER_STARVATION_AGE_MS",
            )
        if age_ms >= UNSERVED_MS_MIN and not summary["workers"]:
            yield Finding(
                Level.ADVICE,
                f"queue {name} has {summary['ready']:,} jobs ready, the oldest for "
                f"{age_ms // 1_000} s, and no worker takes them",
                f"run `harn worker run {summary['queue']}`, or drain it with "
                f"`harn orchestrator queue drain {summary['queue']}`",
            )


def _of_secrets(checkup: Checkup) -> Iterator[Finding]:
    for path, problem in sorted(checkup.secrets.items()):
        if problem is not None:
            yield Finding(
                Level.ADVICE,
                f"webhooks at {path!r} cannot be checked from here: {problem}",
                "put the secret into HARN_SECRETS_DIR where ingest runs; elsewhere it is not "
                "needed",
            )
