from typing import Any

import pytest

from streams.core import inbox
from streams.core.bounds import ID_CHARS_MAX, TEXT_CHARS_MAX
from streams.core.revision import RevisionGap
from streams.engine import FoldFailed
from streams.testing import envelope, event, policy
from tests.support.revisions import revision, versioned
from tests.support.stage_log import CODEC, StageLog, kinds
from tests.support.webhooks import with_path

HOUR_MS = 3_600_000


def log(*bindings: Any, partitions: int = 1, **limits: Any) -> StageLog:
    """An inbox partition under revision 1."""
    started = StageLog("inbox", partitions=partitions)
    started.add("revision_published", revision(1, added=bindings, in_force=policy(**limits)))
    return started


def arrive(inbox_log: StageLog, found: Any, **targets: Any) -> list[Any]:
    return inbox_log.add("event_ingested", envelope(found, **targets))


# ---------------------------------------------------------------------- matching
def test_an_event_goes_to_every_binding_of_its_provider_and_kind_by_trigger_id() -> None:
    started = log(
        versioned("b", events=["issues.opened"]),
        versioned("a"),
        versioned("c", events=["push"]),
        versioned("d", provider="slack"),
    )
    outputs = arrive(started, event("e1", kind="issues.opened"))
    assert [(out.topic, out.kind, out.key) for out in outputs] == [
        ("trigger.dispatches", "event_matched", "e1"),
        ("trigger.dispatches", "event_matched", "e1"),
    ]
    assert [out.value["binding_key"] for out in outputs] == ["a@v1", "b@v1"]
    assert len({out.value["dispatch_id"] for out in outputs}) == 2
    assert outputs[0].value["accepted_at_ms"] == started.now_ms
    assert outputs[0].value["event"]["id"] == "e1"


def test_an_event_that_nobody_takes_is_recorded_as_unmatched() -> None:
    started = log(versioned(events=["push"]))
    [out] = arrive(started, event("e1", kind="issues.opened"))
    assert (out.topic, out.kind, out.key) == ("triggers.lifecycle", "EventUnmatched", "e1")
    assert out.value["event_kind"] == "issues.opened"


def test_a_webhook_goes_to_the_bindings_of_its_path_alone() -> None:
    started = log(
        with_path(versioned("a"), "one"),
        with_path(versioned("b", events=["push"]), "one"),
        with_path(versioned("c"), "two"),
        versioned("d"),
    )
    [out] = arrive(started, event("e1"), webhook_path="one")
    assert out.value["binding_key"] == "a@v1"
    [unmatched] = arrive(started, event("e2"), webhook_path="three")
    assert unmatched.kind == "EventUnmatched"
    everybody = arrive(started, event("e3"))
    assert [each.value["trigger_id"] for each in everybody] == ["a", "c", "d"]


def test_a_delivery_id_of_one_webhook_says_nothing_about_another() -> None:
    started = log(with_path(versioned("a"), "one"), with_path(versioned("b"), "two"))
    sent = [("e1", "one"), ("e2", "two"), ("e3", "one"), ("e4", None)]
    found = [
        arrive(started, event(event_id, dedupe_key="1"), webhook_path=path)[0].kind
        for event_id, path in sent
    ]
    assert found == ["event_matched", "event_matched", "EventDeduplicated", "event_matched"]
    keys = {
        inbox.mailbox_key(event("e", dedupe_key="1"), webhook_path=path)
        for path in ("one", "two", None)
    }
    assert keys == {"github/one:1", "github/two:1", "github:1"}


def test_a_targeted_event_goes_to_its_trigger_whatever_its_kind() -> None:
    started = log(versioned("a", events=["push"]), versioned("b"))
    [out] = arrive(started, event("e1", kind="other"), trigger_id="a")
    assert out.value["binding_key"] == "a@v1"


def test_a_targeted_event_names_its_version_or_gets_the_newest() -> None:
    started = log(versioned("a", 1), versioned("a", 10), versioned("a", 9))
    [newest] = arrive(started, event("e1"), trigger_id="a")
    [exact] = arrive(started, event("e2"), trigger_id="a", binding_version=9)
    [gone] = arrive(started, event("e3"), trigger_id="a", binding_version=2)
    assert newest.value["binding_key"] == "a@v10"
    assert exact.value["binding_key"] == "a@v9"
    assert gone.kind == "EventUnmatched"
    assert gone.value["trigger_id"] == "a"


def test_tenant_and_trace_follow_the_event_in_headers() -> None:
    started = log(versioned())
    arriving = envelope(event("e1", tenant_id="acme"))
    headers = {"traceparent": "00-1-2-01", "other": "dropped"}
    [out] = started.add("event_ingested", arriving, headers=headers)
    assert out.headers == {
        "cause": "trigger.inbox.envelopes/0/1/0",
        "fold": "inbox@1",
        "tenant_id": "acme",
        "traceparent": "00-1-2-01",
    }


