from typing import Any

import pytest

from streams.core import dispatch_due, dispatch_words
from streams.core.event_json import SMALL_CHARS_MAX
from streams.core.wire import InvocationOutcome
from streams.engine import MAX_RECORD_BYTES
from streams.testing import event, retry_policy
from tests.support.dispatch_log import LEASE_MS, DispatchLog, matched
from tests.support.revisions import revision, versioned
from tests.support.stage_log import Out, kinds, reloaded


def only(outputs: list[Out], kind: str) -> dict[str, Any]:
    [found] = [output.value for output in outputs if output.kind == kind]
    return found


# ---------------------------------------------------------------------- starting
def test_a_matched_event_starts_its_first_attempt() -> None:
    log = DispatchLog(partition=2, partitions=3)
    outputs = log.match("d1", found=event("e1", tenant_id="acme"))
    assert [(out.topic, out.kind, out.key) for out in outputs] == [
        ("triggers.lifecycle", "DispatchStarted", "e1"),
        ("trigger.outbox", "dispatch_started", "e1"),
        ("trigger.invocations", "invoke", "d1"),
    ]
    intent = only(outputs, "invoke")
    assert intent["attempt_id"] == "d1.1"
    assert (intent["attempt"], intent["fence"], intent["home_partition"]) == (1, 1, 2)
    assert intent["event"]["id"] == "e1"
    assert all(out.headers["tenant_id"] == "acme" for out in outputs)
    assert {key for key in log.rows if key[:2] in {"d:", "e:"}} == {"d:d1"}
    assert log.rows["d:d1"]["event"]["id"] == "e1"


@pytest.mark.parametrize(("chars", "own"), [(SMALL_CHARS_MAX, False), (SMALL_CHARS_MAX + 1, True)])
@pytest.mark.parametrize("where", ["provider_payload", "headers", "raw_body"])
def test_a_large_event_has_a_row_of_its_own(where: str, chars: int, own: bool) -> None:
    log = DispatchLog(retry_policy("svix", max_attempts=2))
    found = {**event("e1"), "provider_payload": ""}
    text = "x" * (chars - 1)
    large: Any = {"headers": {"h": text}, "raw_body": text.encode() + b"x"}
    found[where] = large.get(where, text + "x")  # type: ignore[literal-required]
    outputs = log.match("d1", found=found)  # type: ignore[arg-type]
    intent = only(outputs, "invoke")
    assert intent["event"] == found
    rows = {"d:d1", "e:d1"} if own else {"d:d1"}
    assert {key for key in log.rows if key[:2] in {"d:", "e:"}} == rows
    assert (log.rows["d:d1"]["event"] is None) == own
    log.run("d1")
    log.complete("failed", error="no")
    [_, _, again] = log.tick(after_ms=5_000)
    assert again.value["event"] == found
    [*_, moved] = log.complete("failed", error="no", fence=2)
    assert moved.value["event"] == found
    assert not [key for key in log.rows if key[:2] in {"d:", "e:"}]
    log.assert_replays([1])


def test_an_event_for_a_binding_that_is_not_in_force_is_quarantined() -> None:
    log = DispatchLog()
    [out] = log.match("d1", binding_key="triage@v2")
    assert out.kind == "record_quarantined"
    assert out.value["reason"].startswith("DSP-001: binding triage@v2 is not in force")


def test_a_dispatch_that_is_live_is_not_started_twice() -> None:
    log = DispatchLog()
    log.match("d1")
    [out] = log.match("d1")
    assert out.value["reason"] == "DSP-002: dispatch d1 is live already"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ({"dispatch_id": "x" * 257}, "dispatch_id has 257 characters, expected at most 256"),
        ({"replay_of_event_id": "x" * 257}, "replay_of_event_id has 257 characters"),
        ({"event": event("x" * 257)}, "id has 257 characters"),
        ({"trigger_id": "another"}, "the trigger is not the binding's"),
    ],
)
def test_what_the_inbox_would_never_say_is_refused(word: dict[str, Any], reason: str) -> None:
    log = DispatchLog()
    before = log.rows
    [out] = log.add("event_matched", {**matched("d1"), **word})
    assert out.value["reason"].startswith(f"DSP-005: {reason}")
    assert log.rows == before


