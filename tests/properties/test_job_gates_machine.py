"""Jobs meet gates, start, end, come back and run out, in any order and under changing limits: the
scheduler decides as the slow model does, and its log passes the auditor's own rules."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streams.audit.claim_history import ClaimHistory
from streams.core.record import Position
from tests.support.fair_turns import assert_fair
from tests.support.gate_model import GateModel, Job
from tests.support.scheduler_log import QUEUE, SchedulerLog, admitted, answers, said
from tests.support.stage_log import Out

FOREVER_MS = 80_000_000
TTL_MS = 60_000
ORDER = ("urgent", "usual")
_CLAIMS = f"worker.{QUEUE}.claims"


def granted(outs: list[Out]) -> dict[str, bool]:
    return {
        job["claim_id"]: job["admitted"]
        for out in outs
        if out.kind == "jobs_granted"
        for job in out.value["jobs"]
    }


def audited(log: SchedulerLog) -> list[str]:
    """What the auditor finds wrong with everything that was said."""
    history = ClaimHistory(QUEUE)
    said = [out for step in log.steps for out in log.outputs_of(step) if out.topic == _CLAIMS]
    return [
        found.what
        for at, out in enumerate(said)
        for found in history.add(Position(_CLAIMS, 0, at), out.kind, out.value)
    ]


class JobGates(RuleBasedStateMachine):
    """One trigger with a rate limit and concurrency, and a worker with room for every job."""

    log: SchedulerLog
    model: GateModel
    registered: int

    @initialize(most=st.integers(1, 3), rate_max=st.sampled_from([1, 3, 50]))
    def begin(self, most: int, rate_max: int) -> None:
        self.model = GateModel(most, ORDER, rate_max, 5_000)
        self.log = SchedulerLog(worker_ttl_ms=FOREVER_MS, max_deliveries=0)
        self.registered = 0
        self._register()
        self.log.beat(capacity=500, ttl_ms=TTL_MS)

    def _register(self) -> list[Out]:
        self.registered += 1
        gates = {
            "rate_limit": {"max": self.model.rate_max, "period_ms": self.model.period_ms},
            "concurrency": {"max": self.model.most, "key": "event.tenant_id"},
            "priority": {"key": "event.kind", "order": list(ORDER)},
        }
        return self.log.register(f"d{self.registered}", triage=gates)

    @rule(count=st.integers(1, 4))
    def enqueue(self, count: int) -> None:
        first = self.log.next_offset
        outs = self.log.ready(*["a"] * count, occurred_at_ms=self.log.now_ms)
        for number in range(first, first + count):
            self.model.jobs[number] = Job(number)
        assert granted(outs) == {f"{n}.1": False for n in range(first, first + count)}

    @rule(
        chance=st.randoms(use_true_random=False),
        key=st.sampled_from("xy"),
        priority=st.sampled_from(["urgent", "usual", "other"]),
    )
    def ask(self, chance: Any, key: str, priority: str) -> None:
        chosen = self._some_claimed(chance)
        if not chosen:
            return
        claims = [job.claim_id for job in chosen]
        outs = self.log.ask(*claims, concurrency=key, priority=priority)
        expected = self.model.ask(chosen, key, priority, self.log.now_ms)
        assert answers(outs) == " ".join(expected)
        self._agree(outs)

    @rule(chance=st.randoms(use_true_random=False))
    def ack(self, chance: Any) -> None:
        chosen = self._some_claimed(chance)
        outs = self.log.ack(*(job.claim_id for job in chosen))
        self.model.done(chosen)
        self._agree(outs)

    @rule(chance=st.randoms(use_true_random=False))
    def release(self, chance: Any) -> None:
        chosen = self._some_claimed(chance)
        outs = self.log.release(*(job.claim_id for job in chosen))
        self.model.undone(chosen)
        self._agree(outs)

    @rule(most=st.integers(1, 4))
    def change(self, most: int) -> None:
        self.model.limit(most)
        self._agree(self._register())

    @rule(after_ms=st.sampled_from([1, 2_500, 5_000]))
    def pass_time(self, after_ms: int) -> None:
        """Time passes that no claim outlives: each is renewed first."""
        self.log.renew(*(job.claim_id for job in self.model.claimed()), ttl_ms=TTL_MS)
        self.log.now_ms += after_ms

    @rule()
    def run_out(self) -> None:
        """Nobody renews: every claim ends, and its job is there again."""
        outs = self.log.tick(after_ms=TTL_MS)
        self.model.undone(self.model.claimed())
        self._agree(outs)

    @invariant()
    def counts(self) -> None:
        if not hasattr(self, "log") or not self.log.next_offset:
            return
        found = self.log.summary()
        waiting = [job for job in self.model.jobs.values() if job.state == "waiting"]
        assert found["in_flight"] == len(self.model.claimed())
        assert (found["delayed"], found["ready"]) == (len(waiting), 0)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            assert audited(self.log) == []
            assert_fair(self.log)
            self.log.assert_replays([3], reload_at=frozenset(range(1, 60, 3)))

    def _agree(self, outs: list[Out]) -> None:
        assert granted(outs) == self.model.grant()

    def _some_claimed(self, chance: Any) -> list[Job]:
        claimed = self.model.claimed()
        return chance.sample(claimed, chance.randint(0, len(claimed)))


TestJobGates = JobGates.TestCase
TestJobGates.settings = settings(max_examples=80, stateful_step_count=30)


class EveryGate(RuleBasedStateMachine):
    """Every gate, and a worker with little room: limits hold at every prefix, and nothing stays."""

    log: SchedulerLog
    claims: dict[str, bool]
    purged: int
    registered: int
    gates: dict[str, Any]

    @initialize(
        most=st.integers(1, 2),
        starts=st.integers(1, 3),
        singleton=st.booleans(),
        debounce=st.booleans(),
        room=st.integers(1, 4),
    )
    def begin(self, most: int, starts: int, singleton: bool, debounce: bool, room: int) -> None:
        self.room = room
        self.purged = 0
        self.claims = {}
        self.registered = 0
        self.log = SchedulerLog(worker_ttl_ms=FOREVER_MS, max_deliveries=0)
        self.gates: dict[str, Any] = {
            "throttle": {"max": starts, "period_ms": 1_000},
            "concurrency": {"max": most},
        }
        if singleton:
            self.gates["singleton"] = {}
        if debounce:
            self.gates["debounce"] = {"period_ms": 700, "max_wait_ms": 1_000}
        self._register(list(self.gates))
        self._beat()

    @rule(chance=st.randoms(use_true_random=False))
    def change(self, chance: Any) -> None:
        """Some of the gates are gone, and come back."""
        kept = chance.sample(list(self.gates), chance.randint(0, len(self.gates)))
        self._register(kept)
        for gate in {"throttle", "debounce", "concurrency", "singleton"} - set(kept):
            assert not self._waiting(gate), "a gate that is gone holds nobody"

    def _register(self, kept: list[str]) -> None:
        self.registered += 1
        gates = {gate: self.gates[gate] for gate in kept}
        self._take(self.log.register(f"d{self.registered}", triage=gates))

    def _waiting(self, gate: str) -> list[str]:
        """Jobs that are kept back by a gate."""
        rows = self.log.rows
        return [
            key
            for key, row in rows.items()
            if key.startswith("n:")
            and (row["gated"] or row["not_before_ms"] is not None)
            and rows[f"a{key[1:]}"]["gate"] == gate
        ]

    @rule(count=st.integers(1, 4))
    def enqueue(self, count: int) -> None:
        self._take(self.log.ready(*["a"] * count, occurred_at_ms=self.log.now_ms))

    @rule(key=st.sampled_from("xy"))
    def ask(self, key: str) -> None:
        """Everything asks that may not start yet."""
        self._ask(key)

    @rule(chance=st.randoms(use_true_random=False))
    def ack(self, chance: Any) -> None:
        running = [claim for claim, admitted in self.claims.items() if admitted]
        chosen = chance.sample(running, chance.randint(0, len(running)))
        for claim in chosen:
            del self.claims[claim]
        self._take(self.log.ack(*chosen))

    @rule(chance=st.randoms(use_true_random=False))
    def release(self, chance: Any) -> None:
        chosen = chance.sample(list(self.claims), chance.randint(0, len(self.claims)))
        for claim in chosen:
            del self.claims[claim]
        self._take(self.log.release(*chosen))

    @rule()
    def purge(self) -> None:
        outs = self.log.purge()
        self.purged += said(outs).count("job_purged")
        self._take(outs)

    @rule(after_ms=st.sampled_from([1, 300, 1_000, 10_000]))
    def pass_time(self, after_ms: int) -> None:
        self._beat()
        self._take(self.log.renew(*self.claims))
        self._take(self.log.tick(after_ms=after_ms))

    def teardown(self) -> None:
        if not hasattr(self, "log"):
            return
        jobs = self.log.next_offset
        for _ in range(6 * jobs + 6):
            self._beat()
            self._ask("x")
            running = [claim for claim, admitted in self.claims.items() if admitted]
            for claim in running:
                del self.claims[claim]
            self._take(self.log.ack(*running))
            self._take(self.log.tick(after_ms=1_000))
        assert audited(self.log) == []
        if jobs:
            ended = self.log.summary()["acked"] + self.purged
            assert ended == jobs, "every job came to an end"
        left = [key for key in self.log.rows if key.startswith(("a:", "n:", "j:", "l:"))]
        assert left == []
        self.log.assert_replays([3], reload_at=frozenset(range(1, 60, 3)))

    def _beat(self) -> None:
        capacity = max(0, self.room - len(self.claims))
        self._take(self.log.beat(capacity=capacity, claims=list(self.claims)))

    def _ask(self, key: str) -> None:
        asking = [claim for claim, admitted in self.claims.items() if not admitted]
        if not asking:
            return
        outs = self.log.ask(*asking, throttle=key, concurrency=key, singleton=key, debounce=key)
        for claim, answer in zip(asking, answers(outs).split(), strict=True):
            if answer == "admitted":
                self.claims[claim] = True
            else:
                del self.claims[claim]
        self._take(outs)

    def _take(self, outs: list[Out]) -> None:
        self.claims.update(granted(outs))


TestEveryGate = EveryGate.TestCase
TestEveryGate.settings = settings(max_examples=50, stateful_step_count=25)


@given(
    most=st.integers(1, 3),
    words=st.lists(
        st.sampled_from([1, 2, 5]).map(lambda count: ("enqueue", count))
        | st.sampled_from([1, 400, 1_000, 2_500]).map(lambda after_ms: ("wait", after_ms))
        | st.just(("purge", 0)),
        max_size=12,
    ),
)
@settings(max_examples=100)
def test_a_throttle_plans_starts_for_those_who_wait_and_for_nobody_else(
    most: int, words: list[tuple[str, int]]
) -> None:
    log = SchedulerLog(worker_ttl_ms=FOREVER_MS)
    log.register(triage={"throttle": {"max": most, "period_ms": 1_000}})
    log.beat(capacity=100)
    for word, number in words:
        match word:
            case "enqueue":
                outs = log.ready(*["a"] * number)
                outs += log.ask(*granted(outs))
            case "wait":
                outs = log.tick(after_ms=number)
            case _:
                outs = log.purge()
        log.ack(*admitted(outs))
        waiting = sum(key.startswith("a:") for key in log.rows)
        starts = [
            int.from_bytes(row["planned"][at : at + 6])
            for key, row in log.rows.items()
            if key.startswith("s:") and row["planned"] != b"="
            for at in range(0, len(row["planned"]), 6)
        ]
        due = [row["not_before_ms"] for key, row in log.rows.items() if key.startswith("n:")]
        assert len(due) == waiting
        yet_to_come = [at_ms for at_ms in starts if at_ms > log.now_ms]
        assert yet_to_come == sorted(due)[-most:] if due else yet_to_come == []
