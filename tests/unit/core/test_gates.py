"""The gates, one vector after the other (SEMANTICS 3.10 and the decisions that replace some)."""

from __future__ import annotations

import json

import pytest

from streams.core.flow import Window
from streams.core.gate import window
from streams.testing import event
from tests.support.gate_log import KEY, GateLog

S = 1_000


def test_a_rate_limit_lets_a_sliding_window_pass_and_skips_the_rest() -> None:
    log = GateLog({"rate_limit": {"period_ms": 60 * S, "max": 2}})
    for name, at in zip("abcdef", (0, 10, 59.999, 60, 69, 70), strict=True):
        log.arrive(name, at)
    assert sorted(log.starts()) == ["a", "b", "d", "f"]
    assert log.skips == {"c": "rate_limited", "e": "rate_limited"}
    assert log.kinds().count("rate_limit_blocked") == 2
    assert {out.topic for out in log.decisions} == {"trigger.rate_limit.triage"}
    assert log.decisions[0].value["gate"] == f"{KEY}:_global"


@pytest.mark.parametrize(
    ("arrivals", "fired"),
    [
        ((0, 20, 45), {"c": 75}),
        ((0, 30.5), {"a": 30, "b": 60.5}),
        ((0, 30), {"a": 30, "b": 60}),
    ],
)
def test_debounce_fires_the_last_of_a_burst(
    arrivals: tuple[float, ...], fired: dict[str, float]
) -> None:
    log = GateLog({"debounce": {"key": "k", "period_ms": 30 * S}})
    for name, at in zip("abc", arrivals, strict=False):
        log.arrive(name, at, keys={"debounce": "same"})
    log.pass_time(1_000)
    assert log.starts() == fired
    assert set(log.skips.values()) <= {"debounced"}
    assert len(log.skips) + len(fired) == len(arrivals)


def test_debounce_never_postpones_beyond_its_longest_wait() -> None:
    log = GateLog({"debounce": {"key": "k", "period_ms": 30 * S, "max_wait_ms": 50 * S}})
    for number in range(6):
        log.arrive(f"d{number}", number * 15)
    log.pass_time(1_000)
    assert log.starts()["d3"] == 50
    assert log.starts()["d5"] == 105
    assert set(log.skips) == {"d0", "d1", "d2", "d4"}


def test_debounce_keys_do_not_touch_each_other() -> None:
    log = GateLog({"debounce": {"key": "k", "period_ms": 30 * S}})
    log.arrive("a", 0, keys={"debounce": "x"})
    log.arrive("b", 1, keys={"debounce": "y"})
    log.pass_time(100)
    assert log.starts() == {"a": 30, "b": 31}


def test_a_batch_fires_at_its_size_as_its_leader_with_every_member() -> None:
    log = GateLog({"batch": {"size": 3, "timeout_ms": 10 * S}})
    for name, at in (("a", 0), ("b", 1), ("c", 2)):
        log.arrive(name, at)
    assert log.starts() == {"a": 2}
    assert log.skips == {"b": "batch_merged", "c": "batch_merged"}
    members = [json.loads(text)["id"] for text in log.events["a"]["batch"]]
    assert members == ["a", "b", "c"]
    assert log.kinds() == ["batch_enqueued"] * 3 + ["batch_dispatched"]


def test_events_of_a_batch_are_merged_wherever_they_are_kept() -> None:
    log = GateLog({"batch": {"size": 3, "timeout_ms": 10 * S}})
    for at, size in enumerate((5_000, 1, 5_000, 1, 5_000, 1)):
        log.arrive(f"d{at}", at, found=event(f"e{at}", payload="x" * size))
    assert log.starts() == {"d0": 2, "d3": 5}
    for leader in (0, 3):
        members = [json.loads(text) for text in log.events[f"d{leader}"]["batch"]]
        assert [each["id"] for each in members] == [f"e{leader + n}" for n in range(3)]
        log.end(f"d{leader}", 6)
    assert [key for key in log.rows if key[:2] in {"d:", "e:"}] == []


def test_a_batch_closes_before_it_outgrows_a_record() -> None:
    log = GateLog({"batch": {"size": 100, "timeout_ms": 10 * S}}, max_attempts=100)
    for number in range(5):
        large = event(f"e{number}", payload={"text": "x" * 110_000})
        log.arrive(f"d{number}", number, found=large)
    assert log.starts() == {"d0": 2, "d2": 4}
    assert [len(log.events[name]["batch"]) for name in ("d0", "d2")] == [2, 2]
    assert log.skips == {"d1": "batch_merged", "d3": "batch_merged"}
    log.assert_replays([1], reload_at=frozenset(range(2, 7)))
    log.pass_time(100)
    assert log.starts()["d4"] == 14, "it waits for its own time"
    for attempt in range(1, 101):
        log.end("d0", 100 + 61 * attempt, "failed", fence=attempt)
    assert log.dead == {"d0": "retry_exhausted"}, "with its history it still fits"