# ---------------------------------------------------------------------- outcomes
def test_success_ends_the_dispatch() -> None:
    log = DispatchLog()
    log.match("d1")
    outputs = log.complete("success", result='{"a":1}')
    assert kinds(outputs) == ["attempt_recorded", "DispatchSucceeded", "dispatch_succeeded"]
    recorded = only(outputs, "attempt_recorded")
    assert recorded["started_at"] == "1970-01-01T00:00:00.000Z"
    assert recorded["completed_at"] == "1970-01-01T00:00:01.000Z"
    assert only(outputs, "dispatch_succeeded")["result"] == '{"a":1}'
    assert log.row() is None
    assert not [key for key in log.rows if key.startswith("e:")]


def test_a_failed_attempt_is_repeated_at_once_under_the_next_fence() -> None:
    log = DispatchLog()
    log.match("d1")
    outputs = log.complete("failed", error="boom", error_class="handler_error")
    assert kinds(outputs) == [
        "attempt_recorded",
        "DispatchFailed",
        "dispatch_failed",
        "RetryScheduled",
        "retry_scheduled",
        "DispatchStarted",
        "dispatch_started",
        "invoke",
    ]
    assert only(outputs, "retry_scheduled")["delay_ms"] == 0
    intent = only(outputs, "invoke")
    assert (intent["attempt"], intent["fence"]) == (2, 2)


def test_a_delayed_attempt_starts_when_it_is_due_and_not_before() -> None:
    log = DispatchLog(retry_policy("svix"))
    log.match("d1")
    assert kinds(log.complete("failed"))[-1] == "retry_scheduled"
    assert log.memory.rows.next_tick_ms() == log.now_ms + 5_000
    assert log.tick(after_ms=4_999) == []
    outputs = log.tick(after_ms=1)
    assert kinds(outputs) == ["DispatchStarted", "dispatch_started", "invoke"]
    assert only(outputs, "invoke")["attempt"] == 2


@pytest.mark.parametrize(
    ("asked_ms", "waited_ms"), [(60_000, 60_000), (1_000, 5_000), (10**12, 86_400_000), (-5, 5_000)]
)
def test_a_handler_can_delay_its_next_attempt_up_to_a_day(asked_ms: int, waited_ms: int) -> None:
    log = DispatchLog(retry_policy("svix"))
    log.match("d1")
    outputs = log.complete("failed", retry_after_ms=asked_ms)
    assert only(outputs, "retry_scheduled")["delay_ms"] == waited_ms


def test_the_last_failed_attempt_ends_in_the_dlq_with_its_history() -> None:
    log = DispatchLog(retry_policy("immediate", max_attempts=2))
    log.match("d1", found=event("e1"))
    log.complete("failed", error="first", error_class="handler_error")
    outputs = log.complete(
        "timeout", attempt=2, fence=2, error="second", error_class="handler_timeout"
    )
    assert kinds(outputs) == [
        "attempt_recorded",
        "DispatchFailed",
        "dispatch_failed",
        "DlqMoved",
        "dlq_moved",
    ]
    entry = only(outputs, "dlq_moved")
    assert entry["entry_id"] == "dlq_0_d1"
    assert (entry["reason"], entry["error_class"]) == ("retry_exhausted", "handler_timeout")
    assert (entry["attempt_count"], entry["final_error"]) == (2, "second")
    assert [(each["attempt"], each["error"]) for each in entry["attempts"]] == [
        (1, "first"),
        (2, "second"),
    ]
    assert entry["event"]["id"] == "e1"
    assert log.row() is None


@pytest.mark.parametrize(
    ("outcome", "error_class", "reason"),
    [
        ("denied", "auth_failed", "denied"),
        ("cancelled", "none", "cancelled"),
        ("result_too_large", "result_too_large", "result_too_large"),
        ("failed", "terminal", "terminal"),
    ],
)
def test_a_final_outcome_is_not_repeated(
    outcome: InvocationOutcome, error_class: Any, reason: str
) -> None:
    log = DispatchLog()
    log.match("d1")
    outputs = log.complete(outcome, error_class=error_class)
    assert only(outputs, "dlq_moved")["reason"] == reason
    assert only(outputs, "dlq_moved")["attempt_count"] == 1
    assert log.row() is None


