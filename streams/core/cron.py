"""Cron triggers: each has one timer row, in one partition of the inbox, which fires its ticks.

| what comes | row | outputs |
|---|---|---|
| a revision adds a cron trigger whose home is here | armed for its next tick | none |
| … with the schedule and zone that it had | its timer goes on | none |
| a revision drains it, and adds no other version | gone | none |
| its due time | armed for the next tick | `event_ingested` for what fires, into the own mailbox |
| … long after | the same | besides, `CronTicksMissed` for what does not fire |

A tick is fired as an envelope like any other: it is deduplicated, matched, gated and replayed as
one.  Its event id and delivery key are derived from trigger and tick, so a tick fires once.

The home of a trigger is where its id hashes to.  A partition has the trigger's revision before it
fires, so no tick meets an inbox that does not know its trigger.

Source: SEMANTICS 1.1 cron payload, 2.1; DESIGN "An event"; docs/adr/0010.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from streams.core.clock import rfc3339
from streams.core.event_json import payload_of
from streams.core.placement import partition_of
from streams.core.record import Output
from streams.core.schedule import UTC, Calendar
from streams.core.state import State
from streams.core.wire import (
    BindingDefinition,
    EventIngested,
    LifecycleCronTicksMissed,
    MissedTicks,
    RevisionPublished,
    RowCron,
    TriggerEvent,
)

ENVELOPES = "trigger.inbox.envelopes"
LIFECYCLE = "triggers.lifecycle"

PROVIDER = "cron"
TICK_KIND = "cron.tick"
MISSED_DEFAULT: MissedTicks = "last"

CATCH_UP_MAX = 100
"""Ticks that fire at once, at most: the newest ones, when a trigger catches up on all it missed."""

LATE_MS = 60_000
"""A tick that fires later than this is one that was missed."""

COUNTED_MAX = 1_000
"""Missed ticks that are counted, at most."""

ROW_PREFIX = "c:"
_ID_BYTES = 16


def on_revision(state: State, published: RevisionPublished, calendar: Calendar, /) -> None:
    """Arm, keep or remove the timers of the triggers whose home is this partition."""
    added = {
        binding["trigger_id"]: binding
        for binding in published["added"]
        if binding["kind"] == PROVIDER and _is_home(state, binding["trigger_id"])
    }
    for binding_key in published["drained"]:
        trigger_id = binding_key.rpartition("@v")[0]
        row: RowCron | None = state.rows.get(f"{ROW_PREFIX}{trigger_id}")
        if row is not None and row["binding_key"] == binding_key and trigger_id not in added:
            state.rows.delete(f"{ROW_PREFIX}{trigger_id}")
    for trigger_id, binding in sorted(added.items()):
        _arm(state, f"{ROW_PREFIX}{trigger_id}", binding, calendar)


def _is_home(state: State, trigger_id: str) -> bool:
    return partition_of(trigger_id.encode(), state.partitions) == state.partition


def _arm(state: State, key: str, binding: BindingDefinition, calendar: Calendar) -> None:
    table: dict[str, Any] = json.loads(binding["definition"])
    schedule: str = table.get("schedule", "")
    timezone: str = table.get("timezone", UTC)
    if calendar.schedule_problem(schedule) or calendar.timezone_problem(timezone):
        state.rows.delete(key)
        return  # no manifest is loaded with it: somebody wrote the request by hand
    before: RowCron | None = state.rows.get(key)
    same = before is not None and (before["schedule"], before["timezone"]) == (schedule, timezone)
    row: RowCron = {
        "trigger_id": binding["trigger_id"],
        "binding_key": binding["binding_key"],
        "schedule": schedule,
        "timezone": timezone,
        "missed": table.get("missed", MISSED_DEFAULT),
        "considered_ms": before["considered_ms"] if before is not None and same else state.now_ms,
        "due_ms": None,
        "zone_rules": "",
    }
    state.rows.put(key, _armed(row, calendar))


def _armed(row: RowCron, calendar: Calendar) -> RowCron:
    """Return the row, due at the first tick that it has not considered."""
    due_ms = calendar.next_after(row["schedule"], row["timezone"], row["considered_ms"])
    rules = "" if row["timezone"] == UTC else calendar.zone_rules
    return {**row, "due_ms": due_ms, "zone_rules": rules}


def on_due(state: State, key: str, row: RowCron, calendar: Calendar, /) -> Iterable[Output]:
    """Fire what is due of one trigger, say what is missed, and wait for the next tick."""
    schedule, timezone, now_ms = row["schedule"], row["timezone"], state.now_ms
    after_ms = row["considered_ms"]
    limit = CATCH_UP_MAX if row["missed"] == "all" else 1
    firing = calendar.newest(schedule, timezone, after_ms, now_ms, limit)
    assert firing, "a due timer has a tick"
    if row["missed"] == "skip" and now_ms - firing[0] > LATE_MS:
        firing = []
    missed_until_ms = firing[0] - 1 if firing else now_ms
    outputs: list[Output] = []
    count = calendar.count(schedule, timezone, after_ms, missed_until_ms, COUNTED_MAX)
    if count:
        outputs.append(_missed(row, calendar, count, missed_until_ms))
    outputs += [_fire(state, row, tick_ms, count) for tick_ms in firing]
    state.rows.put(key, _armed({**row, "considered_ms": now_ms}, calendar))
    return outputs


def _missed(row: RowCron, calendar: Calendar, count: int, until_ms: int) -> Output:
    schedule, timezone, after_ms = row["schedule"], row["timezone"], row["considered_ms"]
    first_ms = calendar.next_after(schedule, timezone, after_ms)
    assert first_ms is not None, "what was counted has a first one"
    [last_ms] = calendar.newest(schedule, timezone, after_ms, until_ms, 1)
    value: LifecycleCronTicksMissed = {
        "trigger_id": row["trigger_id"],
        "binding_key": row["binding_key"],
        "missed": row["missed"],
        "count": count,
        "first_tick_at": rfc3339(first_ms),
        "last_tick_at": rfc3339(last_ms),
    }
    return Output(LIFECYCLE, "CronTicksMissed", row["binding_key"], value)


def _fire(state: State, row: RowCron, tick_ms: int, missed: int) -> Output:
    """Return the envelope of one tick; the newest version of the trigger receives it."""
    trigger_id, tick_at = row["trigger_id"], rfc3339(tick_ms)
    delivery = f"{trigger_id}@{tick_at}"
    digest = blake2b(f"cron#{delivery}".encode(), digest_size=_ID_BYTES).hexdigest()
    payload = {
        "cron_id": trigger_id,
        "schedule": row["schedule"],
        "tick_at": tick_at,
        "raw": {"timezone": row["timezone"], "missed": missed},
    }
    event: TriggerEvent = {
        "id": f"trigger_evt_{digest}",
        "provider": PROVIDER,
        "kind": TICK_KIND,
        "received_at": rfc3339(state.now_ms),
        "occurred_at": tick_at,
        "dedupe_key": delivery,
        "trace_id": f"trace_{digest}",
        "tenant_id": None,
        "headers": {},
        "raw_body": None,
        "provider_payload": json.dumps(payload, separators=(",", ":"), ensure_ascii=False),
        "signature_state": "unsigned",
        "signature_reason": None,
        "batch": None,
    }
    envelope: EventIngested = {
        "trigger_id": trigger_id,
        "binding_version": None,
        "replay_of_event_id": None,
        "webhook_path": None,
        "dlq_entry_id": None,
        "event": event,
    }
    # Into this partition: it is the one that knows whether the tick has fired.
    headers = (("traceparent", f"00-{digest}-{digest[:16]}-01"),)
    key = f"{PROVIDER}:{delivery}"
    return Output(ENVELOPES, "event_ingested", key, envelope, state.partition, headers)


def target_of(event: TriggerEvent, /) -> str | None:
    """Return the trigger that a cron event without a target belongs to: its payload's `cron_id`."""
    if event["provider"] != PROVIDER:
        return None
    try:
        payload = payload_of(event)
    except ValueError:
        return None
    match payload:
        case {"cron_id": str(cron_id)}:
            return cron_id
        case _:
            return None
