"""The circuit of a destination in one partition, and between partitions by their words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.core.circuit import FAILURES_MAX
from streams.core.circuit_turns import RELEASED_MAX
from tests.support.circuit_words import DESTINATION, partition_of, row
from tests.support.dispatch_log import completed, matched
from tests.support.gate_log import GateLog, gated
from tests.support.revisions import revision
from tests.support.stage_log import Out, kinds

OPEN_S = 60


def opened(flow: Mapping[str, Any] | None = None, **options: Any) -> GateLog:
    """A partition whose circuit opened at 0: five events failed there and are to be retried."""
    log = GateLog(flow or {}, backoff="svix", max_attempts=7, **options)
    for number in range(FAILURES_MAX):
        log.arrive(f"f{number}", 0)
        log.end(f"f{number}", 0, "failed")
    return log


def test_five_failures_in_a_row_open_it_and_a_success_between_starts_anew() -> None:
    log = GateLog({}, backoff="svix", max_attempts=7)
    for number in range(FAILURES_MAX - 1):
        log.arrive(f"f{number}", 0)
        log.end(f"f{number}", 0, "failed")
    log.arrive("ok", 0)
    log.end("ok", 0)
    assert row(log) is None
    log.arrive("last", 0)
    log.end("last", 0, "timeout")
    found = row(log)
    assert found is not None
    assert (found["failures"], found["episodes"]) == (1, [])


def test_a_binding_without_a_circuit_opens_none() -> None:
    log = opened({"circuit": "off"})
    assert row(log) is None
    log.arrive("next", 1)
    assert log.starts()["next"] == 1


def test_a_binding_without_a_circuit_is_not_held_back_by_one() -> None:
    log = opened()
    off = gated({"circuit": "off"})
    other: Any = {**off, "trigger_id": "other", "binding_key": "other@v1"}
    log.add("revision_published", revision(2, added=[other]))
    word = {**matched("goes-on"), "trigger_id": "other", "binding_key": "other@v1"}
    assert "invoke" in kinds(log.add("event_matched", word))


def test_final_failures_do_not_count() -> None:
    log = GateLog({}, max_attempts=7)
    for number in range(2 * FAILURES_MAX):
        log.arrive(f"d{number}", 0)
        log.end(f"d{number}", 0, "denied")
    assert row(log) is None


def test_while_it_is_open_arrivals_park_and_one_of_them_probes() -> None:
    log = opened()
    log.arrive("a", 1)
    log.arrive("b", 2)
    log.pass_time(59)
    assert not {"a", "b"} & set(log.started)
    log.pass_time(60)
    assert log.started["a"] == [60], "who parked first probes"
    assert "b" not in log.started
    log.end("a", 63)
    log.pass_time(64)
    assert log.started["b"] == [63.001]
    found = row(log)
    assert found is None, "it works"


def test_a_probe_that_fails_keeps_it_open_and_another_one_is_next() -> None:
    log = opened()
    log.arrive("a", 1)
    log.arrive("b", 2)
    log.end("a", 61, "failed")
    log.pass_time(120)
    assert "b" not in log.started
    log.pass_time(121)
    assert log.started == {**{f"f{n}": [0] for n in range(5)}, "a": [60], "b": [121]}
    log.end("b", 122, "denied")
    log.pass_time(123)
    assert row(log) is None, "who says no is there"


def test_a_retry_that_is_due_parks_uncounted() -> None:
    log = opened()
    log.pass_time(6)
    assert [log.rows[f"d:f{n}"]["status"] for n in range(5)] == ["parked"] * 5
    log.pass_time(60)
    assert log.started["f0"] == [0, 60]
    log.end("f0", 61, fence=2)
    log.pass_time(62)
    assert all(log.started[f"f{n}"] == [0, 61.001] for n in range(1, 5))
    assert log.rows["d:f1"]["attempt"] == 2


def test_without_anyone_to_probe_it_closes_and_one_failure_opens_it_again() -> None:
    log = GateLog({}, max_attempts=1)
    for number in range(FAILURES_MAX):
        log.arrive(f"f{number}", 0)
        log.end(f"f{number}", 0, "failed")
    log.pass_time(60)
    found = row(log)
    assert found is not None
    assert (found["episodes"], found["failures"]) == ([], FAILURES_MAX - 1)
    log.arrive("a", 61)
    log.end("a", 61, "failed")
    log.arrive("b", 62)
    assert "b" not in log.started


def test_who_is_parked_too_long_ends_undelivered() -> None:
    log = opened({"circuit_max_park": 90_000})
    log.arrive("a", 1)
    log.arrive("b", 2)
    log.end("a", 61, "failed")
    log.pass_time(92)
    assert log.dead == {"b": "circuit_open"}


def test_parked_dispatches_are_bounded() -> None:
    log = opened({"max_waiting": 2})
    for name in ("a", "b", "c"):
        log.arrive(name, 1)
    assert log.dead == {"c": "circuit_open"}


def test_a_parked_dispatch_holds_no_slot_and_gets_it_back_in_order() -> None:
    log = GateLog({"concurrency": {"max": 1}}, backoff="immediate", max_attempts=100)
    log.arrive("a", 0)
    log.arrive("w", 0)
    for fence in range(1, FAILURES_MAX + 1):
        log.end("a", 0, "failed", fence=fence)
    assert log.rows["d:a"]["holds"] == []
    assert log.rows["d:w"]["status"] == "parked", "its turn came while the circuit is open"
    log.arrive("n", 1)
    log.pass_time(60)
    assert log.started["a"] == [0] * FAILURES_MAX + [60]
    log.end("a", 61, fence=FAILURES_MAX + 1)
    log.pass_time(62)
    assert log.started["w"] == [61.001], "it came before n"
    assert "n" not in log.started
    log.end("w", 63)
    assert log.started["n"] == [63]
    log.assert_replays([4, 1, 2], reload_at=frozenset({1, 2, 3, 5, 8}))


def test_slots_that_come_free_while_it_is_open_are_dealt_out_when_it_closes() -> None:
    log = GateLog({"concurrency": {"max": 2}}, backoff="immediate", max_attempts=100)
    for name in ("a", "b", "c", "d", "e"):
        log.arrive(name, 0)
    for fence in range(1, FAILURES_MAX + 1):
        log.end("a", 0, "failed", fence=fence)
    log.end("b", 10)  # it started before; what it says closes the circuit
    log.pass_time(11)
    assert log.starts() == {"a": 0, "b": 0, "d": 10, "e": 10}
    log.end("d", 12)
    log.end("e", 13)
    assert (log.started["a"][-1], log.started["c"]) == (12, [13]), "at their old places"
    log.end("a", 14, fence=FAILURES_MAX + 1)
    log.end("c", 15)
    assert not [key for key in log.rows if key.startswith("d:")]


def test_a_free_slot_is_not_for_who_comes_before_those_who_wait_are_called() -> None:
    log = GateLog({"concurrency": {"key": "k", "max": 1}}, backoff="immediate", max_attempts=100)
    for name, key in (("a", "x"), ("h", "y"), ("b", "y"), ("c", "y")):
        log.arrive(name, 0, keys={"concurrency": key})
    for fence in range(1, FAILURES_MAX + 1):
        log.end("a", 0, "failed", fence=fence)
    log.end("h", 1, "failed")  # it parks, and one of those who wait for its slot; the other waits
    log.end("a", 61, fence=FAILURES_MAX + 1)  # the probe: parked ones are called in a moment
    log.arrive("late", 61, keys={"concurrency": "y"})
    for at, (name, fence) in enumerate((("h", 2), ("b", 1), ("c", 1)), start=62):
        log.end(name, at, fence=fence)
    assert log.started["h"][-1] == 61.001
    assert [log.started[name] for name in ("b", "c", "late")] == [[62], [63], [64]]


def test_a_singleton_is_taken_while_those_who_gave_it_up_wait_to_be_called() -> None:
    flow = {"singleton": {"key": "k", "release_on_retry": True}}
    log = GateLog(flow, backoff="svix", max_attempts=100)
    y = {"singleton": "y"}
    log.arrive("h", 0, keys=y)
    log.end("h", 0, "failed")
    log.arrive("g", 1, keys=y)
    log.end("g", 1, "failed")
    log.arrive("f", 2, keys=y)
    log.pass_time(7)  # the retries of both wait for its slot
    for name in ("a", "b", "c"):
        log.arrive(name, 7, keys={"singleton": name})
        log.end(name, 7, "failed")
    log.arrive("probe", 7.5, keys={"singleton": "p"})
    log.end("f", 8, "denied")  # `h` is called, and parks in place of the slot; `g` still waits
    log.end("probe", 68)
    log.arrive("late", 68, keys=y)
    assert log.skips == {"late": "singleton_active"}
    log.pass_time(69)
    assert log.started["h"][-1] == 68.001


def test_another_waiter_stands_in_for_one_that_is_cancelled_while_it_is_parked() -> None:
    log = GateLog({"concurrency": {"max": 1}}, backoff="immediate", max_attempts=100)
    for name in ("a", "b", "c"):
        log.arrive(name, 0)
    for fence in range(1, FAILURES_MAX + 1):
        log.end("a", 0, "failed", fence=fence)
    assert [log.rows[f"d:{name}"]["status"] for name in "abc"] == ["parked", "parked", "gated"]
    log.cancel("a", 10)
    log.cancel("b", 11)
    log.pass_time(60)
    assert log.started["c"] == [60], "nobody holds the slot that it waited for"


def test_no_one_probes_whose_slot_somebody_holds() -> None:
    log = GateLog({"concurrency": {"key": "k", "max": 1}})
    log.arrive("runs", 0, keys={"concurrency": "y"})
    for number in range(FAILURES_MAX):
        log.arrive(f"f{number}", 0, keys={"concurrency": f"f{number}"})
        log.end(f"f{number}", 0, "failed")
    log.arrive("same", 1, keys={"concurrency": "y"})
    log.pass_time(70)
    assert "same" not in log.started
    log.arrive("other", 70, keys={"concurrency": "z"})
    log.pass_time(72)
    assert log.started["other"] == [71], "it is looked for once in a second"
    log.end("other", 72, "failed")
    log.end("runs", 73, "denied")
    log.pass_time(140)
    assert log.started["same"] == [132]


def test_gates_without_slots_are_passed_before_a_dispatch_parks() -> None:
    log = opened({"rate_limit": {"period_ms": 60_000, "max": FAILURES_MAX + 1}})
    log.arrive("a", 1)
    log.arrive("b", 2)
    assert log.skips == {"b": "rate_limited"}
    assert log.rows["d:a"]["status"] == "parked"


def test_a_singleton_skips_whom_its_destination_would_hold_back() -> None:
    log = GateLog({"singleton": {"key": "k"}})
    log.arrive("runs", 0, keys={"singleton": "y"})
    for number in range(FAILURES_MAX):
        log.arrive(f"f{number}", 0, keys={"singleton": f"f{number}"})
        log.end(f"f{number}", 0, "failed")
    log.arrive("same", 1, keys={"singleton": "y"})
    log.arrive("other", 1, keys={"singleton": "z"})
    assert log.skips == {"same": "singleton_active"}
    assert log.rows["d:other"]["status"] == "parked"


def test_many_parked_go_on_a_few_at_a_time() -> None:
    log = opened({"circuit_max_park": 3_600_000})
    names = [f"p{number}" for number in range(2 * RELEASED_MAX + 1)]
    for name in names:
        log.arrive(name, 1)
    log.end("p0", 61)
    log.pass_time(62)
    starts = [log.started[name][0] for name in names[1:]]
    assert starts == sorted(starts)
    assert starts.count(61.001) == RELEASED_MAX
    assert starts[-1] == 61.002
    log.assert_replays([7, 30, 1], reload_at=frozenset({2, 9, 30}))


def test_a_probe_that_is_cancelled_gives_way_to_another() -> None:
    log = opened()
    log.arrive("a", 1)
    log.arrive("b", 2)
    log.pass_time(60)
    word = {"binding_key": "triage@v1", "event_id": "a", "requested_at": "2026-01-01T00:00:00Z"}
    log.add("dispatch_cancel_requested", {**word, "requested_by": None, "audit_id": None})
    log.end("a", 61, "cancelled")
    log.pass_time(62)
    assert log.started["b"] == [61.001]


# ---------------------------------------------------------------------- circuit = "dlq"
def test_vector_2_08_with_the_dead_letter_queue() -> None:
    log = GateLog({"circuit": "dlq"}, backoff="immediate", max_attempts=7)
    log.arrive("first", 0)
    outs: list[Out] = []
    for fence in range(1, FAILURES_MAX + 1):
        word = completed("failed", "first", fence=fence, error="boom")
        outs += log.add("invocation_completed", word)
    attempts = [out for out in outs if out.kind == "attempt_recorded"]
    [moved] = [out.value for out in outs if out.kind == "dlq_moved"]
    assert len(attempts) == FAILURES_MAX
    assert (moved["attempt_count"], moved["reason"]) == (FAILURES_MAX, "circuit_open")
    assert "circuit opened" in moved["final_error"]
    [second] = [
        out.value for out in log.add("event_matched", matched("second")) if out.kind == "dlq_moved"
    ]
    assert (second["attempt_count"], second["reason"]) == (0, "circuit_open")
    assert DESTINATION in second["final_error"]
    assert "60 s" in second["final_error"]


def test_vector_2_08_with_parking() -> None:
    log = GateLog({}, backoff="immediate", max_attempts=7)
    log.arrive("first", 0)
    for fence in range(1, FAILURES_MAX + 1):
        log.end("first", 0, "failed", fence=fence)
    log.arrive("second", 0)
    assert log.dead == {}
    log.end("first", 60, "failed", fence=6)
    log.end("second", 120, "failed")
    log.end("first", 180, "failed", fence=7)
    assert log.dead == {"first": "retry_exhausted"}
    assert log.started == {"first": [0, 0, 0, 0, 0, 60, 180], "second": [120]}
    log.end("second", 240, fence=2)
    assert log.started["second"] == [120, 240]


def test_in_the_dlq_mode_all_probe_once_its_time_has_come() -> None:
    log = opened({"circuit": "dlq"})
    assert log.dead == {"f4": "circuit_open"}
    log.arrive("a", 30)
    log.end("f0", 40, "failed", fence=2)  # it keeps it open for as long again
    log.arrive("b", 99)
    assert log.dead == {
        "f4": "circuit_open",
        "f0": "circuit_open",
        "a": "circuit_open",
        "b": "circuit_open",
    }
    log.arrive("c", 100.5)
    log.arrive("d", 100.5)
    assert log.starts()["c"] == log.starts()["d"] == 100.5
    log.end("c", 101, "failed")
    assert log.dead["c"] == "circuit_open"
    log.end("d", 102)
    log.arrive("e", 103)
    assert log.starts()["e"] == 103


def test_failures_of_a_destination_that_nobody_names_any_more_are_forgotten() -> None:
    log = partition_of(0, 1)
    log.add("event_matched", matched("a"))
    log.add("invocation_completed", completed("failed", "a"))
    assert row(log) is not None
    log.add("revision_published", revision(2, drained=["triage@v1"]))
    log.add("revision_reached", {"revision": 2, "inbox_partition": 0, "inbox_partitions": 1})
    log.tick(10_000)
    log.add("invocation_completed", completed("denied", "a", fence=2))
    assert not [key for key in log.rows if key.startswith(("o:", "b:", "d:"))]


def test_a_word_on_a_destination_that_nobody_names_leaves_nothing_behind() -> None:
    log = partition_of(1, 2)
    word = {
        "destination": "local:gone",
        "episode": "0-1",
        "change": "opened",
        "partition": 0,
        "until_ms": 1,
        "passes": 0,
    }
    log.add("circuit_changed", word)
    log.add("circuit_changed", {**word, "change": "untested"})
    assert not [key for key in log.rows if key.startswith("o:")]
