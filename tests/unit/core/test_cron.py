"""Cron triggers in the fold of the inbox: one timer a trigger, one firing a tick."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.cron import CATCH_UP_MAX, COUNTED_MAX, LATE_MS
from streams.core.placement import partition_of
from streams.core.wire import BindingDefinition
from streams.testing import binding, envelope, event
from tests.support.revisions import revision
from tests.support.stage_log import Out, StageLog, kinds
from tests.support.triggers import published

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
NOON_MS = int(datetime.fromisoformat("2026-06-01T12:00:00Z").timestamp() * 1_000)


def cron(
    schedule: str = "*/10 * * * *", trigger_id: str = "clean-up", version: int = 1, **keys: str
) -> BindingDefinition:
    lines = "\n".join(f'{name} = "{text}"' for name, text in keys.items())
    [found] = published(
        f"""
        [[triggers]]
        id = "{trigger_id}"
        kind = "cron"
        provider = "cron"
        match = {{}}
        handler = "run"
        schedule = "{schedule}"
        {lines}
        """,
        version,
    )
    return found


def log(*bindings: BindingDefinition, partition: int = 0, partitions: int = 1) -> StageLog:
    """An inbox partition that gets revision 1 at noon."""
    started = StageLog("inbox", partition=partition, partitions=partitions)
    started.now_ms = NOON_MS
    started.add("revision_published", revision(1, added=bindings))
    return started


def fired(outputs: Sequence[Out]) -> list[str]:
    """The ticks that outputs fire."""
    envelopes = [out.value["event"] for out in outputs if out.kind == "event_ingested"]
    return [found["occurred_at"].removeprefix("2026-06-01T") for found in envelopes]


def timer(started: StageLog, trigger_id: str = "clean-up") -> dict[str, Any]:
    return started.rows[f"c:{trigger_id}"]


# ---------------------------------------------------------------------- firing
def test_a_tick_is_an_envelope_for_its_trigger_with_ids_derived_from_both() -> None:
    started = log(cron())
    assert timer(started)["due_ms"] == NOON_MS + 10 * MINUTE_MS
    [out] = started.tick(10 * MINUTE_MS + 25)
    assert (out.topic, out.kind, out.partition) == ("trigger.inbox.envelopes", "event_ingested", 0)
    assert out.key == "cron:clean-up@2026-06-01T12:10:00.000Z"
    assert (out.value["trigger_id"], out.value["binding_version"]) == ("clean-up", None)
    found = out.value["event"]
    assert (found["provider"], found["kind"]) == ("cron", "cron.tick")
    assert found["occurred_at"] == "2026-06-01T12:10:00.000Z"
    assert found["received_at"] == "2026-06-01T12:10:00.025Z"
    assert found["dedupe_key"] == "clean-up@2026-06-01T12:10:00.000Z"
    assert json.loads(found["provider_payload"]) == {
        "cron_id": "clean-up",
        "schedule": "*/10 * * * *",
        "tick_at": "2026-06-01T12:10:00.000Z",
        "raw": {"timezone": "UTC", "missed": 0},
    }
    assert timer(started)["due_ms"] == NOON_MS + 20 * MINUTE_MS
    [twin] = log(cron()).tick(10 * MINUTE_MS)
    assert twin.value["event"]["id"] == found["id"]


def test_the_envelope_of_a_tick_is_matched_once_however_often_it_comes() -> None:
    started = log(cron())
    [out] = started.tick(10 * MINUTE_MS)
    [matched] = started.add("event_ingested", out.value, headers={"traceparent": "00-1-2-01"})
    [dropped] = started.add("event_ingested", out.value)
    assert matched.value["binding_key"] == "clean-up@v1"
    assert dropped.kind == "EventDeduplicated"


def test_any_record_that_moves_time_fires_what_is_due_before_it_is_folded() -> None:
    started = log(cron())
    started.now_ms += 10 * MINUTE_MS
    outputs = started.add("revision_published", revision(2, drained=["clean-up@v1"]))
    assert kinds(outputs) == ["event_ingested", "revision_reached"]
    assert started.tick(10 * MINUTE_MS) == []


def test_a_trigger_fires_in_one_partition_of_all() -> None:
    bindings = [cron(trigger_id=f"t{number}") for number in range(12)]
    homes: dict[str, int] = {}
    for partition in range(4):
        started = log(*bindings, partition=partition, partitions=4)
        for out in started.tick(10 * MINUTE_MS):
            assert out.partition == partition
            assert homes.setdefault(out.value["trigger_id"], partition) == partition
    assert homes == {f"t{n}": partition_of(f"t{n}".encode(), 4) for n in range(12)}
    assert len(set(homes.values())) > 1


def test_a_schedule_reads_the_clock_of_its_zone_and_names_its_rules() -> None:
    started = log(cron("0 9 * * *", timezone="America/New_York"))
    assert timer(started)["due_ms"] == NOON_MS + HOUR_MS
    assert timer(started)["zone_rules"].startswith("20")
    assert timer(log(cron("0 9 * * *")))["zone_rules"] == ""


def test_a_cron_event_without_a_target_belongs_to_the_trigger_that_it_names() -> None:
    started = log(cron(trigger_id="a"), cron(trigger_id="b"))
    [out] = started.add(
        "event_ingested", envelope(event(provider="cron", payload={"cron_id": "b"}))
    )
    assert out.value["binding_key"] == "b@v1"
    both = started.add("event_ingested", envelope(event("e2", provider="cron", payload=[])))
    assert [each.value["trigger_id"] for each in both] == ["a", "b"]


# ---------------------------------------------------------------------- reloads
def test_a_new_version_with_the_same_schedule_goes_on_where_the_old_one_was() -> None:
    started = log(cron())
    started.now_ms += 9 * MINUTE_MS
    changed = cron(version=2, missed="all")
    started.add("revision_published", revision(2, added=[changed], drained=["clean-up@v1"]))
    assert timer(started)["binding_key"] == "clean-up@v2"
    assert timer(started)["considered_ms"] == NOON_MS
    assert fired(started.tick(MINUTE_MS)) == ["12:10:00.000Z"]


def test_a_new_schedule_begins_when_it_enters_force() -> None:
    started = log(cron("0 * * * *"))
    started.now_ms += 9 * MINUTE_MS
    changed = cron("*/5 * * * *", version=2)
    started.add("revision_published", revision(2, added=[changed], drained=["clean-up@v1"]))
    assert fired(started.tick(MINUTE_MS)) == ["12:10:00.000Z"]


def test_a_trigger_that_is_no_cron_trigger_any_more_has_no_timer() -> None:
    started = log(cron())
    other = binding("clean-up", version=2)
    started.add("revision_published", revision(2, added=[other], drained=["clean-up@v1"]))
    assert [key for key in started.rows if key.startswith("c:")] == []


def test_a_definition_that_no_manifest_would_hold_arms_nothing_and_halts_nothing() -> None:
    for broken in ('{"schedule":"often"}', "{}", '{"schedule":"* * * * *","timezone":"+02:00"}'):
        started = log({**cron(), "definition": broken})
        assert [key for key in started.rows if key.startswith("c:")] == []


# ---------------------------------------------------------------------- missed ticks
def test_after_a_stop_the_last_tick_fires_and_the_others_are_recorded() -> None:
    started = log(cron())
    missed, out = started.tick(35 * MINUTE_MS)
    assert (missed.topic, missed.kind) == ("triggers.lifecycle", "CronTicksMissed")
    assert missed.value == {
        "trigger_id": "clean-up",
        "binding_key": "clean-up@v1",
        "missed": "last",
        "count": 2,
        "first_tick_at": "2026-06-01T12:10:00.000Z",
        "last_tick_at": "2026-06-01T12:20:00.000Z",
    }
    assert fired([out]) == ["12:30:00.000Z"]
    assert json.loads(out.value["event"]["provider_payload"])["raw"]["missed"] == 2


def test_skip_fires_only_what_is_not_late() -> None:
    started = log(cron(missed="skip"))
    assert fired(started.tick(10 * MINUTE_MS + LATE_MS)) == ["12:10:00.000Z"]
    [missed] = started.tick(10 * MINUTE_MS + 1)
    assert (missed.kind, missed.value["count"]) == ("CronTicksMissed", 1)
    assert fired(started.tick(9 * MINUTE_MS)) == ["12:30:00.000Z"]


def test_all_catches_up_in_order_up_to_a_bound() -> None:
    started = log(cron("* * * * *", missed="all"))
    assert fired(started.tick(3 * MINUTE_MS)) == ["12:01:00.000Z", "12:02:00.000Z", "12:03:00.000Z"]
    at_bound = started.tick(CATCH_UP_MAX * MINUTE_MS)
    assert kinds(at_bound) == ["event_ingested"] * CATCH_UP_MAX
    [missed, *rest] = started.tick((CATCH_UP_MAX + 1) * MINUTE_MS)
    assert (missed.kind, missed.value["count"]) == ("CronTicksMissed", 1)
    assert kinds(rest) == ["event_ingested"] * CATCH_UP_MAX


def test_what_was_missed_is_counted_up_to_a_bound() -> None:
    started = log(cron("* * * * *"))
    [missed, _] = started.tick((COUNTED_MAX + 500) * MINUTE_MS)
    assert missed.value["count"] == COUNTED_MAX
    assert missed.value["last_tick_at"] == "2026-06-02T12:59:00.000Z"


@pytest.mark.parametrize("missed", ["last", "skip", "all"])
@given(pauses=st.lists(st.integers(1, 40 * MINUTE_MS), max_size=12))
def test_every_tick_fires_once_or_is_counted_once(missed: str, pauses: list[int]) -> None:
    """A slow reference: minute by minute, each tick falls into exactly one pause."""
    started = log(cron("*/7 * * * *", missed=missed))
    for pause in pauses:
        before_ms = started.now_ms
        outputs = started.tick(pause)
        first = before_ms - before_ms % MINUTE_MS + MINUTE_MS
        due = [
            at
            for at in range(first, started.now_ms + 1, MINUTE_MS)
            if (at // MINUTE_MS) % 60 % 7 == 0
        ]
        counted = sum(out.value["count"] for out in outputs if out.kind == "CronTicksMissed")
        firing = fired(outputs)
        assert len(firing) + counted == len(due)
        if missed == "all":
            assert counted == 0
        elif missed == "last":
            assert len(firing) == min(len(due), 1)
        else:
            assert len(firing) == (bool(due) and started.now_ms - due[-1] <= LATE_MS)
    started.assert_replays([3, 1], reload_at=frozenset({1, 2, 4}))
