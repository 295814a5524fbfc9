"""Entries of the dead letters: what each word about them comes to (SEMANTICS 2.7)."""

from __future__ import annotations

from typing import Any

import pytest

from streams.core import dlq
from streams.core.dlq_words import entry_id_of, entry_problem, home_of
from streams.testing import event, policy, retry_policy
from tests.support.dispatch_log import DispatchLog
from tests.support.gate_log import GateLog
from tests.support.revisions import revision
from tests.support.stage_log import Out, kinds

ENTRY = "dlq_0_d1"
DAY_MS = 86_400_000


def dead(name: str = "d1", **options: Any) -> DispatchLog:
    log = DispatchLog(**options)
    log.match(name)
    log.complete("denied", dispatch_id=name, error="no", error_class="auth_failed")
    return log


def said(outcome: str, **changes: Any) -> dict[str, Any]:
    return {
        "entry_id": ENTRY,
        "event_id": "replay-1",
        "replay_of_event_id": "event-of-d1",
        "outcome": outcome,
        "trigger_id": "triage",
        "binding_key": "triage@v1",
        "provider": "github",
        "event_kind": "issues.opened",
        "attempts": 3,
        "reason": "retry_exhausted",
        "error": "again",
        "error_class": "handler_error",
        **changes,
    }


def say(log: DispatchLog, outcome: str, **changes: Any) -> list[Out]:
    return log.add("dlq_replayed", said(outcome, **changes))


def discard(log: DispatchLog, entry_id: str = ENTRY) -> list[Out]:
    request = {
        "entry_id": entry_id,
        "requested_at": "2026-01-01T00:00:00.000Z",
        "requested_by": "ada",
        "audit_id": "trigger_audit_1",
    }
    return log.add("dlq_discard_requested", request)


def entry(log: DispatchLog, name: str = "d1") -> dict[str, Any] | None:
    return log.rows.get(f"q:{name}")


def test_a_dead_letter_becomes_an_entry_without_a_body() -> None:
    log = dead()
    found = entry(log)
    assert found is not None
    assert (found["entry_id"], found["event_id"]) == (ENTRY, "event-of-d1")
    assert (found["reason"], found["error"], found["error_class"]) == (
        "denied",
        "no",
        "auth_failed",
    )
    assert (found["replays"], found["replaying"]) == (0, [])
    assert [note["status"] for note in found["history"]] == ["dlq"]
    assert "event" not in found


def test_a_replay_that_succeeds_or_is_skipped_resolves_the_entry() -> None:
    for outcome in ("succeeded", "skipped"):
        log = dead()
        [started] = say(log, "started")
        assert (started.topic, started.kind, started.key) == (
            "trigger.dlq",
            "dlq_entry",
            "event-of-d1",
        )
        assert (started.value["state"], started.value["status"]) == ("pending", "replay_started")
        assert (started.value["replays"], started.value["replaying"]) == (1, ["replay-1"])
        [resolved] = say(log, outcome)
        assert (resolved.value["state"], resolved.value["status"]) == (
            "resolved",
            f"replay_{outcome}",
        )
        assert resolved.value["replay_event_id"] == "replay-1"
        assert entry(log) is None
        assert say(log, outcome) == []  # a second replay that was on its way


def test_a_replay_that_fails_puts_the_entry_back_under_its_id_with_a_longer_history() -> None:
    log = dead()
    say(log, "started")
    log.now_ms += 5 * DAY_MS
    [again] = say(log, "failed")
    assert (again.value["state"], again.value["status"]) == ("pending", "replay_dlq")
    found = entry(log)
    assert found is not None
    assert (found["entry_id"], found["event_id"]) == (ENTRY, "event-of-d1")
    assert (found["error"], found["reason"]) == ("again", "retry_exhausted")
    assert (found["replays"], found["replaying"]) == (1, [])
    assert [note["status"] for note in found["history"]] == ["dlq", "replay_started", "replay_dlq"]
    assert found["history"][-1]["attempts"] == 3
    assert found["expires_at_ms"] == log.now_ms + 8 * DAY_MS