def test_a_trace_that_no_tracer_would_write_stops_nothing() -> None:
    started = log(versioned())
    value = CODEC.encode("event_ingested", envelope(event("e1")))
    headers = [("kind", b"event_ingested"), ("traceparent", b"\xff" * 400_000)]
    [out] = started.add_raw(value, headers=headers)
    assert out.kind == "event_matched"
    assert "traceparent" not in out.headers


def test_a_target_that_is_too_long_is_refused() -> None:
    started = log(versioned())
    for target in ("trigger_id", "replay_of_event_id"):
        [out] = arrive(started, event("e1"), **{target: "x" * 257})
        reason = f"INB-002: {target} has 257 characters, expected at most 256"
        assert out.value["reason"] == reason


# ---------------------------------------------------------------------- dedupe
def test_a_repeated_delivery_is_dropped_until_the_window_ends() -> None:
    started = log(versioned(), event_id_window_ms=HOUR_MS)
    arrive(started, event("e1", dedupe_key="d"))
    started.now_ms += HOUR_MS - 1
    [dropped] = arrive(started, event("e2", dedupe_key="d"))
    started.now_ms += 1
    again = arrive(started, event("e3", dedupe_key="d"))
    assert dropped.kind == "EventDeduplicated"
    assert dropped.value == {
        "event_id": "e2",
        "provider": "github",
        "dedupe_key": "d",
        "first_event_id": "e1",
    }
    assert kinds(again) == ["event_matched"]


def test_an_unmatched_event_is_remembered_too() -> None:
    started = log()
    assert kinds(arrive(started, event("e1"))) == ["EventUnmatched"]
    assert kinds(arrive(started, event("e1"))) == ["EventDeduplicated"]


def test_the_same_key_of_another_provider_is_another_delivery() -> None:
    started = log(versioned("a"), versioned("b", provider="slack"))
    arrive(started, event("e1", dedupe_key="d"))
    assert kinds(arrive(started, event("e2", provider="slack", dedupe_key="d"))) == [
        "event_matched"
    ]


def test_an_event_id_is_never_taken_for_a_delivery_of_a_provider() -> None:
    started = log(versioned())
    arrive(started, event("e1", dedupe_key="d"))
    assert kinds(arrive(started, event("github:d"))) == ["event_matched"]


def test_a_long_delivery_id_is_known_by_its_hash() -> None:
    started = log(versioned())
    long_key = "d" * 500
    arrive(started, event("e1", dedupe_key=long_key))
    assert kinds(arrive(started, event("e2", dedupe_key=long_key))) == ["EventDeduplicated"]
    assert kinds(arrive(started, event("e3", dedupe_key=long_key + "d"))) == ["event_matched"]
    assert max(len(key) for key in started.rows) < 100


def test_a_replay_is_new_although_its_delivery_is_known() -> None:
    started = log(versioned())
    arrive(started, event("e1", dedupe_key="d"))
    replay = event("e2", dedupe_key="d")
    [first] = arrive(started, replay, replay_of_event_id="e1")
    assert first.kind == "event_matched"
    assert first.value["replay_of_event_id"] == "e1"
    assert kinds(arrive(started, replay, replay_of_event_id="e1")) == ["EventDeduplicated"]


def test_mailbox_keys_of_repeats_are_equal_and_those_of_replays_are_not() -> None:
    first, second = event("e1", dedupe_key="d"), event("e2", dedupe_key="d")
    assert inbox.mailbox_key(first) == inbox.mailbox_key(second) == "github:d"
    assert inbox.mailbox_key(second, replay=True) == "e2"
    assert inbox.mailbox_key(event("e3")) == "e3"


# ---------------------------------------------------------------------- the bound of the set
def seen(inbox_log: StageLog) -> set[str]:
    return {key.rpartition(":")[2] for key in inbox_log.rows if key.startswith("s:")}


def test_the_oldest_ids_are_forgotten_at_the_bound() -> None:
    started = log(versioned(), dedupe_rows_max=3)
    for number in range(5):
        started.now_ms += 1
        arrive(started, event(f"e{number}"))
    assert seen(started) == {"e2", "e3", "e4"}
    assert kinds(arrive(started, event("e2"))) == ["EventDeduplicated"]
    assert kinds(arrive(started, event("e0"))) == ["event_matched"]


