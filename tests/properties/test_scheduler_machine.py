"""Jobs come, are granted, done, given back and run out, in any order: the scheduler decides as the
slow model does, whatever batches its log is cut into and wherever it is loaded anew."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.fair_turns import assert_fair
from tests.support.scheduler_log import SchedulerLog, claimed, ready_job
from tests.support.scheduler_model import Job, Model

TENANTS = ("a", "b", "c", "d")
FOREVER_MS = 80_000_000
TTL_MS = 60_000

_JOBS = st.lists(
    st.tuples(
        st.sampled_from(TENANTS), st.sampled_from("xy"), st.sampled_from(["high", "normal", "low"])
    ),
    min_size=1,
    max_size=8,
)


class SchedulerMachine(RuleBasedStateMachine):
    """One queue, one worker, every policy."""

    log: SchedulerLog
    model: Model

    @initialize(
        strategy=st.sampled_from(["fifo", "drr"]),
        weights=st.dictionaries(st.sampled_from(TENANTS), st.integers(1, 4)),
        quantum=st.integers(1, 3),
        cap=st.sampled_from([0, 0, 1, 2]),
        starvation_ms=st.sampled_from([0, 5_000, 1_000_000]),
    )
    def begin(
        self, strategy: str, weights: dict[str, int], quantum: int, cap: int, starvation_ms: int
    ) -> None:
        self.model = Model(strategy, weights, quantum, cap, starvation_ms)
        self.log = SchedulerLog(**self._policy)

    @property
    def _policy(self) -> dict[str, Any]:
        model = self.model
        return {
            "strategy": model.strategy,
            "fairness_key": model.dimension,
            "weights": model.weights,
            "quantum": model.quantum,
            "max_concurrent_per_key": model.cap,
            "starvation_age_ms": model.starvation_ms,
            "worker_ttl_ms": FOREVER_MS,
            "max_deliveries": 0,
        }

    @rule(
        cap=st.sampled_from([0, 1, 2]),
        dimension=st.sampled_from(["tenant", "binding"]),
        weights=st.dictionaries(st.sampled_from((*TENANTS, "x")), st.integers(1, 4)),
        strategy=st.sampled_from(["fifo", "drr", "drr"]),
    )
    def change(self, cap: int, dimension: str, weights: dict[str, int], strategy: str) -> None:
        before, model = self._policy, self.model
        model.cap, model.dimension = cap, dimension
        model.weights, model.strategy = weights, strategy
        outs = self.log.policy(**self._policy)
        if self._policy == before:
            assert outs == []
        else:
            self._agree(claimed(outs))

    @rule(jobs=_JOBS)
    def enqueue(self, jobs: list[tuple[str, str, str]]) -> None:
        log, first = self.log, self.log.next_offset
        told: list[dict[str, Any]] = []
        for number, (tenant, binding, priority) in enumerate(jobs, start=first):
            at_ms = log.now_ms
            fields = {"binding_key": binding, "priority": priority, "occurred_at_ms": at_ms}
            told.append(ready_job(number, tenant, **fields))
            self.model.jobs[number] = Job(number, tenant, binding, priority, at_ms)
        log.next_offset += len(jobs)
        self._agree(claimed(log.relay(told, first)))

    @rule(capacity=st.integers(0, 6))
    def beat(self, capacity: int) -> None:
        held = [job.claim_id for job in self.model.held]
        self.model.slots = len(held) + capacity
        self._agree(claimed(self.log.beat(capacity=capacity, claims=held, ttl_ms=TTL_MS)))

    @rule(chance=st.randoms(use_true_random=False))
    def ack(self, chance: Any) -> None:
        chosen = self._some_held(chance)
        if chosen:
            for job in chosen:
                del self.model.jobs[job.number]
            self._agree(claimed(self.log.ack(*(job.claim_id for job in chosen))))

    @rule(chance=st.randoms(use_true_random=False))
    def release(self, chance: Any) -> None:
        chosen = self._some_held(chance)
        if chosen:
            claims = [job.claim_id for job in chosen]
            for job in chosen:
                job.held = False
            self._agree(claimed(self.log.release(*claims)))

    @rule(chance=st.randoms(use_true_random=False))
    def renew(self, chance: Any) -> None:
        chosen = self._some_held(chance)
        if chosen:
            self._agree(claimed(self.log.renew(*(j.claim_id for j in chosen), ttl_ms=TTL_MS)))

    @rule(after_ms=st.sampled_from([1, 500, 5_000, 20_000]))
    def pass_time(self, after_ms: int) -> None:
        """Time passes that no claim outlives: each is renewed first."""
        held = [job.claim_id for job in self.model.held]
        if held:
            self._agree(claimed(self.log.renew(*held, ttl_ms=TTL_MS)))
        self.log.now_ms += after_ms

    @rule()
    def run_out(self) -> None:
        """Nobody renews: every claim ends, and its job is there again."""
        for job in self.model.held:
            job.held, job.open = False, True
            self.model.slots -= 1  # it leaves no room: its worker says what it has
        self._agree(claimed(self.log.tick(after_ms=TTL_MS)))

    @rule(chance=st.randoms(use_true_random=False))
    def renew_late(self, chance: Any) -> None:
        """A claim that has merely run out comes back, unless its key's places are others'."""
        chosen = self._some(self.model.open, chance)
        if chosen:
            expected = [self.model.revive(job) for job in chosen]
            outs = self.log.renew(*(job.claim_id for job in chosen), ttl_ms=TTL_MS)
            words = [out.kind for out in outs if out.kind in ("claim_renewed", "claim_refused")]
            assert words == ["claim_renewed" if each else "claim_refused" for each in expected]
            self._agree(claimed(outs))

    @rule(chance=st.randoms(use_true_random=False))
    def ack_late(self, chance: Any) -> None:
        """What is done is done, though the claim has run out."""
        chosen = self._some(self.model.open, chance)
        if chosen:
            for job in chosen:
                del self.model.jobs[job.number]
            self._agree(claimed(self.log.ack(*(job.claim_id for job in chosen))))

    @invariant()
    def counts(self) -> None:
        if not self.log.next_offset:
            return
        found = self.log.summary()
        model = self.model
        assert found["ready"] == len(model.jobs) - len(model.held)
        assert found["in_flight"] == len(model.held)
        assert found["rounds_completed"] == model.rounds
        assert found["starvation_promotions_total"] == model.promotions
        for key in found["keys"]:
            name = model.dimension, key["fairness_key"]
            assert key["deficit"] == model.credit.get(name, 0), name
            assert key["selected_total"] == model.selected.get(name, 0), name
            assert key["deferred_total"] == model.deferred.get(name, 0), name

    def teardown(self) -> None:
        if hasattr(self, "log"):
            assert_fair(self.log)
            self.log.assert_replays([3], reload_at=frozenset(range(1, 60, 3)))

    def _agree(self, claims: list[str]) -> None:
        assert claims == self.model.grant(self.log.now_ms)

    def _some_held(self, chance: Any) -> list[Job]:
        return self._some(self.model.held, chance)

    def _some(self, jobs: list[Job], chance: Any) -> list[Job]:
        return chance.sample(jobs, chance.randint(0, len(jobs)))


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=250, stateful_step_count=40)
