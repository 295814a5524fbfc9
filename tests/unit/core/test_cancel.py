"""Cancel requests against dispatches in every state (SEMANTICS 2.5)."""

from __future__ import annotations

from typing import Any

import pytest

from streams.core import cancel
from streams.core.circuit import FAILURES_MAX
from streams.core.wire import InvocationOutcome
from streams.testing import event, retry_policy
from tests.support.dispatch_log import LEASE_MS, DispatchLog, completed, running
from tests.support.gate_log import GateLog
from tests.support.revisions import revision
from tests.support.stage_log import Out, kinds

KEY = "triage@v1"
DAY_MS = 86_400_000
ENDED = ["DispatchCancelled", "dispatch_cancelled"]


def requested(event_id: str = "event-of-d1", binding_key: str = KEY) -> dict[str, Any]:
    return {
        "binding_key": binding_key,
        "event_id": event_id,
        "requested_at": "2026-01-01T00:00:00.000Z",
        "requested_by": "ada",
        "audit_id": "trigger_audit_1",
    }


def ask(log: DispatchLog | GateLog, event_id: str = "event-of-d1", **options: Any) -> list[Out]:
    return log.add("dispatch_cancel_requested", requested(event_id, **options))


def test_a_waiting_retry_ends_at_once_and_says_so() -> None:
    log = DispatchLog(retry_policy("svix"))
    log.match("d1", found=event("event-of-d1", tenant_id="acme"))
    log.complete("failed", error="boom")
    outputs = ask(log)
    assert kinds(outputs) == ENDED
    assert outputs[1].topic == "trigger.outbox"
    assert outputs[1].value["attempt"] == 1
    assert outputs[1].value["error"] == "cancelled: ada asked for it (trigger_audit_1)"
    assert outputs[1].headers["tenant_id"] == "acme"
    assert log.row() is None
    assert log.tick(after_ms=DAY_MS) == []


def test_an_attempt_given_back_ends_at_once() -> None:
    log = DispatchLog()
    log.match("d1")
    log.complete("unresolved")
    assert kinds(ask(log)) == ENDED
    assert log.row() is None


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize(
    "outcome", ["success", "failed", "timeout", "cancelled", "interrupted", "unresolved", "denied"]
)
def test_an_attempt_at_an_invoker_is_stopped_and_whatever_it_says_ends_it(
    outcome: InvocationOutcome, taken: bool
) -> None:
    log = DispatchLog(retry_policy("svix"), partition=1, partitions=2)
    log.match("d1")
    if taken:
        log.run("d1")
    [intent] = ask(log)
    assert (intent.topic, intent.kind, intent.key) == (
        "trigger.invocations.cancels",
        "cancel_invocation",
        "d1",
    )
    assert intent.value["reason"].startswith("cancelled: ada")
    place = (intent.value["attempt"], intent.value["fence"], intent.value["home_partition"])
    assert place == (1, 1, 1)
    assert ask(log) == []  # a repeat
    outputs = log.complete(outcome, result="1", error="stopped")
    assert kinds(outputs) == ["attempt_recorded", "DispatchFailed", "dispatch_failed", *ENDED]
    assert outputs[0].value["outcome"] == "cancelled"
    assert "ada asked for it" in outputs[2].value["error"]  # vector 2-13
    assert outputs[-1].value["attempt"] == 1
    assert log.row() is None


def test_a_lost_lease_ends_a_cancelled_attempt_and_does_not_issue_it_again() -> None:
    log = DispatchLog()
    log.match("d1")
    log.run("d1")
    ask(log)
    assert kinds(log.tick(after_ms=LEASE_MS)) == ["InvocationLost", *ENDED]
    assert log.row() is None


def test_an_invoker_that_takes_again_what_it_had_lost_is_told_of_the_cancel() -> None:
    log = DispatchLog()
    log.match("d1")
    log.run("d1", invoker_id="i1")
    log.tick(after_ms=LEASE_MS)
    ask(log)
    assert kinds(log.run("d1", invoker_id="i1", fence=2)) == ["cancel_invocation"]


def test_an_invoker_that_takes_a_cancelled_attempt_later_is_told_again_and_once() -> None:
    log = DispatchLog()
    log.match("d1")
    ask(log)
    assert kinds(log.run("d1", invoker_id="i2")) == ["cancel_invocation"]
    assert log.run("d1", invoker_id="i2") == []
    assert log.run("d1", fence=2)[0].kind == "OutcomeRefused"