@pytest.mark.parametrize("outcome", ["cancelled", "unmatched"])
def test_a_replay_that_decides_nothing_leaves_the_entry_pending(outcome: str) -> None:
    log = dead()
    say(log, "started")
    [back] = say(log, outcome)
    assert (back.value["state"], back.value["status"]) == ("pending", f"replay_{outcome}")
    found = entry(log)
    assert found is not None
    assert (found["replays"], found["replaying"], found["error"]) == (1, [], "no")


def test_what_fails_again_after_its_entry_was_forgotten_is_an_entry_again() -> None:
    log = DispatchLog()
    [again] = say(log, "failed")
    assert again.value["status"] == "replay_dlq"
    found = entry(log)
    assert found is not None
    assert (found["entry_id"], found["event_id"], found["replays"]) == (ENTRY, "event-of-d1", 1)
    for outcome in ("started", "succeeded", "skipped", "cancelled", "unmatched"):
        assert say(DispatchLog(), outcome) == []


def test_an_entry_is_discarded_on_the_record_and_a_repeat_changes_nothing() -> None:
    log = dead()
    [gone] = discard(log)
    assert (gone.value["state"], gone.value["status"]) == ("discarded", "discarded")
    assert (gone.value["requested_by"], gone.value["audit_id"]) == ("ada", "trigger_audit_1")
    assert entry(log) is None
    assert discard(log) == []


def test_an_entry_that_is_being_replayed_is_not_discarded() -> None:
    log = dead()
    say(log, "started")
    [refused] = discard(log)
    assert (refused.value["state"], refused.value["status"]) == ("pending", "discard_refused")
    assert entry(log) is not None


def test_an_entry_expires_with_its_body() -> None:
    log = dead()
    assert log.tick(after_ms=8 * DAY_MS - 1) == []
    [gone] = log.tick(after_ms=1)
    assert (gone.value["state"], gone.value["status"]) == ("expired", "expired")
    assert entry(log) is None


def test_how_long_an_entry_is_kept_is_policy() -> None:
    log = DispatchLog()
    log.add("revision_published", revision(2, in_force=policy(dlq_ttl_ms=10)))
    log.match("d1")
    log.complete("denied", error="no")
    assert kinds(log.tick(after_ms=10)) == ["dlq_entry"]


def test_the_oldest_entry_goes_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlq, "ENTRIES_MAX", 2)
    log = dead()
    for name in ("d2", "d3"):
        log.now_ms += 1
        log.match(name)
        outputs = log.complete("denied", dispatch_id=name, error="no")
    assert kinds(outputs)[-1] == "dlq_entry"
    assert (outputs[-1].value["entry_id"], outputs[-1].value["status"]) == (ENTRY, "evicted")
    assert sorted(key for key in log.rows if key.startswith("q:")) == ["q:d2", "q:d3"]
    say(log, "started", entry_id="dlq_0_d2")  # a change of one that is kept evicts nobody
    assert sorted(key for key in log.rows if key.startswith("q:")) == ["q:d2", "q:d3"]


def test_history_and_running_replays_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlq, "HISTORY_MAX", 3)
    monkeypatch.setattr(dlq, "REPLAYING_MAX", 2)
    log = dead()
    for number in range(5):
        say(log, "started", event_id=f"replay-{number}")
    found = entry(log)
    assert found is not None
    assert found["replays"] == 5
    assert found["replaying"] == ["replay-3", "replay-4"]
    assert [note["event_id"] for note in found["history"]] == [f"replay-{n}" for n in (2, 3, 4)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"entry_id": "nonsense"}, "dlq_entry_id is 'nonsense', expected dlq_<partition>"),
        ({"entry_id": "dlq_7_d1"}, "dlq_entry_id is 'dlq_7_d1', expected dlq_<partition>"),
        ({"entry_id": "dlq_1_d1"}, "entry dlq_1_d1 is partition 1's, not 0's"),
        ({"entry_id": "dlq_0_" + "x" * 600}, "entry_id has 606 characters"),
        ({"event_id": "x" * 257}, "event_id has 257 characters"),
        ({"error": "x" * 1_025}, "error has 1025 characters"),
    ],
)
def test_words_that_cannot_be_right_are_quarantined(changes: dict[str, Any], reason: str) -> None:
    log = dead(partitions=2)
    before = log.rows
    [out] = say(log, "failed", **changes)
    assert out.kind == "record_quarantined"
    assert out.value["reason"].startswith(f"DSP-007: {reason}")
    assert log.rows == before


