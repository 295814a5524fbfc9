"""The scheduler's fold: selection and leases by SEMANTICS 5.6 and 6.8, as decided in DESIGN 7."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streams.codec import Codec
from streams.core.revision import RevisionGap
from streams.core.scheduler.summary import KEYS_MAX
from streams.engine import MAX_RECORD_BYTES, FoldFailed
from tests.support.revisions import revision
from tests.support.scheduler_log import SchedulerLog, claimed, keys, ready_job, said
from tests.support.stage_log import START_MS, Out, StageLog


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


def test_5_06_low_is_never_promoted_by_rank() -> None:
    log = SchedulerLog()
    log.ready("a", priority="low")
    log.now_ms += 11 * 86_400_000
    log.ready("a", occurred_at_ms=log.now_ms)
    assert claimed(log.beat()) == ["1.1"]


def test_5_02_a_job_is_claimed_acked_and_gone() -> None:
    log = SchedulerLog()
    log.ready("a")
    outs = log.beat()
    assert [out.kind for out in outs] == ["job_claimed", "jobs_granted"]
    granted = outs[1].value
    assert (granted["consumer_id"], granted["jobs"][0]["body"]) == ("w1", b"body")
    assert log.summary()["in_flight"] == 1
    assert said(log.ack("0.1")) == ["job_acked"]
    found = log.summary()
    assert (found["ready"], found["in_flight"], found["acked"]) == (0, 0, 1)
    assert not [key for key in log.rows if key[0] in "jln"]
    assert [out.value["reason"] for out in log.ack("0.1")] == ["unknown_job"]


def test_5_10_and_5_12_an_expired_claim_is_superseded_and_its_holder_refused() -> None:
    log = SchedulerLog()
    log.ready("a")
    log.beat(ttl_ms=1_000)
    log.beat("w2", 2)
    assert said(log.tick(999)) == []
    assert said(log.tick(1)) == ["claim_expired", "job_claimed"]
    refused = log.ack("0.1")[0].value
    assert (refused["reason"], refused["current_claim_id"]) == ("superseded", "0.2")
    assert [out.value["reason"] for out in log.renew("0.1")] == ["superseded"]
    assert said(log.ack("0.2", worker="w2")) == ["job_acked"]


def test_5_09_an_expired_claim_that_nobody_superseded_still_counts() -> None:
    log = SchedulerLog()
    log.ready("a", "a")
    log.beat(capacity=2, ttl_ms=1_000)
    log.beat(capacity=0, claims=["0.1", "1.1"], draining=True)
    assert said(log.tick(1_000)) == ["claim_expired"] * 2
    assert said(log.renew("0.1")) == ["claim_renewed"]
    assert said(log.ack("1.1")) == ["job_acked"]
    assert said(log.ack("0.1")) == ["job_acked"]


def test_5_13_a_purge_takes_only_what_nobody_holds() -> None:
    log = SchedulerLog()
    log.ready("a", "a")
    log.beat()
    outs = log.purge()
    assert [out.kind for out in outs] == ["job_purged", "purge_answered"]
    assert outs[1].value["purged"] == 1
    assert said(log.ack("0.1")) == ["job_acked"]


def kinds(outs: Sequence[Out]) -> list[str]:
    return [out.kind for out in outs]


def test_5_18_a_drain_gets_no_job_twice() -> None:
    log = SchedulerLog()
    log.ready("a")
    log.beat(once=True)
    assert said(log.release("0.1")) == ["job_released"]
    assert [out.kind for out in log.beat(once=True)] == ["nothing_ready"]
    assert claimed(log.beat("w2", incarnation="other")) == []
    assert claimed(log.beat(once=True, draining=True)) == ["0.2"]


def test_a_purge_takes_what_waits_for_a_drain_to_end() -> None:
    log = SchedulerLog()
    log.ready("a", "a")
    log.beat(capacity=2, once=True, ttl_ms=1_000)
    log.beat(capacity=2, claims=["0.1", "1.1"], once=True, ttl_ms=1_000)
    assert said(log.tick(1_000)) == ["claim_expired"] * 2
    assert log.summary()["delayed"] == 2
    outs = log.purge()
    assert said(outs) == ["job_purged"] * 2
    assert [log.summary()[name] for name in ("ready", "delayed", "purged")] == [0, 0, 2]
    assert claimed(log.beat(capacity=2, once=True, draining=True)) == []
    assert [out.value["reason"] for out in log.ack("0.1")] == ["unknown_job"]


def test_a_claim_that_runs_out_leaves_its_worker_no_more_room_than_it_said() -> None:
    log = SchedulerLog()
    log.ready("a", "a", "a")
    log.beat(capacity=2, ttl_ms=1_000)
    # Both have failed: they hold no place, and keep their claims until these run out.
    assert claimed(log.beat(capacity=2, claims=["0.1", "1.1"], ttl_ms=1_000)) == ["2.1"]
    log.renew("2.1")
    assert said(log.tick(1_000)) == ["claim_expired"] * 2 + ["job_claimed"]
    assert claimed(log.ack("2.1")) == ["1.2"]
    assert claimed(log.ack("0.2")) == []


def test_a_repeat_of_the_relay_is_dropped() -> None:
    log = SchedulerLog()
    log.ready("a", "a")
    log.beat(capacity=9)
    log.ack("0.1", "1.1")
    assert log.relay([ready_job(0), ready_job(1), ready_job(2)], 0)[0].value["claim_id"] == "2.1"


def test_a_new_incarnation_releases_the_claims_of_the_one_before() -> None:
    log = SchedulerLog()
    log.ready("a")
    log.beat()
    outs = log.beat(incarnation="i2")
    assert said(outs) == ["job_released", "job_claimed"]
    [told] = log.beat()
    assert (told.kind, told.topic) == ("worker_replaced", "worker.deliveries")
    assert told.value == {"consumer_id": "w1", "incarnation": "i1"}
    assert log.beat(draining=True) == [], "who is about to leave needs no word"
    assert [out.value["reason"] for out in log.ack("0.1")] == ["superseded"]


def test_a_claim_that_two_heartbeats_do_not_list_is_released() -> None:
    log = SchedulerLog()
    log.ready("a")
    log.beat()
    assert said(log.beat()) == []
    assert said(log.beat()) == ["job_released", "job_claimed"]


def test_a_worker_that_divides_its_room_hears_where_jobs_wait_for_it() -> None:
    log = SchedulerLog(strategy="drr", weights={"a": 3, "b": 2}, max_concurrent_per_key=1)
    assert kinds(log.beat(capacity=0, divided=True)) == []
    log.ready("a", "a", "b", "c")
    [told] = log.beat(capacity=0, divided=True)
    assert told.value == {"consumer_id": "w1", "incarnation": "i1", "partition": 0, "weight": 6}
    assert kinds(log.beat(capacity=0)) == [], "who does not ask is not told"
    # A key at its cap waits for no room.
    outs = log.beat(capacity=1, divided=True)
    assert keys(outs) == "a"
    assert [out.value["weight"] for out in outs if out.kind == "jobs_waiting"] == [3]
    outs = log.beat(capacity=2, claims=["0.1"], divided=True)
    assert (keys(outs), kinds(outs)[-1]) == ("b c", "jobs_granted")


def test_room_that_is_taken_back_goes_as_claims_end() -> None:
    log = SchedulerLog()
    log.ready("a", "a", "a", "a", "a")
    log.beat(capacity=3)
    assert claimed(log.beat(capacity=-2, claims=["0.1", "1.1", "2.1"])) == []
    assert claimed(log.ack("0.1")) == []
    assert claimed(log.ack("1.1")) == []
    assert claimed(log.ack("2.1")) == ["3.1"]
    assert claimed(log.beat(capacity=-9, claims=["3.1"])) == []
    assert claimed(log.ack("3.1")) == []
    assert claimed(log.beat(capacity=1)) == ["4.1"]


def test_a_drain_without_room_here_hears_whether_anything_is_left() -> None:
    log = SchedulerLog()
    assert kinds(log.beat(capacity=0, once=True, divided=True)) == ["nothing_ready"]
    log.ready("a")
    assert kinds(log.beat(capacity=0, once=True, divided=True)) == ["jobs_waiting"]
    assert claimed(log.beat(capacity=1, once=True, divided=True)) == ["0.1"]
    log.ack("0.1")
    assert kinds(log.beat(capacity=0, once=True, divided=True)) == ["nothing_ready"]


def test_a_silent_worker_is_given_nothing() -> None:
    log = SchedulerLog(worker_ttl_ms=1_000)
    log.beat()
    log.tick(1_000)
    assert said(log.ready("a")) == []


def test_a_job_dies_of_too_many_deliveries() -> None:
    log = SchedulerLog(max_deliveries=2)
    log.ready("a")
    log.beat(ttl_ms=1_000)
    log.beat(capacity=1, ttl_ms=1_000, claims=["0.1"])
    assert said(log.tick(1_000)) == ["claim_expired", "job_claimed"]
    outs = log.tick(1_000)
    assert said(outs) == ["claim_expired", "job_dead"]
    assert outs[1].value["body"] == b"body"
    assert log.summary()["dead"] == 1


def test_a_full_queue_refuses_on_record() -> None:
    log = SchedulerLog(max_waiting=2)
    outs = log.ready("a", "a", "a")
    assert [(out.kind, out.value["reason"]) for out in outs] == [("job_dead", "queue_full")]


def test_work_spreads_over_the_workers_that_have_room() -> None:
    log = SchedulerLog()
    log.beat("w1", 2)
    log.beat("w2", 2)
    outs = log.ready("a", "a", "a", "a")
    holders = [out.value["consumer_id"] for out in outs if out.kind == "job_claimed"]
    assert sorted(holders) == ["w1", "w1", "w2", "w2"]


def test_a_policy_change_keeps_credit_and_counts_and_everything_replays() -> None:
    log = drr(weights={"a": 3})
    log.ready(*"aaaaaabbbbbbcccccc")
    log.beat(capacity=5)
    log.policy(strategy="drr", weights={"b": 2}, max_concurrent_per_key=2)
    log.beat(capacity=3, claims=["0.1", "6.1"])
    log.policy(strategy="fifo")
    log.beat("w2", 2)
    log.policy(strategy="drr", fairness_key="binding")
    log.tick(301_000)
    log.beat(capacity=4)
    log.purge()
    for cuts in ([1], [3], [100]):
        log.assert_replays(cuts, frozenset({1, 2, 5, 8}))


def test_a_change_of_dimension_stores_nothing_of_a_queue_that_never_had_a_job() -> None:
    log = drr()
    log.beat()
    log.policy(strategy="drr", fairness_key="binding")
    assert "q:triage" not in log.rows
    log.tick(60_000)
    log.ready("a")
    log.assert_replays([1], frozenset(range(6)))


def deferrals(log: SchedulerLog) -> dict[str, int]:
    return {key["fairness_key"]: key["deferred_total"] for key in log.summary()["keys"]}


def test_deferrals_are_counted_by_the_cap_and_the_dimension_in_force() -> None:
    log = drr(max_concurrent_per_key=1)
    log.ready(*"aaabbb")
    held = claimed(log.beat(capacity=3))  # a, then b past it, then one look in vain
    assert deferrals(log) == {"a": 2, "b": 1}
    held += claimed(log.policy(strategy="drr", max_concurrent_per_key=2))
    assert len(held) == 3
    assert deferrals(log) == {"a": 2, "b": 1}, "nobody was at the cap that is in force"
    log.policy(strategy="drr", max_concurrent_per_key=1)  # there is no room, and no look
    log.beat(capacity=1, claims=held)
    assert deferrals(log) == {"a": 3, "b": 2}
    log.policy(strategy="drr", max_concurrent_per_key=1, fairness_key="binding")
    assert deferrals(log) == {"triage@v1": 1}
    log.beat(capacity=1, claims=held)
    assert deferrals(log) == {"triage@v1": 2}
    log.policy(strategy="drr", max_concurrent_per_key=1)
    assert deferrals(log) == {"a": 4, "b": 3}
    log.assert_replays([3], frozenset({1, 3, 5, 8}))


def test_keys_of_a_dimension_that_comes_back_have_the_credit_that_they_had() -> None:
    log = drr(quantum=3)
    log.ready(*"ab" * 30)
    done = claimed(log.beat(capacity=3))
    before = {key["fairness_key"]: key["deficit"] for key in log.summary()["keys"]}
    assert before == {"a": 1, "b": 2}
    log.policy(strategy="drr", quantum=3, fairness_key="binding")
    for _ in range(5):
        done = claimed(log.ack(*done))
    log.policy(strategy="drr", quantum=3)
    assert {key["fairness_key"]: key["deficit"] for key in log.summary()["keys"]} == before
    assert keys(log.ack(*done)) == "a b b"
    log.assert_replays([3], frozenset({1, 4, 7, 9}))


# ---------------------------------------------------------------------- revisions
def test_a_missing_revision_stops_the_partition_and_nothing_is_granted_meanwhile() -> None:
    log = drr()
    log.ready("a")
    log.revision += 1
    before = log.rows
    with pytest.raises(FoldFailed, match="revision 3 follows 1: 2 is missing") as failed:
        log.policy(strategy="fifo")
    assert isinstance(failed.value.__cause__, RevisionGap)
    assert log.rows == before


def test_a_repeated_or_an_older_revision_does_nothing() -> None:
    log = drr(weights={"a": 3})
    log.policy(strategy="drr", weights={"a": 2})
    before = log.rows
    for number in (0, 1):
        log.revision = number
        assert log.policy(strategy="fifo") == []
    assert log.rows == before
    assert log.summary()["policy"]["weights"] == {"a": 2}


def test_a_mailbox_that_is_younger_than_the_registry_begins_at_the_revision_in_force() -> None:
    log = StageLog("scheduler")
    log.add("revision_published", revision(7))
    log.add("revision_published", revision(8))
    assert log.rows["revision"]["revision"] == 8
    with pytest.raises(FoldFailed, match="revision 10 follows 8: 9 is missing"):
        log.add("revision_published", revision(10))


# ---------------------------------------------------------------------- fairness
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


def queues_of(log: SchedulerLog) -> set[str]:
    return set(log.memory.state.index.queues)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("ack_requested", {"acks": []}),
        ("release_requested", {"claims": [], "reason": None}),
        ("gates_requested", {"jobs": []}),
    ],
)
def test_queues_that_words_about_claims_merely_name_are_not_kept(
    kind: str, fields: dict[str, object]
) -> None:
    log = drr()
    log.ready("a")
    worker = {"consumer_id": "w1", "incarnation": "i1"}
    for number in range(20):
        log.add(kind, {**worker, **fields, "queue": f"none-{number}"})
    assert queues_of(log) == {"triage"}


def test_queues_that_renewals_purges_and_summaries_merely_name_are_not_kept() -> None:
    log = drr()
    log.ready("a")
    named = [
        {"queue": f"none-{number}", "job_event_id": "0", "claim_id": "0.1"} for number in range(100)
    ]
    worker = {"consumer_id": "w1", "incarnation": "i1", "claim_ttl_ms": 1_000}
    assert log.add("renew_requested", {**worker, "claims": named}) == []
    log.add(
        "purge_requested",
        {
            "queue": "none",
            "request_id": "r",
            "deliveries_partition": None,
            "purged_by": "someone",
            "reason": None,
        },
    )
    log.add("summary_requested", {"queue": "none", "request_id": "r"})
    assert queues_of(log) == {"triage"}


def test_queues_that_only_a_worker_knows_go_with_it() -> None:
    log = drr()
    log.ready("a")
    log.beat(queues=["triage", "empty-1", "empty-2"])
    assert queues_of(log) == {"triage", "empty-1", "empty-2"}
    log.beat(queues=["triage", "empty-2"], claims=["0.1"])
    assert queues_of(log) == {"triage", "empty-2"}
    log.now_ms += 3_600_000
    log.ready("b")  # the worker's time is over
    assert queues_of(log) == {"triage"}


def test_a_summary_of_the_longest_names_and_all_weights_fits_into_a_record() -> None:
    long = "\N{GRINNING FACE}" * 250
    weights = {f"{number:0100}": 1 for number in range(1_000)}
    log = drr(fairness_key="tenant_and_binding", weights=weights)
    tenants = [f"{long}{number:06}" for number in range(KEYS_MAX + 1)]
    log.ready(*tenants, binding_key=f"{long}{long[:6]}@v2147483647")
    found = log.summary()
    assert (len(found["keys"]), found["other_keys"]["ready_jobs"]) == (KEYS_MAX, 1)
    assert len(Codec().encode("queue_summary", found)) <= MAX_RECORD_BYTES