def test_a_word_under_an_old_fence_does_not_end_it() -> None:
    log = DispatchLog()
    log.match("d1")
    log.complete("failed")  # at once again, under fence 2
    ask(log)
    assert kinds(log.complete("success", fence=1)) == ["OutcomeRefused"]
    assert kinds(log.complete("success", fence=2))[-1] == "dispatch_cancelled"


# ---------------------------------------------------------------------- requests that come first
def test_a_request_waits_for_its_dispatch_and_ends_it_before_its_first_attempt() -> None:
    log = DispatchLog()
    assert ask(log) == []
    outputs = log.match("d1")
    assert kinds(outputs) == ENDED
    assert outputs[1].value["attempt"] == 0
    assert [key for key in log.rows if key[:2] in {"c:", "d:", "e:"}] == []
    assert kinds(log.match("d2", found=event("event-of-d1")))[-1] == "invoke"  # it is used up


@pytest.mark.parametrize(("after_ms", "ends"), [(DAY_MS - 1, True), (DAY_MS, False)])
def test_a_request_waits_for_its_time_and_no_longer(after_ms: int, ends: bool) -> None:
    log = DispatchLog()
    ask(log)
    log.now_ms += after_ms
    assert ("dispatch_cancelled" in kinds(log.match("d1"))) == ends
    assert not [key for key in log.rows if key.startswith("c:")]


def test_a_request_comes_before_an_expression_that_failed() -> None:
    log = GateLog({"concurrency": {"key": "k", "max": 1}})
    ask(log, "a")
    log.arrive("a", 1, keys={"error": "no such field"})
    assert log.dead == {}
    assert log.rows.get("d:a") is None


def test_a_request_is_about_one_binding_and_one_event() -> None:
    log = DispatchLog()
    ask(log, "another")
    ask(log, binding_key="triage@v2")
    ask(log, "d1", binding_key=f"{KEY}:event-of")  # which reads the same when put together
    ask(log, "of:d1", binding_key=f"{KEY}:event")
    assert kinds(log.match("of", found=event("event:of:d1")))[-1] == "invoke"
    assert kinds(log.match("d1"))[-1] == "invoke"
    ask(log, "another")
    assert log.row() is not None


def test_a_replay_is_cancelled_by_its_own_event_and_not_by_its_originals() -> None:
    log = DispatchLog()
    ask(log, "original")
    replay = event("replay")
    assert kinds(log.match("d1", found=replay, replay_of_event_id="original"))[-1] == "invoke"
    assert kinds(ask(log, "replay")) == ["cancel_invocation"]


def test_the_oldest_request_is_forgotten_when_too_many_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cancel, "REQUESTS_MAX", 2)
    log = DispatchLog()
    for name, kept in (("e1", {"e1"}), ("e2", {"e1", "e2"}), ("e2", {"e1", "e2"}), ("e3", None)):
        log.now_ms += 1
        ask(log, name)
        waiting = {row["event_id"] for key, row in log.rows.items() if key.startswith("c:")}
        assert waiting == (kept or {"e2", "e3"})


def test_ids_that_could_not_be_repeated_are_refused() -> None:
    log = DispatchLog()
    [out] = ask(log, "x" * 257)
    assert out.kind == "record_quarantined"
    assert out.value["reason"].startswith("DSP-006: event_id has 257 characters")


def test_an_index_made_at_the_first_request_knows_those_before_and_after() -> None:
    log = DispatchLog(retry_policy("svix"))
    log.match("d1")
    log.match("d2")
    log.complete("success", dispatch_id="d2")
    assert kinds(ask(log)) == ["cancel_invocation"]
    log.match("d3")
    assert kinds(ask(log, "event-of-d3")) == ["cancel_invocation"]
    assert ask(log, "event-of-d2") == []
    log.assert_replays([1], reload_at=frozenset({4, 5}))


# ---------------------------------------------------------------------- gates
@pytest.mark.parametrize("gate", ["concurrency", "singleton"])
def test_a_cancelled_holder_frees_its_slot(gate: str) -> None:
    log = GateLog({gate: {"max": 1}}, backoff="svix", max_attempts=3)
    log.arrive("a", 0)
    log.end("a", 1, "failed")
    ask(log, "a")
    log.arrive("b", 2)
    assert "b" in log.started


