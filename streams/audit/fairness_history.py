"""Whether a queue's turns were fair, judged on what was said of its jobs: no fold is asked.

    jobs that came, policies  ─┐
    claims, and how they ended ┴→ which keys waited when → runs of them → violations

| a key waits, for sure, while | |
|---|---|
| a job of it is ready | it came, or a claim of it ended, and nobody has it |
| it has fewer claims than the cap | `max_concurrent_per_key` |
| no job of it that has met a gate is without a claim | such a job may be selected and sent back, which costs credit and is on no record |

A job that came back to a worker that takes what there is, once, is not ready before that worker has
left: until it is claimed again it counts for nothing.  Selections by age cost no credit, and do not
count; that the age was reached is judged.  Each policy begins new runs.

Invariants: memory is that of the jobs that are not over, and of the keys that have had a job.

Source: SEMANTICS 6; DESIGN section 7, "Proof".
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from streams.audit.fairness_run import Stake
from streams.audit.fairness_runs import Runs
from streams.core.wire import SchedulerPolicy

__all__ = ["TOLD_MAX", "Fairness", "JobFacts"]

TOLD_MAX: Final = 20
"""Violations of one queue after which no more are looked for."""

_IDLE_MS: Final = 3_600_000
"""After so long without work a key has no credit any more, and nobody knows when it was served."""

_IDLE_KEYS_MAX: Final = 10_000
"""Keys without work that are remembered for longer than that, besides as many as have work."""

_TIMES: Final[Mapping[str, str]] = {
    "job_claimed": "claimed_at_ms",
    "claim_renewed": "renewed_at_ms",
    "job_admitted": "admitted_at_ms",
    "job_released": "released_at_ms",
    "claim_expired": "expired_at_ms",
    "job_acked": "acked_at_ms",
    "job_purged": "purged_at_ms",
    "job_dead": "dead_at_ms",
}
"""Words about a job, and where each says when."""

_NO_TENANT: Final = "_no_tenant"

_Where = Literal["ready", "held", "parked", "gated"]


class JobFacts(NamedTuple):
    """What decides how a job is selected."""

    occurred_ms: int
    tenant_id: str | None
    binding_key: str
    trigger_id: str


@dataclass(slots=True)
class _Job:
    facts: JobFacts
    where: _Where = "ready"
    has_met_gates: bool = False


@dataclass(slots=True)
class _Key:
    """A fairness key; `settled` is the policy from which on all its credit is."""

    settled: int
    ready: int = 0
    held: int = 0
    gated: int = 0
    parked: int = 0
    served_ms: int = 0
    seen_ms: int = 0
    waits: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether it has no job."""
        return not (self.ready or self.held or self.gated or self.parked)