def test_who_is_cancelled_leaves_its_room_in_the_batch_to_others() -> None:
    log = GateLog({"batch": {"size": 100, "timeout_ms": 10 * S}})
    large = {"text": "x" * 110_000}
    for name in ("a", "b"):
        log.arrive(name, 0, found=event(name, payload=large))
    log.cancel("a", 1)
    log.arrive("c", 2, found=event("c", payload=large))
    assert log.starts() == {}
    log.pass_time(10)
    assert log.starts() == {"b": 10}
    assert [json.loads(text)["id"] for text in log.events["b"]["batch"]] == ["b", "c"]


def test_an_event_that_is_a_batch_by_itself_goes_on_alone() -> None:
    log = GateLog({"batch": {"size": 100, "timeout_ms": 10 * S}})
    log.arrive("small", 0)
    log.arrive("huge", 1, found=event("huge", payload="x" * 400_000))
    assert log.starts() == {"huge": 1}
    assert log.events["huge"]["batch"] is None
    assert log.decisions[-1].kind == "batch_dispatched"
    log.pass_time(100)
    assert log.starts()["small"] == 10


def test_a_batch_of_one_fires_at_its_timeout_and_the_next_arrival_leads_anew() -> None:
    log = GateLog({"batch": {"size": 3, "timeout_ms": 10 * S}})
    log.arrive("a", 0)
    log.pass_time(10)
    assert log.starts() == {"a": 10}
    assert len(log.events["a"]["batch"]) == 1
    log.arrive("b", 12)
    log.pass_time(100)
    assert log.starts()["b"] == 22


def test_a_singleton_skips_while_one_runs_or_waits_for_its_retry() -> None:
    log = GateLog({"singleton": {}}, backoff="svix", max_attempts=2)
    log.arrive("a", 0)
    log.arrive("b", 1)
    log.end("a", 2, "failed")
    log.arrive("c", 3)
    log.pass_time(8)
    log.end("a", 8, fence=2)
    log.arrive("d", 9)
    assert log.skips == {"b": "singleton_active", "c": "singleton_active"}
    assert log.started == {"a": [0, 7], "d": [9]}
    assert log.kinds().count("singleton_released") == 1


def test_concurrency_waiters_go_by_priority_then_arrival() -> None:
    log = GateLog(
        {
            "concurrency": {"max": 1},
            "priority": {"key": "k", "order": ["gold", "silver", "bronze"]},
        }
    )
    for name, rank in (
        ("bronze1", "bronze"),
        ("bronze2", "bronze"),
        ("gold", "gold"),
        ("odd", "?"),
    ):
        log.arrive(name, 0, keys={"priority": rank})
    for at, name in enumerate(("bronze1", "gold", "bronze2", "odd"), start=1):
        log.end(name, at)
    assert log.starts() == {"bronze1": 0, "gold": 1, "bronze2": 2, "odd": 3}


def test_concurrency_counts_each_key_alone() -> None:
    log = GateLog({"concurrency": {"max": 2}})
    for name in ("a1", "a2", "a3"):
        log.arrive(name, 0, keys={"concurrency": "acme"})
    log.arrive("g1", 0, keys={"concurrency": "globex"})
    assert sorted(log.starts()) == ["a1", "a2", "g1"]
    log.end("a1", 5)
    assert log.starts()["a3"] == 5
    assert log.decisions[0].value["gate"] == f"{KEY}:acme"


def test_a_slot_is_kept_through_retries_unless_told_otherwise() -> None:
    kept = GateLog({"concurrency": {"max": 1}}, backoff="svix", max_attempts=2)
    kept.arrive("a", 0)
    kept.arrive("b", 0)
    kept.end("a", 1, "failed")
    kept.pass_time(5)
    assert "b" not in kept.started

    given = GateLog(
        {"concurrency": {"max": 1, "release_on_retry": True}}, backoff="svix", max_attempts=2
    )
    given.arrive("a", 0)
    given.arrive("b", 0)
    given.end("a", 1, "failed")
    assert given.starts()["b"] == 1
    given.pass_time(6)
    assert given.started["a"] == [0], "its slot is taken: it waits again"
    given.end("b", 8)
    assert given.started["a"] == [0, 8]


