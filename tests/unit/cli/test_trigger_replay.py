"""Which events `harn trigger replay` sends once more, and what comes of them."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from streams.cli import trigger_replay
from streams.cli.operation import Chooser, Item, condition
from streams.cli.trigger_replay import SEEN, Aim, Range, replay_items, require_replay
from streams.codec import Codec
from streams.edge.operator import AUDIT, new_audit_id
from streams.errors import ConfigError
from streams.testing import PipelineDriver, event
from tests.support.triggers import bindings_of

MANIFEST = """
[[triggers]]
id = "one"
kind = "webhook"
provider = "github"
match = { events = ["a"] }
handler = "works"
rate_limit = { period = "1h", max = 4 }

[[triggers]]
id = "two"
kind = "webhook"
provider = "github"
match = { events = [] }
handler = "works"
"""
CODEC = Codec()


@pytest.fixture
def driver() -> PipelineDriver:
    driver = PipelineDriver(handlers={"works": lambda found: found.payload}, partitions=3)
    driver.apply(bindings_of(MANIFEST))
    for number in range(4):
        found = event(f"e{number}", kind="a", payload={"n": number}, dedupe_key=f"d{number}")
        driver.emit(found, headers={"traceparent": f"00-{number}-1-01"})
        driver.advance(1_000)
    return driver


def items(driver: PipelineDriver, where: str | None = None, **options: Any) -> list[Item]:
    span = options.pop("span", Range())
    aim = Aim(options.pop("live", {"one", "two"}), options.pop("trigger_id", None))
    options.setdefault("audit_id", new_audit_id())
    return replay_items(driver.kafka, CODEC, Chooser(condition(where, SEEN)), span, aim, **options)


def send(driver: PipelineDriver, found: list[Item]) -> None:
    for item in found:
        if item.request is not None:
            asked = item.request("trigger_audit_1")
            driver.append(
                asked.topic, asked.kind, asked.value, key=asked.key, headers=dict(asked.headers)
            )
    driver.finish()


def successes(driver: PipelineDriver, replay_of: str | None) -> list[tuple[str, str]]:
    return sorted(
        (seen.value["trigger_id"], seen.value["event_id"])
        for seen in driver.records("trigger.outbox", "dispatch_succeeded")
        if seen.value["replay_of_event_id"] == replay_of
    )


def test_a_replay_is_a_new_event_that_names_the_old_one_and_meets_no_dedupe(
    driver: PipelineDriver,
) -> None:
    [item] = items(driver, event_id="e1")
    fresh = item.fields["replay_event_id"]
    send(driver, [item])
    # The gate of `one` is full: a replay passes gates like any event.
    assert successes(driver, "e1") == [("two", fresh)]
    skipped = driver.records("trigger.outbox", "dispatch_skipped")
    assert [seen.value["event_id"] for seen in skipped] == [fresh]
    [matched] = [
        seen
        for seen in driver.records("trigger.dispatches", "event_matched")
        if seen.value["event"]["id"] == fresh and seen.value["trigger_id"] == "two"
    ]
    assert matched.value["event"]["dedupe_key"] == "d1"
    assert matched.headers["traceparent"] == "00-1-1-01"
    assert driver.records("triggers.lifecycle", "EventDeduplicated") == []
    assert driver.audit().word == "verified"


def test_a_replay_can_be_for_one_trigger_only(driver: PipelineDriver) -> None:
    found = items(driver, event_id="e2", trigger_id="two")
    send(driver, found)
    assert [name for name, _ in successes(driver, "e2")] == ["two"]
    assert driver.records("trigger.outbox", "dispatch_skipped") == []


def test_a_range_of_times_begins_with_and_ends_before(driver: PipelineDriver) -> None:
    times = {
        seen.value["event"]["id"]: seen.timestamp_ms
        for seen in driver.records("trigger.inbox.envelopes", "event_ingested")
    }
    found = items(driver, span=Range(times["e1"], times["e3"]))
    assert {item.fields["event_id"] for item in found} == {"e1", "e2"}
    found = items(driver, span=Range(None, times["e1"]))
    assert {item.fields["event_id"] for item in found} == {"e0"}
    found = items(driver, "event.payload.n >= 1", span=Range(times["e0"]))
    assert {item.fields["event_id"] for item in found} == {"e1", "e2", "e3"}
    assert items(driver, span=Range(times["e3"] + 1)) == []


def test_in_bulk_replays_and_repeated_deliveries_are_left_out(driver: PipelineDriver) -> None:
    send(driver, items(driver, event_id="e1", trigger_id="two"))
    driver.emit(event("again", kind="a", payload={"n": 0}, dedupe_key="d0"))
    driver.finish()
    found = items(driver, "event.payload.n < 2")
    assert sorted(item.status for item in found) == ["", "", "is_a_replay", "repeat"]
    replay = next(item for item in found if item.status == "is_a_replay")
    [once] = items(driver, event_id=replay.fields["event_id"])
    assert once.request is not None  # by its id a replay is replayed, too
    asked = once.request("a")
    assert asked.value["replay_of_event_id"] == replay.fields["event_id"]


def test_a_replay_that_goes_on_takes_nothing_twice(driver: PipelineDriver) -> None:
    begun = items(driver, "event.payload.n < 2", trigger_id="two", audit_id="trigger_audit_a")
    send(driver, begun[:1])
    resumed = items(driver, "event.payload.n < 3", trigger_id="two", audit_id="trigger_audit_a")
    send(driver, resumed)
    for event_id in ("e0", "e1", "e2"):
        assert [name for name, _ in successes(driver, event_id)] == ["two"]
    assert len(driver.records("triggers.lifecycle", "EventDeduplicated")) == 1
    send(driver, items(driver, event_id="e0", trigger_id="two"))
    assert len(successes(driver, "e0")) == 2, "another replay is another event"


def audited(driver: PipelineDriver, audit_id: str, **changes: Any) -> None:
    said = {
        **dict.fromkeys(("filter", "requested_by", "rate_limit", "only_for")),
        **dict.fromkeys(("accepted_from", "accepted_before")),
        **dict.fromkeys(("matched_count", "requested_count", "skipped_count"), 1),
        "audit_id": audit_id,
        "operation": "replay",
        "dry_run": False,
        "targets": [],
        "requested_at": "2026-01-01T00:00:00.000Z",
        **changes,
    }
    value = CODEC.encode("trigger_operation_audit", said)
    driver.kafka.append(AUDIT, value, key=audit_id.encode(), headers=[])


def test_only_a_replay_that_was_begun_goes_on(driver: PipelineDriver) -> None:
    audited(driver, "trigger_audit_a")
    audited(driver, "trigger_audit_b", operation="cancel")
    audited(driver, "trigger_audit_c", dry_run=True)
    require_replay(driver.kafka, CODEC, "trigger_audit_a")
    for other in ("trigger_audit_b", "trigger_audit_c", "trigger_audit_d"):
        with pytest.raises(ConfigError, match=f"no replay with the audit record '{other}'"):
            require_replay(driver.kafka, CODEC, other)


def test_conditions_see_the_envelope(driver: PipelineDriver) -> None:
    driver.emit(event("t", kind="a"), trigger_id="two")
    driver.finish()
    [item] = items(driver, "envelope.trigger_id == 'two'")
    assert item.fields["event_id"] == "t"
    send(driver, [item])
    assert [name for name, _ in successes(driver, "t")] == ["two"]  # still targeted


def test_what_is_for_a_trigger_that_is_gone_is_named_and_left_alone(driver: PipelineDriver) -> None:
    driver.emit(event("t", kind="a"), trigger_id="gone")
    driver.emit(event("c", provider="cron", payload={"cron_id": "nightly"}))
    driver.finish()
    found = {item.fields["event_id"]: item for item in items(driver, "true")}
    assert found["e1"].request is not None, "whoever takes it may have it"
    for event_id, trigger_id in (("t", "gone"), ("c", "nightly")):
        item = found[event_id]
        assert (item.request, item.status) == (None, "no_such_trigger")
        assert item.fields["trigger_id"] == trigger_id
    [back] = items(driver, event_id="t", live={"gone"})
    assert back.request is not None, "it is in force again"
    [aimed] = items(driver, event_id="t", trigger_id="two")
    assert aimed.request is not None, "an operator's aim comes before the event's own"


def test_too_many_events_are_refused_and_too_large_ones_named(
    driver: PipelineDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger_replay, "EVENTS_MAX", 4)
    assert len(items(driver, "true")) == 4
    monkeypatch.setattr(trigger_replay, "EVENTS_MAX", 3)
    with pytest.raises(ConfigError, match="more than 3 events are chosen"):
        items(driver, "true")
    monkeypatch.setattr("streams.edge.replays.MAX_INPUT_BYTES", 4_100)
    [item] = items(driver, event_id="e1")
    assert (item.request, item.status) == (None, "too_large")


def test_what_is_no_event_is_passed_over(driver: PipelineDriver) -> None:
    driver.kafka.append("trigger.inbox.envelopes", b"garbage e1", key=b"", headers=[])
    assert len(items(driver, event_id="e1")) == 1
    assert items(driver, event_id="e9") == []


def test_a_time_that_ends_before_it_begins_is_refused_and_nothing_is_asked() -> None:
    app = typer.Typer()
    app.command()(trigger_replay.replay)
    times = ["--from", "2026-02-01T00:00:00Z", "--to", "2026-01-01T00:00:00Z"]
    done = CliRunner().invoke(app, times)
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).startswith("--from is 2026-02-01T00:00:00Z and --to is 2026-01-01")


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("envelope.webhook == 'x'", "no 'webhook'; did you mean envelope.webhook_path?"),
        ("payload.n == 1", "'payload' is not known: an expression sees `event` and `envelope`"),
        ("event.kind.lower() == 'x'", "there is no function 'lower'"),
    ],
)
def test_names_that_no_envelope_has_are_refused(where: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        condition(where, SEEN)


@pytest.mark.parametrize("name", sorted(SEEN["envelope"] or ()))
def test_a_condition_may_name_all_that_an_envelope_has(driver: PipelineDriver, name: str) -> None:
    found = items(driver, f"envelope.{name} == null || envelope.{name} != null")
    assert len(found) == 4