# ---------------------------------------------------------------------- leases
def test_a_lease_starts_with_the_invokers_word_and_is_renewed_by_it() -> None:
    log = DispatchLog()
    log.match("d1")
    assert log.memory.rows.next_tick_ms() is None
    assert log.run("d1") == []
    log.now_ms += LEASE_MS - 1
    assert log.run("d1") == []
    assert log.memory.rows.next_tick_ms() == log.now_ms + LEASE_MS
    assert log.tick(after_ms=LEASE_MS - 1) == []


def test_an_expired_lease_issues_the_same_attempt_under_the_next_fence() -> None:
    log = DispatchLog()
    log.match("d1")
    log.run("d1", invoker_id="i1")
    outputs = log.tick(after_ms=LEASE_MS)
    assert kinds(outputs) == ["InvocationLost", "invoke"]
    assert only(outputs, "InvocationLost")["invoker_id"] == "i1"
    intent = only(outputs, "invoke")
    assert (intent["attempt"], intent["attempt_id"], intent["fence"]) == (1, "d1.1", 2)


def test_the_stale_holder_is_refused_and_the_new_one_counts() -> None:
    log = DispatchLog()
    log.match("d1")
    log.run("d1", invoker_id="old")
    log.tick(after_ms=LEASE_MS)
    refusals = [log.complete("success", invoker_id="old"), log.run("d1", invoker_id="old")]
    for outputs, outcome in zip(refusals, ["success", "running"], strict=True):
        [refused] = outputs
        assert refused.kind == "OutcomeRefused"
        assert refused.value["reason"] == "superseded"
        assert (refused.value["fence"], refused.value["current_fence"]) == (1, 2)
        assert (refused.value["invoker_id"], refused.value["outcome"]) == ("old", outcome)
    assert "dispatch_succeeded" in kinds(log.complete("success", fence=2))


def test_a_word_after_the_end_is_refused() -> None:
    log = DispatchLog()
    log.match("d1")
    log.complete("success")
    [refused] = log.complete("failed")
    assert refused.value["reason"] == "ended"
    assert refused.value["current_fence"] is None
    assert refused.key == "d1"


def test_a_dispatch_that_keeps_losing_its_invoker_is_given_up() -> None:
    log = DispatchLog()
    log.match("d1")
    for fence in range(1, dispatch_due.LOSSES_MAX + 1):
        log.run("d1", fence=fence)
        assert kinds(log.tick(after_ms=LEASE_MS)) == ["InvocationLost", "invoke"]
    log.run("d1", fence=dispatch_due.LOSSES_MAX + 1)
    outputs = log.tick(after_ms=LEASE_MS)
    assert kinds(outputs) == ["InvocationLost", "DlqMoved", "dlq_moved"]
    assert only(outputs, "dlq_moved")["reason"] == "invoker_lost"
    assert only(outputs, "dlq_moved")["attempt_count"] == 0


def test_one_word_of_an_invoker_is_about_many_dispatches() -> None:
    log = DispatchLog()
    for dispatch_id in ("d1", "d2", "d3"):
        log.match(dispatch_id)
    log.complete("success", dispatch_id="d2")
    [refused] = log.run("d1", "d2", "d3", "unknown")[:1]
    assert refused.value["dispatch_id"] == "d2"
    due_ms = log.now_ms + LEASE_MS
    rows = [log.row("d1"), log.row("d3")]
    assert [row and (row["status"], row["due_ms"]) for row in rows] == [("running", due_ms)] * 2


# ---------------------------------------------------------------------- given back
def test_an_interrupted_attempt_is_issued_again_at_once_and_not_counted() -> None:
    log = DispatchLog()
    log.match("d1")
    outputs = log.complete("interrupted")
    assert kinds(outputs) == ["InvocationReissued", "invoke"]
    intent = only(outputs, "invoke")
    assert (intent["attempt"], intent["fence"]) == (1, 2)


def test_an_unresolved_attempt_is_issued_again_ever_later() -> None:
    log = DispatchLog()
    log.match("d1")
    delays: list[int] = []
    for fence in range(1, 9):
        outputs = log.complete("unresolved", fence=fence)
        assert kinds(outputs) == ["InvocationReissued"]
        delays.append(only(outputs, "InvocationReissued")["delay_ms"])
        assert log.tick(after_ms=delays[-1] - 1) == []
        assert kinds(log.tick(after_ms=1)) == ["invoke"]
    assert delays == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]


