"""A circuit that several partitions open, probe and close together."""

from __future__ import annotations

from streams.core.circuit import FAILURES_MAX, OPEN_MS
from tests.support.circuit_words import DESTINATION, partition_of, row
from tests.support.dispatch_log import completed, matched
from tests.support.stage_log import Out, StageLog, kinds


def fail_five(log: StageLog) -> list[Out]:
    outs: list[Out] = []
    for number in range(FAILURES_MAX):
        log.add("event_matched", matched(f"f{number}"))
        outs += log.add("invocation_completed", completed("failed", f"f{number}"))
    return outs


def words(outs: list[Out]) -> list[tuple[int | None, str]]:
    return [(o.partition, o.value["change"]) for o in outs if o.kind == "circuit_changed"]


def hear(log: StageLog, outs: list[Out]) -> list[Out]:
    """Fold what the outputs of others say to this partition."""
    heard: list[Out] = []
    for out in outs:
        if out.kind == "circuit_changed" and out.partition == log.memory.partition:
            heard += log.add("circuit_changed", out.value)
    return heard


def test_all_partitions_hear_of_it_and_only_the_one_that_opened_it_probes() -> None:
    here, there = partition_of(0), partition_of(1)
    outs = fail_five(here)
    assert words(outs) == [(1, "opened"), (2, "opened")]
    hear(there, outs)
    assert kinds(there.add("event_matched", matched("d"))) == ["DispatchParked"]
    assert "invoke" not in kinds(there.tick(3_600_000))
    here.add("event_matched", matched("e"))
    assert "invoke" in kinds(here.tick(60_000))
    ended = here.add("invocation_completed", completed("success", "e"))
    assert words(ended) == [(1, "closed"), (2, "closed")]
    hear(there, ended)
    assert kinds(there.tick(1)) == ["DispatchStarted", "dispatch_started", "invoke"]
    assert row(there) is None


def test_others_hear_that_it_stays_open() -> None:
    here, there = (partition_of(number, circuit="dlq") for number in (0, 1))
    here.add("event_matched", matched("late"))
    hear(there, fail_five(here))
    here.now_ms += OPEN_MS // 2
    failed = here.add("invocation_completed", completed("failed", "late"))
    assert words(failed) == [(1, "opened"), (2, "opened")]
    hear(there, failed)
    there.now_ms += OPEN_MS
    assert "dlq_moved" in kinds(there.add("event_matched", matched("d")))
    there.now_ms += OPEN_MS // 2
    assert "invoke" in kinds(there.add("event_matched", matched("e")))


def test_a_failure_where_others_opened_it_holds_back_for_as_long_again() -> None:
    here, there = (partition_of(number, circuit="dlq") for number in (0, 1))
    hear(there, fail_five(here))
    [_, dead] = [
        out for out in there.add("event_matched", matched("a")) if "dl" in out.kind.lower()
    ]
    assert dead.value["final_error"].endswith("it is tried again in 60 s")
    there.now_ms += OPEN_MS - 400
    [_, dead] = [
        out for out in there.add("event_matched", matched("b")) if "dl" in out.kind.lower()
    ]
    assert dead.value["final_error"].endswith("it is tried again in 1 s")
    there.now_ms += 400
    assert "invoke" in kinds(there.add("event_matched", matched("c")))
    there.add("invocation_completed", completed("failed", "c"))
    assert "dlq_moved" in kinds(there.add("event_matched", matched("d")))


def test_whoever_has_nothing_to_probe_with_asks_the_next_partition() -> None:
    logs = [partition_of(number) for number in range(3)]
    outs: list[Out] = []
    for number in range(FAILURES_MAX):
        logs[0].add("event_matched", matched(f"f{number}"))
        outs += logs[0].add("invocation_completed", completed("denied", f"f{number}"))
    assert words(outs) == []
    outs = fail_five(logs[0])
    for log in logs[1:]:
        hear(log, outs)
    logs[2].add("event_matched", matched("d"))
    for number in range(FAILURES_MAX):  # their retries end otherwise: nobody is parked here
        word = {
            "binding_key": "triage@v1",
            "event_id": f"event-of-f{number}",
            "requested_at": "2026-01-01T00:00:00Z",
            "requested_by": None,
            "audit_id": None,
        }
        logs[0].add("dispatch_cancel_requested", word)
    asked = logs[0].tick(60_000)
    assert words(asked) == [(1, "probe")]
    hear(logs[1], asked)
    passed = logs[1].tick(1)
    assert words(passed) == [(2, "probe")]
    hear(logs[2], passed)
    assert "invoke" in kinds(logs[2].tick(1))
    ended = logs[2].add("invocation_completed", completed("success", "d"))
    assert words(ended) == [(0, "closed"), (1, "closed")]
    for log in logs[:2]:
        hear(log, ended)
    assert [row(log) for log in logs] == [None, None, None]


def test_when_no_partition_can_probe_it_one_failure_opens_it_again_anywhere() -> None:
    logs = [partition_of(number, 2) for number in range(2)]
    episode = {"destination": DESTINATION, "episode": "0-1", "partition": 0, "until_ms": 1}
    logs[1].add("circuit_changed", {**episode, "change": "opened", "passes": 0})
    logs[1].add("circuit_changed", {**episode, "change": "probe", "passes": 1})
    given_up = logs[1].tick(1)
    assert words(given_up) == [(0, "untested")]
    logs[0].add("circuit_changed", {**given_up[0].value})
    for log in logs:
        found = row(log)
        assert found is not None
        assert (found["episodes"], found["failures"]) == ([], FAILURES_MAX - 1)


def test_two_partitions_that_open_it_at_once_both_have_to_close_it() -> None:
    here, there = partition_of(0, 2), partition_of(1, 2)
    ours, theirs = fail_five(here), fail_five(there)
    hear(here, theirs)
    hear(there, ours)
    here.tick(60_000)
    probing = next(key for key, each in here.rows.items() if each.get("status") == "invoked")
    ended = here.add(
        "invocation_completed", completed("success", probing.removeprefix("d:"), fence=2)
    )
    assert words(ended) == [(1, "closed")]
    found = row(here)
    assert found is None or not found["episodes"], "its time has come, and an attempt got through"
    hear(there, ended)
    still = row(there)
    assert still is not None
    assert [each["id"] for each in still["episodes"]] == [still["own"]]


def test_one_that_is_asked_while_it_probes_itself_ends_the_other_episode() -> None:
    log = partition_of(1, 2)
    fail_five(log)
    told = log.add(
        "circuit_changed",
        {
            "destination": DESTINATION,
            "episode": "0-1",
            "change": "probe",
            "partition": 0,
            "until_ms": 1,
            "passes": 1,
        },
    )
    assert words(told) == [(0, "closed")]
    found = row(log)
    assert found is not None
    assert [each["id"] for each in found["episodes"]] == [found["own"]]


def test_words_that_nobody_can_have_said_are_refused() -> None:
    log = partition_of(1, 2)
    word = {
        "destination": "x" * 2_000,
        "episode": "0-1",
        "change": "opened",
        "partition": 0,
        "until_ms": 1,
        "passes": 0,
    }
    assert kinds(log.add("circuit_changed", word)) == ["record_quarantined"]
    for number in range(2):
        log.add("circuit_changed", {**word, "destination": DESTINATION, "episode": f"0-{number}"})
    third = {**word, "destination": DESTINATION, "episode": "0-3"}
    assert kinds(log.add("circuit_changed", third)) == ["record_quarantined"]
    own = {**word, "destination": DESTINATION, "partition": 1}
    assert kinds(log.add("circuit_changed", own)) == ["record_quarantined"]
