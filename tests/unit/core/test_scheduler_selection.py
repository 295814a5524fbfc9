"""Which job the scheduler selects next, by SEMANTICS 5.6 and 6.8, as decided in DESIGN 7."""

from __future__ import annotations

import pytest

from tests.support.scheduler_log import SchedulerLog, claimed, keys, ready_job
from tests.support.stage_log import START_MS


def drr(**fields: object) -> SchedulerLog:
    return SchedulerLog(strategy="drr", **fields)


def backlog(log: SchedulerLog, per_key: int, *tenants: str) -> None:
    log.ready(*[each for each in tenants for _ in range(per_key)])


@pytest.mark.parametrize(
    ("weights", "quantum", "tenants", "picks", "expected", "rounds"),
    [
        pytest.param({"a": 3}, 1, "a b", 12, "a b a a b a a a b a a a", 3, id="6-01"),
        pytest.param({}, 1, "a b", 8, "a b a b a b a b", 4, id="6-02"),
        pytest.param(
            {"a": 3, "b": 2}, 1, "a b c", 18, "a b c a b a b c a b a a b c a b a a", 3, id="6-04"
        ),
        pytest.param({}, 2, "a b", 12, "a b a b a b a b a b a b", 3, id="6-05"),
        pytest.param({"a": 3}, 2, "a b", 16, "a b a b a a a a b a b a a a a a", 2, id="6-06"),
    ],
)
def test_drr_selects_in_this_order(
    weights: dict[str, int], quantum: int, tenants: str, picks: int, expected: str, rounds: int
) -> None:
    log = drr(weights=weights, quantum=quantum)
    backlog(log, picks, *tenants.split())
    assert keys(log.beat(capacity=picks)) == expected
    found = log.summary()
    assert found["rounds_completed"] == rounds
    for key in found["keys"]:  # SEMANTICS 6.5
        given = key["weight"] * quantum * rounds
        assert key["selected_total"] + key["deficit"] == given


def test_6_09_keys_run_dry() -> None:
    log = drr()
    log.ready(*"aaabcc")
    assert keys(log.beat(capacity=9)) == "a b c a c a"
    assert log.summary()["rounds_completed"] == 3


def test_6_10_a_heavy_key_beside_one_that_is_not() -> None:
    log = drr(weights={"vip": 4})
    log.ready(*["hot"] * 6, *["vip"] * 6)
    expected = "hot vip vip vip vip hot vip vip hot hot hot hot"
    assert keys(log.beat(capacity=12)) == expected
    assert log.summary()["rounds_completed"] == 6


@pytest.mark.parametrize("strategy", ["fifo", "drr"])
def test_6_13_and_6_14_a_key_at_its_cap_is_passed_over_and_counted(strategy: str) -> None:
    log = SchedulerLog(strategy=strategy, max_concurrent_per_key=1)
    log.ready("a", "a", "b", "b")
    assert keys(log.beat(capacity=1)) == "a"
    assert keys(log.beat(capacity=1, claims=["0.1"])) == "b"
    assert keys(log.beat(capacity=1, claims=["0.1", "2.1"])) == ""
    counted = {key["fairness_key"]: key["deferred_total"] for key in log.summary()["keys"]}
    assert counted == {"a": 2, "b": 1}
    assert claimed(log.ack("0.1")) == ["1.1"], "the record that frees a slot grants the next job"


def test_6_16_the_oldest_job_of_a_key_is_promoted_whatever_its_rank() -> None:
    log = drr(starvation_age_ms=1_000)
    low = ready_job(0, "a", priority="low")
    high = ready_job(1, "a", priority="high", occurred_at_ms=START_MS + 4_900)
    other = ready_job(2, "b", occurred_at_ms=START_MS + 4_950)
    log.now_ms += 5_000
    log.relay([low, high, other], 0)
    assert claimed(log.beat()) == ["0.1"]
    assert log.summary()["starvation_promotions_total"] == 1


@pytest.mark.parametrize(("after_ms", "promotions"), [(1_000, 1), (999, 0)])
def test_6_17_and_6_18_the_age_counts_from_its_boundary(after_ms: int, promotions: int) -> None:
    log = drr(starvation_age_ms=1_000)
    log.ready("b", "a")
    log.now_ms += after_ms
    assert keys(log.beat()) == "a"
    assert log.summary()["starvation_promotions_total"] == promotions