class Fairness:
    """One queue, or a shard of one.

    Args:  policies: those that were in force before it begins, in order, and the one that is.
           whole: whether all that was ever said of the queue will be told; else a cap hides which
           keys waited, and jobs of before may wait at a gate: nothing is judged while there is one.
           gates: whether consumers have had gates.
    """

    def __init__(self, *policies: SchedulerPolicy, whole: bool = True, gates: bool = False) -> None:
        self.told = 0
        self._whole = whole
        self._gates = gates
        self.judged = False
        """Whether the policy in force is known."""
        self._jobs: dict[str, _Job] = {}
        self._keys: dict[str, _Key] = {}
        self._policies = [*policies]
        self._waiting: set[str] = set()
        self._once: set[str] = set()
        self._runs: Runs | None = None
        self._changing: SchedulerPolicy | None = None
        self._base: int | None = None if whole else 0
        """The policy that credit of keys that are new to us may be of; None when they have none."""
        self._now_ms = 0
        self._keys_max = _IDLE_KEYS_MAX

    @property
    def _policy(self) -> SchedulerPolicy:
        return self._policies[-1]

    # ------------------------------------------------------------------ what the mailbox says
    def came(self, job: str, facts: JobFacts, /) -> None:
        """A job is ready."""
        if job not in self._jobs:
            self._jobs[job] = _Job(facts)
            self._count(facts, "ready", 1)

    def takes_once(self, consumer_id: str, /) -> None:
        """A worker takes what there is, once: what it gives back waits until it has left."""
        self._once.add(consumer_id)

    def changes(self, policy: SchedulerPolicy, /) -> None:
        """The next record puts another policy in force, before or after some of its claims."""
        self._runs = None
        self._changing = policy

    def changed(self, began: str, /) -> None:
        """The policy that was told is in force, and the claims of its record are behind us."""
        policy, self._changing = self._changing, None
        if policy is None:
            return
        before = self._policy["fairness_key"]
        self._policies.append(policy)
        if policy["fairness_key"] != before or not self.judged:
            self._derive()
        for name, key in self._keys.items():
            self._refresh(name, key)
        self.begin(began)

    def begin(self, began: str, /) -> None:
        """Judge from here on, where the policy in force is known; each new policy begins it, too.

        Args: began: the record before which that is, for people.
        """
        self.judged = True
        self._runs = None
        policy = self._policy
        known = self._whole or not (self._gates or policy["max_concurrent_per_key"])
        if policy["strategy"] == "drr" and known and self.told < TOLD_MAX:
            self._runs = Runs(began, policy["quantum"], self._stakes, self._settle)

    # ------------------------------------------------------------------ what the claims say
    def add(self, at: str, kind: str, value: Mapping[str, Any], /) -> Iterator[str]:
        """Take the next record about a job; yield what is wrong with it."""
        job = self._jobs.get(value["job_event_id"]) if kind in _TIMES else None
        if job is None:
            return
        self._now_ms = max(self._now_ms, value[_TIMES[kind]])
        match kind:
            case "job_claimed":
                yield from self._on_claimed(at, job, value)
            case "claim_renewed":
                self._put(job, "held")
            case "job_admitted":
                job.has_met_gates = True
            case "job_released" | "claim_expired":
                self._on_free(job, value)
            case "job_acked" | "job_purged" | "job_dead":
                self._count(job.facts, job.where, -1)
                del self._jobs[value["job_event_id"]]
                self._forget()
            case _:
                pass  # of no other word is anything said here

    def _on_claimed(self, at: str, job: _Job, value: Mapping[str, Any]) -> Iterator[str]:
        name = self._name(job.facts)
        if self.judged and self._changing is None:
            if value["fairness_key"] != name:
                yield f"selected under key {value['fairness_key']!r}, its job is of key {name!r}"
            if value["promoted"]:
                yield from self._of_age(name, job, value["claimed_at_ms"])
        runs = self._runs
        if runs is not None and not value["promoted"]:
            what = runs.select(name)
            if what is not None:
                self.told += 1
                self.begin(at)
                yield what
            else:
                runs.renew(at, len(self._waiting))
        self._put(job, "held")
        self._keys[name].served_ms = value["claimed_at_ms"]

    def _of_age(self, name: str, job: _Job, now_ms: int) -> Iterator[str]:
        """Judge a selection by age."""
        policy = self._policy
        age_ms = policy["starvation_age_ms"]
        if policy["strategy"] != "drr" or not age_ms:
            yield "selected for its age, which the policy in force knows nothing of"
        elif policy["starvation_mode"] != "key":
            waited_ms = now_ms - job.facts.occurred_ms
            if waited_ms < age_ms:
                yield f"selected for its age of {waited_ms} ms, expected at least {age_ms}"
        elif age_ms <= _IDLE_MS:
            waited_ms = now_ms - self._keys[name].served_ms
            if waited_ms < age_ms:
                yield (
                    f"selected for its key's age, which was served {waited_ms} ms ago, expected "
                    f"at least {age_ms}"
                )

    def _on_free(self, job: _Job, value: Mapping[str, Any]) -> None:
        reason = value.get("reason") or ""
        if value.get("not_before_ms") is not None or reason.startswith("the gate "):
            job.has_met_gates = True
        if job.has_met_gates:
            self._put(job, "gated")
        else:
            self._put(job, "parked" if value["consumer_id"] in self._once else "ready")

    # ------------------------------------------------------------------ keys
    def _put(self, job: _Job, where: _Where) -> None:
        if job.where != where:
            self._count(job.facts, job.where, -1, refresh=False)
            job.where = where
            self._count(job.facts, where, 1)

    def _count(self, facts: JobFacts, where: _Where, by: int, *, refresh: bool = True) -> None:
        name = self._name(facts)
        key = self._keys.get(name)
        if key is None:
            settled = len(self._policies) - 1 if self._base is None else self._base
            key = self._keys[name] = _Key(settled)
        key.seen_ms = self._now_ms
        match where:
            case "ready":
                key.ready += by
            case "held":
                key.held += by
            case "gated":
                key.gated += by
            case "parked":
                key.parked += by
        if refresh:
            self._refresh(name, key)

    def _refresh(self, name: str, key: _Key) -> None:
        cap = self._policy["max_concurrent_per_key"]
        waits = key.ready > 0 and not key.gated and (cap == 0 or key.held < cap)
        if waits == key.waits:
            return
        key.waits = waits
        if waits:
            self._waiting.add(name)
        else:
            self._waiting.discard(name)
            if self._runs is not None:
                self._runs.leave(name)

    def _derive(self) -> None:
        """Count the jobs by another dimension; its keys may have credit from when it was that."""
        dimensions = [each["fairness_key"] for each in self._policies]
        first = dimensions.index(self._policy["fairness_key"])
        fresh = self._whole and first == len(dimensions) - 1
        self._base = None if fresh else first
        self._keys = {}
        self._waiting = set()
        for job in self._jobs.values():
            self._count(job.facts, job.where, 1, refresh=False)

    def _forget(self) -> None:
        """Forget keys that have had no work for so long that the scheduler has, too."""
        if len(self._keys) <= self._keys_max:
            return
        since_ms = self._now_ms - 2 * _IDLE_MS
        self._keys = {
            name: key
            for name, key in self._keys.items()
            if not key.is_idle or key.seen_ms > since_ms
        }
        self._keys_max = 2 * len(self._keys) + _IDLE_KEYS_MAX

    def _name(self, facts: JobFacts) -> str:
        tenant = facts.tenant_id or _NO_TENANT
        match self._policy["fairness_key"]:
            case "binding":
                return facts.binding_key
            case "trigger_id":
                return facts.trigger_id
            case "tenant_and_binding":
                return f"{tenant}|{facts.binding_key}"
            case _:
                return tenant

    # ------------------------------------------------------------------ credit
    def _stakes(self) -> dict[str, Stake]:
        return {name: self._stake(name) for name in sorted(self._waiting)}

    def _stake(self, name: str) -> Stake:
        given = [
            _weight_of(each, name) * each["quantum"]
            for each in self._policies[self._keys[name].settled :]
            if each["strategy"] == "drr" and each["fairness_key"] == self._policy["fairness_key"]
        ]
        return Stake(_weight_of(self._policy, name), max(given))

    def _settle(self, name: str) -> None:
        self._keys[name].settled = len(self._policies) - 1


def _weight_of(policy: SchedulerPolicy, name: str) -> int:
    return max(1, policy["weights"].get(name, policy["default_weight"]))