def test_a_singleton_that_gave_its_slot_up_waits_for_it_instead_of_being_skipped() -> None:
    log = GateLog({"singleton": {"release_on_retry": True}}, backoff="svix", max_attempts=2)
    log.arrive("a", 0)
    log.end("a", 1, "failed")
    log.arrive("b", 2)
    log.pass_time(7)
    assert log.started == {"a": [0], "b": [2]}, "its slot is taken: it waits"
    log.arrive("c", 8)
    assert log.skips == {"c": "singleton_active"}
    log.end("b", 9)
    assert log.started["a"] == [0, 9]
    log.end("a", 10, fence=2)
    assert log.kinds().count("singleton_released") == 3


def test_slots_are_taken_in_order_again_and_a_full_queue_is_not_full_for_those() -> None:
    flow = {
        "singleton": {"key": "one", "release_on_retry": True},
        "concurrency": {"max": 1, "release_on_retry": True},
        "max_waiting": 1,
    }
    log = GateLog(flow, backoff="svix", max_attempts=2)
    for name in ("a", "b", "c"):
        log.arrive(name, 0, keys={"singleton": name})
    assert log.dead == {"c": "gate_full"}
    log.end("a", 1, "failed")
    log.arrive("d", 2, keys={"singleton": "d"})
    log.pass_time(6)
    assert log.started == {"a": [0], "b": [1]}
    log.end("b", 7)
    assert log.started["a"] == [0, 7], "it came before d"
    log.end("a", 8, fence=2)
    assert log.started["d"] == [8]
    log.assert_replays([3, 1, 4], reload_at=frozenset({1, 2, 3}))


def test_two_who_need_both_slots_do_not_wait_for_each_other() -> None:
    flow = {
        "singleton": {"key": "k", "release_on_retry": True},
        "concurrency": {"max": 1, "release_on_retry": True},
    }
    log = GateLog(flow, backoff="svix", max_attempts=2)
    log.arrive("again", 0, keys={"singleton": "x"})
    log.end("again", 1, "failed")
    log.arrive("other", 2, keys={"singleton": "y"})
    log.arrive("same", 3, keys={"singleton": "x"})  # has its singleton, and waits for `other`
    log.end("other", 8)  # `again` was due at 6
    log.end("same", 9)
    assert log.started == {"again": [0, 9], "other": [2], "same": [8]}


def test_who_gave_its_slot_up_waits_for_it_by_its_priority_first() -> None:
    flow = {
        "concurrency": {"max": 1, "release_on_retry": True},
        "priority": {"key": "k", "order": ["gold", "bronze"]},
    }
    log = GateLog(flow, backoff="svix", max_attempts=2)
    log.arrive("again", 0, keys={"priority": "bronze"})
    log.arrive("next", 0, keys={"priority": "bronze"})
    log.end("again", 1, "failed")
    log.arrive("gold", 2, keys={"priority": "gold"})
    log.arrive("last", 3, keys={"priority": "bronze"})
    for at, (name, fence) in enumerate((("next", 1), ("gold", 1), ("again", 2)), start=7):
        log.end(name, at, fence=fence)
    assert log.started == {"again": [0, 8], "next": [1], "gold": [7], "last": [9]}
    log.assert_replays([1], reload_at=frozenset(range(9)))


def test_too_many_waiters_are_the_dead_letter_queues() -> None:
    log = GateLog({"concurrency": {"max": 1}, "max_waiting": 2})
    for name in ("a", "b", "c", "d"):
        log.arrive(name, 0)
    assert log.dead == {"d": "gate_full"}


def test_gates_are_passed_in_order_and_tokens_spent_on_the_way_stay_spent() -> None:
    log = GateLog({"rate_limit": {"period_ms": 60 * S, "max": 2}, "singleton": {}})
    log.arrive("a", 0)
    log.arrive("b", 1)
    log.end("a", 2)
    log.arrive("c", 3)
    assert log.skips == {"b": "singleton_active", "c": "rate_limited"}


def test_what_waits_survives_a_reload_and_any_cut_of_batches() -> None:
    log = GateLog({"throttle": {"period_ms": 10 * S, "max": 1}, "concurrency": {"max": 1}})
    for number in range(6):
        log.arrive(f"d{number}", number)
    for number in range(6):
        log.end(f"d{number}", 20 + 15 * number)
    log.assert_replays([1])
    log.assert_replays([3, 1, 4])
    log.assert_replays([2], reload_at=frozenset(range(12)))


def test_a_window_outlives_the_times_that_it_can_write() -> None:
    starts = window.with_start(window.with_start(window.NONE, 1 << 47), 1 << 60)
    assert window.free_at(starts, Window(period_ms=1, max=1)) == 1 << 48