def test_a_lowered_bound_is_reached_a_thousand_rows_a_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox, "EVICTIONS_MAX", 2)
    started = log(versioned(), dedupe_rows_max=10)
    for number in range(6):
        arrive(started, event(f"e{number}"))
    started.add("revision_published", revision(2, in_force=policy(dedupe_rows_max=1)))
    sizes: list[int] = []
    for number in range(6, 12):
        arrive(started, event(f"e{number}"))
        sizes.append(len(seen(started)))
    assert sizes == [5, 4, 3, 2, 1, 1]
    assert seen(started) == {"e11"}


def test_a_new_id_stays_although_it_expires_before_the_old_ones() -> None:
    started = log(versioned(), dedupe_rows_max=2, event_id_window_ms=HOUR_MS)
    arrive(started, event("old1"))
    arrive(started, event("old2"))
    shorter = policy(dedupe_rows_max=2, event_id_window_ms=1_000)
    started.add("revision_published", revision(2, in_force=shorter))
    arrive(started, event("new"))
    assert kinds(arrive(started, event("new"))) == ["EventDeduplicated"]


def test_expired_ids_go_without_being_asked_for() -> None:
    started = log(event_id_window_ms=1_000)
    for number in range(9):
        arrive(started, event(f"e{number}"))
    started.tick(after_ms=1_000)
    assert len(seen(started)) == 5  # four a record
    started.tick()
    started.tick()
    assert seen(started) == set()


# ---------------------------------------------------------------------- bad events
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (event("x" * (ID_CHARS_MAX + 1)), "id has 257 characters, expected at most 256"),
        (event("", dedupe_key="d"), "an event without id or without provider"),
        (event("e1", provider=""), "an event without id or without provider"),
        (event("e1", provider="git:hub"), "a provider's name holds no colon"),
        (event("e1", kind="k" * 257), "kind has 257 characters, expected at most 256"),
        (event("e1", tenant_id="t" * 257), "tenant_id has 257 characters, expected at most 256"),
        (
            event("e1", dedupe_key="d" * (TEXT_CHARS_MAX + 1)),
            "dedupe_key has 1025 characters, expected at most 1024",
        ),
    ],
)
def test_an_event_whose_names_cannot_be_copied_is_quarantined(bad: Any, reason: str) -> None:
    started = log(versioned())
    before = started.rows
    [out] = arrive(started, bad)
    assert (out.topic, out.kind) == ("trigger.dlq", "record_quarantined")
    assert (out.value["code"], out.value["reason"]) == ("rejected", f"INB-002: {reason}")
    assert started.rows == before


def test_an_event_at_every_bound_is_taken() -> None:
    started = log(versioned(provider="p" * ID_CHARS_MAX))
    largest = event(
        "i" * ID_CHARS_MAX,
        provider="p" * ID_CHARS_MAX,
        kind="k" * ID_CHARS_MAX,
        tenant_id="t" * ID_CHARS_MAX,
        dedupe_key="d" * TEXT_CHARS_MAX,
    )
    largest["trace_id"] = "t" * ID_CHARS_MAX
    assert kinds(arrive(started, largest)) == ["event_matched"]


# ---------------------------------------------------------------------- revisions
def test_a_revision_replaces_bindings_and_tells_every_dispatch_partition() -> None:
    started = log(versioned("a", 1), versioned("b", 1), partitions=3)
    outputs = started.add(
        "revision_published", revision(2, added=[versioned("a", 2)], drained=["a@v1", "b@v1"])
    )
    assert [(out.topic, out.kind, out.partition) for out in outputs] == [
        ("trigger.dispatches", "revision_reached", partition) for partition in range(3)
    ]
    assert outputs[0].value == {"revision": 2, "inbox_partition": 0, "inbox_partitions": 3}
    [matched] = arrive(started, event("e1"))
    assert matched.value["binding_key"] == "a@v2"


def test_a_repeated_revision_does_nothing() -> None:
    started = log(versioned("a"))
    before = started.rows
    assert started.add("revision_published", revision(1, drained=["a@v1"])) == []
    assert started.rows == before


def test_a_missing_revision_stops_the_partition() -> None:
    started = log()
    with pytest.raises(FoldFailed, match="revision 3 follows 1: 2 is missing") as failed:
        started.add("revision_published", revision(3))
    assert isinstance(failed.value.__cause__, RevisionGap)


def test_matching_survives_a_reload() -> None:
    started = log(versioned("a", 2), versioned("a", 10), versioned("b"))
    arrive(started, event("e1"), trigger_id="a")
    arrive(started, event("e2"))
    started.assert_replays([1], reload_at=frozenset({1, 2}))


def test_a_kind_of_another_stage_is_quarantined() -> None:
    started = log()
    [out] = started.add_raw(b"", headers=[("kind", b"invoke")])
    assert out.value["code"] == "undecodable"
