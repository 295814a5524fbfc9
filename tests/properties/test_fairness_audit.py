"""The auditor says that turns are unfair exactly where the bound is broken, and of the scheduler's
never."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.audit.fairness_run import Run, Stake
from tests.support.fair_turns import CLAIMS, REQUESTS, assert_fair, memory_log, unfair
from tests.support.scheduler_log import SchedulerLog

NAMES = "abcd"


@settings(max_examples=400)
@given(
    weights=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    quantum=st.integers(1, 3),
    likely=st.lists(st.integers(0, 6), min_size=4, max_size=4),
    chance=st.randoms(use_true_random=False),
)
def test_a_run_tells_the_first_prefix_that_breaks_the_bound(
    weights: list[int], quantum: int, likely: list[int], chance: Random
) -> None:
    stakes = {
        name: Stake(weight, weight * quantum) for name, weight in zip(NAMES, weights, strict=False)
    }
    run = Run("here", quantum, stakes)
    chosen = chance.choices([*stakes], [each + 1 for each in likely[: len(stakes)]], k=120)
    got = dict.fromkeys(stakes, 0)
    for total, name in enumerate(chosen, start=1):
        got[name] += 1
        told = run.select(name)
        broken = any(
            abs(got[each] * sum(weights) - total * stake.weight)
            > (stake.weight + max(weights)) * quantum * sum(weights)
            for each, stake in stakes.items()
        )
        assert (told is not None) == broken
        if broken:
            return


TENANTS = "abcde"


class Everything:
    """Whatever may happen to a queue, in a random order, and much of it."""

    def __init__(self, chance: Random, **policy: Any) -> None:
        self.chance = chance
        self.said = {"strategy": "drr", "max_deliveries": 3, "worker_ttl_ms": 80_000_000, **policy}
        self.log = SchedulerLog(**self.said)
        self.claims: list[str] = []
        self.steps: list[Callable[[], object]] = [
            *[self.enqueue, self.ack] * 6,
            *[self.beat, self.release, self.pass_time, self.ask] * 2,
            *(self.drain, self.change, self.register, self.purge, self.repeat),
        ]

    def run(self, steps: int) -> None:
        self.log.beat(capacity=4)
        for _ in range(steps):
            self.chance.choice(self.steps)()
            self.log.now_ms += self.chance.choice([0, 1, 700, 3_000])
            holding = self.log.rows.get("l:triage:w1", {"claims": []})
            self.claims = [f"{each['job_event_id']}.{each['fence']}" for each in holding["claims"]]

    def enqueue(self) -> None:
        kinds = self.chance.choice(["a", "ab", TENANTS])
        jobs = self.chance.choices(kinds, k=self.chance.choice([1, 5, 40]))
        self.log.ready(*jobs, occurred_at_ms=self.log.now_ms)

    def _some(self) -> list[str]:
        return self.chance.sample(self.claims, self.chance.randint(0, len(self.claims)))

    def ack(self) -> None:
        self.log.ack(*self._some())

    def beat(self) -> None:
        self.log.beat(capacity=self.chance.randint(0, 4), claims=self._some(), ttl_ms=5_000)

    def release(self) -> None:
        self.log.release(*self._some())

    def pass_time(self) -> None:
        self.log.tick(after_ms=self.chance.choice([1, 5_000, 20_000]))

    def ask(self) -> None:
        keys = self.chance.choice("xy")
        self.log.ask(*self._some(), throttle=keys, concurrency=keys, singleton=keys)

    def register(self) -> None:
        gates: dict[str, dict[str, Any]] = {
            "throttle": {"max": self.chance.randint(1, 3), "period_ms": 1_000},
            "concurrency": {"max": self.chance.randint(1, 3)},
        }
        chosen = self.chance.sample([*gates], self.chance.randint(0, 2))
        digest = str(self.chance.random())
        self.log.register(digest, triage={name: gates[name] for name in chosen})

    def drain(self) -> None:
        name = f"d{self.chance.randint(1, 2)}"
        draining = self.chance.random() < 0.5
        self.log.beat(name, self.chance.randint(0, 3), once=True, draining=draining, ttl_ms=5_000)

    def change(self) -> None:
        chance = self.chance
        changes = {
            "quantum": chance.randint(1, 4),
            "weights": {chance.choice(TENANTS): chance.randint(1, 5)},
            "max_concurrent_per_key": chance.choice([0, 1, 3]),
            "starvation_age_ms": chance.choice([0, 4_000]),
            "starvation_mode": chance.choice(["job", "key"]),
            "fairness_key": chance.choice(["tenant", "tenant", "binding", "tenant_and_binding"]),
            "strategy": chance.choice(["drr", "drr", "drr", "fifo"]),
        }
        for name in chance.sample([*changes], chance.randint(0, 2)):
            self.said[name] = changes[name]
        self.log.policy(**self.said)

    def purge(self) -> None:
        if self.chance.random() < 0.2:
            self.log.purge()

    def repeat(self) -> None:
        """The relay says something again."""
        said = self.chance.choice(self.log.records)
        self.log.add_raw(said.value, key=said.key, headers=said.headers)


@settings(max_examples=30)
@given(
    chance=st.randoms(use_true_random=False),
    cap=st.sampled_from([0, 0, 2]),
    starvation_ms=st.sampled_from([0, 0, 4_000]),
    quantum=st.integers(1, 3),
)
def test_whatever_happens_turns_are_fair_wherever_the_log_begins(
    chance: Random, cap: int, starvation_ms: int, quantum: int
) -> None:
    everything = Everything(
        chance, max_concurrent_per_key=cap, starvation_age_ms=starvation_ms, quantum=quantum
    )
    everything.run(120)
    log = everything.log
    assert_fair(log)
    log.assert_replays([4], frozenset(range(1, 40, 5)))
    for place, end in ((REQUESTS, len(log.records)), (CLAIMS, 300)):
        kafka = memory_log(log)
        kafka.cut(place, chance.randrange(end))
        assert unfair(kafka)[0] == []