def test_an_attempt_that_nobody_can_run_is_given_up() -> None:
    log = DispatchLog()
    log.match("d1")
    for fence in range(1, dispatch_words.RETURNS_MAX + 1):
        log.complete("interrupted", fence=fence)
    outputs = log.complete("interrupted", fence=dispatch_words.RETURNS_MAX + 1)
    assert only(outputs, "dlq_moved")["reason"] == "unresolved"
    assert only(outputs, "dlq_moved")["attempts"] == []


def test_returns_are_counted_anew_for_each_attempt() -> None:
    log = DispatchLog()
    log.match("d1")
    log.complete("interrupted")
    log.complete("failed", fence=2)
    row = log.row()
    assert row is not None
    assert (row["attempt"], row["returns"], row["fence"]) == (2, 0, 3)


# ---------------------------------------------------------------------- what invokers may say
@pytest.mark.parametrize("field", ["dispatch_id", "invoker_id"])
def test_a_word_whose_ids_cannot_be_repeated_is_quarantined(field: str) -> None:
    log = DispatchLog()
    log.match("d1")
    long_id = {field: "x" * 257}
    [out] = log.complete("success", **long_id)
    assert out.value["reason"] == f"DSP-004: {field} has 257 characters, expected at most 256"
    ids = ["x" * 257] if field == "dispatch_id" else ["d1"]
    invoker_id = "x" * 257 if field == "invoker_id" else "i1"
    [out] = log.run(*ids, invoker_id=invoker_id)
    assert out.value["reason"].startswith("DSP-004")
    row = log.row()
    assert row is not None
    assert row["status"] == "invoked"


def test_a_dead_letter_fits_into_a_record_whatever_its_attempts_said() -> None:
    log = DispatchLog(retry_policy("immediate", max_attempts=100))
    largest = event("e1", payload="x" * 590_000)
    log.match("d1", found=largest)
    for attempt in range(1, 101):
        log.tick(60_000)  # of an open circuit
        outputs = log.complete(
            "failed", attempt=attempt, fence=attempt, error="\U0001f525" * 100_000
        )
    entry = only(outputs, "dlq_moved")
    assert len(entry["attempts"]) == 100
    assert {len(each["error"]) for each in entry["attempts"]} == {500}
    assert len(entry["final_error"]) == 1_024
    sizes = [len(output.value or b"") for step in log.steps for output in step.outputs]
    assert max(sizes) <= MAX_RECORD_BYTES


# ---------------------------------------------------------------------- timeouts
def test_every_intent_of_a_dispatch_carries_the_timeout_of_its_binding() -> None:
    log = DispatchLog()
    bound = versioned("slow", retry=retry_policy("immediate"))
    bound["definition"] = '{"timeout_ms":1500}'
    log.add("revision_published", revision(2, added=[bound]))
    first = log.match("d1", binding_key="slow@v1")
    second = log.complete("failed", error="boom")
    plain = log.match("d2")
    intents = [each.value for each in (*first, *second, *plain) if each.kind == "invoke"]
    assert [each["timeout_ms"] for each in intents] == [1_500, 1_500, None]
    assert {each["purpose"] for each in intents} == {"handler"}


# ---------------------------------------------------------------------- the oldest
def test_the_oldest_dispatch_of_a_trigger_is_known_however_its_index_came_to_be() -> None:
    log = DispatchLog()
    state = log.memory.state
    assert state.index.oldest_accepted(state) == {}
    for number, accepted_at_ms in (("d1", 30), ("d2", 40), ("d3", 50)):
        log.add("event_matched", {**matched(number), "accepted_at_ms": accepted_at_ms})
    assert state.index.oldest_accepted(state) == {"triage": 30}
    log.complete("success", dispatch_id="d1")
    assert state.index.oldest_accepted(state) == {"triage": 40}
    again = reloaded(log.memory).state
    assert again.index.oldest_accepted(again) == {"triage": 40}
    for dispatch_id in ("d3", "d2"):
        log.complete("success", dispatch_id=dispatch_id)
    assert state.index.oldest_accepted(state) == {}