def test_mode_key_promotes_who_waits_since_it_was_served() -> None:
    log = drr(starvation_age_ms=1_000, starvation_mode="key")
    log.ready(*"aaaa")
    log.now_ms += 5_000
    log.ready("b", occurred_at_ms=log.now_ms)
    assert keys(log.beat(capacity=2)) == "a b", "a is served once for its age, then in turn"
    assert log.summary()["starvation_promotions_total"] == 1, (
        "b has not waited, though never served"
    )


def test_mode_key_takes_of_a_starving_key_the_job_that_comes_first() -> None:
    log = drr(starvation_age_ms=1_000, starvation_mode="key")
    log.ready("a", priority="low")
    log.now_ms += 1_000
    log.ready("a", priority="high", occurred_at_ms=log.now_ms)
    outs = log.beat()
    assert [(out.value["claim_id"], out.value["promoted"]) for out in outs[:1]] == [("1.1", True)]


def test_6_20_fifo_goes_by_rank_then_age() -> None:
    log = SchedulerLog()
    jobs = [
        ready_job(0, priority="low", occurred_at_ms=START_MS - 900),
        ready_job(1, priority="high", occurred_at_ms=START_MS - 950),
        ready_job(2, occurred_at_ms=START_MS - 800),
    ]
    log.relay(jobs, 0)
    assert claimed(log.beat(capacity=3)) == ["1.1", "2.1", "0.1"]


@pytest.mark.parametrize("strategy", ["fifo", "drr"])
@pytest.mark.parametrize(("age_ms", "first"), [(899_999, "1.1"), (900_000, "0.1")])
def test_5_04_and_5_05_normal_is_promoted_after_fifteen_minutes(
    strategy: str, age_ms: int, first: str
) -> None:
    log = SchedulerLog(strategy=strategy, starvation_age_ms=0)
    log.ready("a")
    log.now_ms += age_ms
    log.ready("a", priority="high", occurred_at_ms=log.now_ms)
    assert claimed(log.beat()) == [first]


@pytest.mark.parametrize("strategy", ["fifo", "drr"])
def test_a_normal_job_that_counts_as_high_goes_behind_older_high_ones(strategy: str) -> None:
    log = SchedulerLog(strategy=strategy, starvation_age_ms=0)
    log.ready("a", priority="high")
    log.ready("a", occurred_at_ms=START_MS + 1)
    log.now_ms += 900_001
    assert claimed(log.beat(capacity=2)) == ["0.1", "1.1"]


def test_a_job_that_comes_back_is_promoted_for_its_own_age() -> None:
    log = drr(starvation_age_ms=1_000)
    log.ready("a")
    log.beat()
    log.ready("a", "b", occurred_at_ms=START_MS + 500)
    log.now_ms += 1_000
    assert keys(log.beat("w2")) == "b", "the oldest job that waits is not old enough"
    outs = log.release("0.1")
    assert [
        (out.value["claim_id"], out.value["promoted"]) for out in outs if out.kind == "job_claimed"
    ] == [("0.2", True)]


def test_5_06_low_is_never_promoted_by_rank() -> None:
    log = SchedulerLog()
    log.ready("a", priority="low")
    log.now_ms += 11 * 86_400_000
    log.ready("a", occurred_at_ms=log.now_ms)
    assert claimed(log.beat()) == ["1.1"]


@pytest.mark.parametrize("quantum", [1, 2, 5])
@pytest.mark.parametrize("weights", [{}, {"a": 3}, {"a": 3, "b": 2}, {"a": 7, "c": 4, "d": 2}])
def test_at_every_prefix_each_key_has_its_share_within_a_round(
    weights: dict[str, int], quantum: int
) -> None:
    tenants, picks = "abcd", 400
    log = drr(weights=weights, quantum=quantum, starvation_age_ms=0)
    backlog(log, picks, *tenants)
    order = keys(log.beat(capacity=picks)).split()
    assert len(order) == picks
    weight = {key: weights.get(key, 1) for key in tenants}
    whole, largest = sum(weight.values()), max(weight.values())
    for key in tenants:
        selected = 0
        for number, chosen in enumerate(order, start=1):
            selected += chosen == key
            share = number * weight[key] / whole
            assert abs(selected - share) <= (weight[key] + largest) * quantum