# ---------------------------------------------------------------------- dispatches that replay
def replaying(entry_id: str = "dlq_1_d0", **options: Any) -> DispatchLog:
    log = DispatchLog(retry_policy("immediate", max_attempts=1), partition=0, partitions=2)
    log.match("d1", replay_of_event_id="e0", dlq_entry_id=entry_id, **options)
    return log


@pytest.mark.parametrize(
    ("outcome", "word"),
    [("success", "succeeded"), ("failed", "failed"), ("denied", "failed")],
)
def test_a_replay_tells_its_entry_s_home_how_it_ended(outcome: Any, word: str) -> None:
    log = replaying()
    outputs = log.complete(outcome, error="again", error_class="handler_error")
    [told] = [out for out in outputs if out.kind == "dlq_replayed"]
    assert (told.topic, told.partition, told.key) == ("trigger.dispatches", 1, "dlq_1_d0")
    assert told.value["outcome"] == word
    assert (told.value["event_id"], told.value["replay_of_event_id"]) == ("event-of-d1", "e0")
    assert told.value["attempts"] == 1
    moved = [out.value["entry_id"] for out in outputs if out.kind == "dlq_moved"]
    assert moved == (["dlq_1_d0"] if word == "failed" else [])
    assert not [key for key in log.rows if key.startswith("q:")]


def test_a_cancelled_or_skipped_replay_tells_so() -> None:
    log = replaying()
    log.add(
        "dispatch_cancel_requested",
        {
            "binding_key": "triage@v1",
            "event_id": "event-of-d1",
            "requested_at": "",
            "requested_by": None,
            "audit_id": None,
        },
    )
    told = log.complete("success")[-1]
    assert (told.kind, told.value["outcome"]) == ("dlq_replayed", "cancelled")
    gate = GateLog({"singleton": {}})
    gate.arrive("a", 0)
    word = {
        "dispatch_id": "b",
        "trigger_id": "triage",
        "binding_key": "triage@v1",
        "accepted_at_ms": 1,
        "replay_of_event_id": "e0",
        "dlq_entry_id": "dlq_0_d0",
        "event": event("b"),
        "keys": {},
    }
    told = gate.add("event_matched", word)[-1]
    assert (told.kind, told.value["outcome"]) == ("dlq_replayed", "skipped")


def test_a_replay_of_no_possible_entry_is_quarantined() -> None:
    log = DispatchLog(partitions=2)
    for entry_id, replay_of in (("nonsense", "e0"), ("dlq_2_d0", "e0"), ("dlq_1_d0", None)):
        [out] = log.match("d1", replay_of_event_id=replay_of, dlq_entry_id=entry_id)
        assert out.value["reason"].startswith("DSP-005: dlq_entry_id is")


def test_entry_ids() -> None:
    assert home_of(entry_id_of(11, "a_b")) == (11, "a_b")
    for text in ("", "dlq_", "dlq_1_", "dlq_01_d", "dlq_x_d", "dlq_1234567_d", "DLQ_1_d"):
        assert home_of(text) is None
    assert entry_problem(None, None, 1) is None
    assert entry_problem("dlq_0_d", "e0", 1) is None


def test_a_replayed_batch_keeps_its_members_when_it_is_collected_again() -> None:
    log = GateLog({"batch": {"size": 2, "timeout_ms": 10_000}})
    batch = {**event("r"), "batch": ['{"id":"m1"}', '{"id":"m2"}']}
    log.arrive("r", 0, found=batch)  # type: ignore[arg-type]
    log.arrive("n", 1)
    merged = log.events["r"]["batch"]
    assert merged[:2] == ['{"id":"m1"}', '{"id":"m2"}']
    assert len(merged) == 3