def test_a_cancelled_holder_lets_its_waiter_go_on() -> None:
    log = GateLog({"concurrency": {"max": 1}}, backoff="svix", max_attempts=3)
    log.arrive("a", 0)
    log.arrive("b", 0)
    log.end("a", 1, "failed")
    outputs = ask(log, "a")
    assert [out.value["dispatch_id"] for out in outputs if out.kind == "invoke"] == ["b"]


def test_a_cancelled_waiter_leaves_its_queue() -> None:
    log = GateLog({"concurrency": {"max": 1}})
    for name in "abc":
        log.arrive(name, 0)
    assert kinds(ask(log, "b")) == ENDED
    log.end("a", 1)
    assert set(log.started) == {"a", "c"}


def test_a_batch_whose_first_member_is_cancelled_fires_at_its_time_without_it() -> None:
    log = GateLog({"batch": {"size": 5, "timeout_ms": 10_000}})
    for at, name in enumerate("abc"):
        log.arrive(name, at)
    ask(log, "a")
    log.pass_time(9.999)
    assert not log.started
    log.pass_time(10)
    assert log.started == {"b": [10.0]}
    assert log.skips == {"c": "batch_merged"}
    assert len(log.events["b"]["batch"]) == 2


def test_a_batch_of_which_only_the_first_came_ends_with_it() -> None:
    log = GateLog({"batch": {"size": 2, "timeout_ms": 10_000}})
    log.arrive("a", 0)
    ask(log, "a")
    log.arrive("b", 1)
    log.pass_time(30)
    assert log.started == {"b": [11.0]}


def test_a_cancelled_debounced_dispatch_ends_its_burst() -> None:
    log = GateLog({"debounce": {"period_ms": 10_000}})
    log.arrive("a", 0)
    log.arrive("b", 1)
    ask(log, "b")
    log.pass_time(60)
    assert not log.started
    assert log.skips == {"a": "debounced"}


def test_a_cancelled_binding_s_last_dispatch_ends_the_binding() -> None:
    log = DispatchLog(retry_policy("svix"))
    log.match("d1")
    log.complete("failed")
    log.add("revision_published", revision(2, drained=[KEY]))
    log.add("revision_reached", {"revision": 2, "inbox_partition": 0, "inbox_partitions": 1})
    assert kinds(ask(log)) == [*ENDED, "binding_ended"]


# ---------------------------------------------------------------------- predicates and circuits
def test_an_evaluation_is_stopped_and_no_attempt_is_counted() -> None:
    log = GateLog({"when": "is_big"})
    log.arrive("a", 0)
    assert kinds(ask(log, "a")) == ["cancel_invocation"]
    word = completed("success", "a", attempt=0, result="true")
    outputs = log.add("invocation_completed", word)
    assert kinds(outputs)[-2:] == ENDED
    assert outputs[-1].value["attempt"] == 0
    assert "attempt_recorded" not in kinds(outputs)
    assert not [key for key in log.rows if key[:2] in {"d:", "e:"}]


def test_an_evaluation_whose_invoker_is_lost_ends() -> None:
    log = GateLog({"when": "is_big"})
    log.arrive("a", 0)
    log.add("invocations_running", running("a", attempt=0))
    ask(log, "a")
    assert kinds(log.tick(after_ms=3_600_000)) == ["InvocationLost", *ENDED]


def test_a_parked_dispatch_ends_at_once_and_does_not_keep_others_from_their_turn() -> None:
    log = GateLog({"concurrency": {"max": 10}}, backoff="svix", max_attempts=7)
    for number in range(FAILURES_MAX):
        log.arrive(f"f{number}", 0)
        log.end(f"f{number}", 0, "failed")
    for name in ("a", "b"):
        log.arrive(name, 1)
        found = log.rows[f"d:{name}"]
        assert found["status"] == "parked"
    assert kinds(ask(log, "a")) == ENDED
    log.pass_time(61)
    assert log.started.keys() & {"a", "b"} <= {"b"}
    for number in range(FAILURES_MAX):
        ask(log, f"f{number}")
    log.pass_time(200)
    assert "b" in log.started
