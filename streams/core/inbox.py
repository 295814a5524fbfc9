"""The inbox: each accepted event is new or a repeat, and goes to every binding that takes it.

| kind | state | outputs |
|---|---|---|
| `event_ingested`, seen within the window | unchanged | lifecycle `EventDeduplicated` |
| `event_ingested`, new, no binding takes it | seen | lifecycle `EventUnmatched` |
| `event_ingested`, new | seen | one `event_matched` per binding, by trigger id, then version |
| `revision_published`, next | bindings replaced | `revision_reached` to every dispatch partition |
| `revision_published`, repeat | unchanged | none |
| `source_rejected`, new | seen | `record_quarantined` under the position in its own topic |
| a cron trigger's tick is due | its next tick | see `streams.core.cron` |

Invariants: one event id or delivery id is matched at most once per window, unless it was forgotten
because `dedupe_rows_max` newer ones came; `s:` rows never exceed that number, except while a policy
that has just lowered it takes effect, `EVICTIONS_MAX` rows a record.

Source: seed trigger-dispatcher, "Dispatch shape" 1-2; SEMANTICS 1.3, 2.1, 2.12; DESIGN "Dedupe".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from streams.core import (
    bounds,
    channel,
    cron,
    dedupe_counts,
    dlq_words,
    foreign,
    ids,
    revision,
)
from streams.core.expression import Expressions, Failed
from streams.core.intake_plan import IntakePlan, plan_of, take
from streams.core.record import Output, Record, Rejection
from streams.core.schedule import Calendar
from streams.core.state import Answer, Fold, State
from streams.core.wire import (
    BindingDefinition,
    EventIngested,
    EventMatched,
    LifecycleEventDeduplicated,
    LifecycleEventFiltered,
    LifecycleEventUnmatched,
    RevisionPublished,
    RevisionReached,
    RowBinding,
    RowSeen,
    SourceRejected,
    TriggerEvent,
)

DISPATCHES = "trigger.dispatches"
LIFECYCLE = "triggers.lifecycle"

EVICTIONS_MAX = 1_000
"""Ids forgotten at one record, at most: a lowered bound does not become one huge transaction."""

_KEY_CHARS_MAX = 200  # a longer delivery id is known by its hash: rows stay small


@dataclass(slots=True)
class _Index:
    """Bindings in force, by provider and by trigger id; each list by trigger id, then version."""

    expressions: Expressions
    calendar: Calendar
    by_provider: dict[str, list[BindingDefinition]] = field(
        default_factory=dict[str, list[BindingDefinition]]
    )
    by_trigger: dict[str, list[BindingDefinition]] = field(
        default_factory=dict[str, list[BindingDefinition]]
    )
    plans: dict[str, IntakePlan] = field(default_factory=dict[str, IntakePlan])


def _build_index(state: State, expressions: Expressions, calendar: Calendar) -> _Index:
    index = _Index(expressions, calendar)
    bindings: list[BindingDefinition] = [row["binding"] for _, row in state.rows.scan("b:")]
    for binding in sorted(bindings, key=lambda found: (found["trigger_id"], found["version"])):
        index.by_provider.setdefault(binding["provider"], []).append(binding)
        index.by_trigger.setdefault(binding["trigger_id"], []).append(binding)
        index.plans[binding["binding_key"]] = plan_of(binding)
    return index


def mailbox_key(
    event: TriggerEvent, /, *, replay: bool = False, webhook_path: str | None = None
) -> str:
    """Key of an event's envelope: repeats of one delivery meet in one partition.

    A replay keeps its original's delivery id but is new by intent: it goes by its own event id.
    Delivery ids are the sender's choice, and every webhook path may have another sender.
    """
    dedupe_key = event["dedupe_key"]
    if replay or not dedupe_key:
        return event["id"]
    if len(dedupe_key) > _KEY_CHARS_MAX:
        dedupe_key = "blake2b-" + blake2b(dedupe_key.encode(), digest_size=20).hexdigest()
    if webhook_path is not None:
        return f"{event['provider']}/{webhook_path}:{dedupe_key}"
    return f"{event['provider']}:{dedupe_key}"


def _on_event_ingested(state: State, record: Record) -> Answer:
    envelope: EventIngested = record.value
    event = envelope["event"]
    problem = (
        bounds.event_problem(event)
        or bounds.text_problem(_targets(envelope))
        or dlq_words.entry_problem(
            envelope["dlq_entry_id"], envelope["replay_of_event_id"], state.partitions
        )
    )
    if problem is not None:
        return Rejection("INB-002", problem)
    seen_key = _seen_key(envelope)
    seen: RowSeen | None = state.rows.get(seen_key)
    headers = _headers(event, record)
    if seen is not None and seen["expires_at_ms"] > state.now_ms:
        dedupe_counts.count(state, "s", duplicates=1)
        dropped: LifecycleEventDeduplicated = {
            "event_id": event["id"],
            "provider": event["provider"],
            "dedupe_key": event["dedupe_key"],
            "first_event_id": seen["event_id"],
        }
        return (Output(LIFECYCLE, "EventDeduplicated", event["id"], dropped, headers=headers),)
    _remember(state, seen_key, event["id"])
    bindings = _matching(state.index, envelope)
    if not bindings:
        unmatched: LifecycleEventUnmatched = {
            "event_id": event["id"],
            "provider": event["provider"],
            "event_kind": event["kind"],
            "trigger_id": envelope["trigger_id"],
            "replay_of_event_id": envelope["replay_of_event_id"],
        }
        said = Output(LIFECYCLE, "EventUnmatched", event["id"], unmatched, headers=headers)
        return (said, *dlq_words.word_of_inbox(envelope, "unmatched"))
    index: _Index = state.index
    outputs = [
        _taken(index, record, envelope, binding, ids.derived(record, "dispatch", place), headers)
        for place, binding in enumerate(bindings)
    ]
    if envelope["dlq_entry_id"] is not None:
        for taken in outputs[:]:
            assert taken.value is not None, "whatever becomes of a match is a record"
            outcome = "started" if taken.kind == "event_matched" else "skipped"
            outputs += dlq_words.word_of_inbox(envelope, outcome, taken.value["binding_key"])
    return outputs


def _on_source_rejected(state: State, record: Record) -> Answer:
    """Quarantine what an edge could not make an event of; once, however often it says so."""
    rejected: SourceRejected = record.value
    problem = foreign.problem(rejected)
    if problem is not None:
        return problem
    position = str(foreign.position_of(rejected))
    # Each trigger that reads the topic says it for itself.
    seen_key = f"s:\0source:{rejected['trigger_id'] or ''}:{position}"
    seen: RowSeen | None = state.rows.get(seen_key)
    if seen is not None and seen["expires_at_ms"] > state.now_ms:
        return ()
    _remember(state, seen_key, position)
    return (foreign.quarantined(rejected),)


def _targets(envelope: EventIngested) -> Iterable[tuple[str, str | None, int]]:
    """Name the texts of an envelope that say where its event goes."""
    return (
        ("trigger_id", envelope["trigger_id"], bounds.ID_CHARS_MAX),
        ("replay_of_event_id", envelope["replay_of_event_id"], bounds.ID_CHARS_MAX),
        ("dlq_entry_id", envelope["dlq_entry_id"], 2 * bounds.ID_CHARS_MAX),
        ("webhook_path", envelope["webhook_path"], bounds.ID_CHARS_MAX),
    )


def _seen_key(envelope: EventIngested) -> str:
    """Return the key of the row that remembers the event.

    It is the mailbox key, with an empty provider before an event id: an id can hold colons, and
    must not be taken for another provider's delivery.
    """
    event, replay = envelope["event"], envelope["replay_of_event_id"] is not None
    by_id = replay or not event["dedupe_key"]
    key = mailbox_key(event, replay=replay, webhook_path=envelope["webhook_path"])
    return ("s::" if by_id else "s:") + key


def _headers(event: TriggerEvent, record: Record) -> tuple[tuple[str, str], ...]:
    """Headers that follow the event through every stage, sorted by name."""
    tenant_id, traceparent = event["tenant_id"], bounds.traceparent(record.headers)
    headers: tuple[tuple[str, str], ...] = ()
    if tenant_id is not None:
        headers = (("tenant_id", tenant_id),)
    if traceparent is not None:
        headers = (*headers, ("traceparent", traceparent))
    return headers


def _remember(state: State, seen_key: str, event_id: str) -> None:
    """Keep the event's key for the window; the oldest go when there are too many."""
    policy = revision.policy_in_force(state)
    rows = state.rows
    forgotten = rows.count("s")
    rows.delete(seen_key)  # an expired one
    # Room is made first: the new row may expire before older ones, and must not be the one to go.
    excess = rows.count("s") + 1 - policy["dedupe_rows_max"]
    for _ in range(min(excess, EVICTIONS_MAX)):
        oldest = rows.oldest("s")
        assert oldest is not None, "a counted row has a timer"
        rows.delete(oldest)
    row: RowSeen = {
        "event_id": event_id,
        "expires_at_ms": state.now_ms + policy["event_id_window_ms"],
    }
    forgotten -= rows.count("s")
    rows.put(seen_key, row)
    dedupe_counts.count(state, "s", forgotten=forgotten)


def _matching(index: _Index, envelope: EventIngested) -> list[BindingDefinition]:
    """Bindings that take the event: those it is targeted at, else by provider and kind.

    A webhook delivery is for the bindings of its path: its sender has no say beyond.
    """
    event = envelope["event"]
    trigger_id = envelope["trigger_id"]
    if trigger_id is None:
        trigger_id = cron.target_of(event)
    if trigger_id is not None:
        live = index.by_trigger.get(trigger_id, [])
        version = envelope["binding_version"]
        return live[-1:] if version is None else [b for b in live if b["version"] == version]
    if event["provider"] == channel.PROVIDER:
        return channel.bindings_taking(event, index.by_provider.get(channel.PROVIDER, []))
    kind, path = event["kind"], envelope["webhook_path"]
    return [
        binding
        for binding in index.by_provider.get(event["provider"], ())
        if (not binding["events"] or kind in binding["events"])
        and (path is None or index.plans[binding["binding_key"]].path == path)
    ]


def _taken(
    index: _Index,
    record: Record,
    envelope: EventIngested,
    binding: BindingDefinition,
    dispatch_id: str,
    headers: tuple[tuple[str, str], ...],
) -> Output:
    """Say whether a binding takes an event that matches it, and with which keys.

    An expression that cannot be evaluated is the dispatch's to record: it goes by the event's id.
    """
    event = envelope["event"]
    plan = index.plans[binding["binding_key"]]
    keys: dict[str, str] = {}
    scope = event["id"]
    if not plan.trivial:
        replay = envelope["replay_of_event_id"] is not None
        taken = take(plan, binding, event, index.expressions, replay=replay)
        if taken is None:
            filtered: LifecycleEventFiltered = {
                "event_id": event["id"],
                "trigger_id": binding["trigger_id"],
                "binding_key": binding["binding_key"],
                "replay_of_event_id": envelope["replay_of_event_id"],
            }
            return Output(LIFECYCLE, "EventFiltered", event["id"], filtered, headers=headers)
        if isinstance(taken, Failed):
            keys = {"error": taken.reason}
        else:
            keys, scope = taken.keys, taken.scope
    value: EventMatched = {
        "dispatch_id": dispatch_id,
        "trigger_id": binding["trigger_id"],
        "binding_key": binding["binding_key"],
        "accepted_at_ms": record.timestamp_ms,
        "keys": keys,
        "replay_of_event_id": envelope["replay_of_event_id"],
        "dlq_entry_id": envelope["dlq_entry_id"],
        "event": envelope["event"],
    }
    return Output(DISPATCHES, "event_matched", scope, value, None, headers)


def _on_revision_published(state: State, record: Record) -> Answer:
    published: RevisionPublished = record.value
    if not revision.advances(state, published):
        return ()
    for binding_key in published["drained"]:
        state.rows.delete(f"b:{binding_key}")
    for binding in published["added"]:
        row: RowBinding = {"binding": binding, "revision": published["revision"]}
        state.rows.put(f"b:{binding['binding_key']}", row)
    index: _Index = state.index
    cron.on_revision(state, published, index.calendar)
    state.index = _build_index(state, index.expressions, index.calendar)
    reached: RevisionReached = {
        "revision": published["revision"],
        "inbox_partition": state.partition,
        "inbox_partitions": state.partitions,
    }
    return [
        Output(
            DISPATCHES,
            "revision_reached",
            f"revision:{state.partition}",
            reached,
            partition=partition,
        )
        for partition in range(state.partitions)
    ]


def _on_record(state: State, record: Record, /) -> Answer:
    match record.kind:
        case "event_ingested":
            return _on_event_ingested(state, record)
        case "revision_published":
            return _on_revision_published(state, record)
        case "source_rejected":
            return _on_source_rejected(state, record)
        case _:
            return Rejection("INB-001", f"the inbox has no use for kind {record.kind!r}")


def _on_due(
    state: State,
    key: str,
    row: Any,  # noqa: ANN401 - RowSeen or RowCron, by its prefix
    _record: Record,
    /,
) -> Iterable[Output]:
    if key.startswith(cron.ROW_PREFIX):
        index: _Index = state.index
        return cron.on_due(state, key, row, index.calendar)
    state.rows.delete(key)
    dedupe_counts.count(state, "s", forgotten=1)
    return ()


def make_fold(expressions: Expressions, calendar: Calendar, /) -> Fold:
    """Return the fold of the inbox, which evaluates expressions and finds ticks with these."""
    return Fold(
        on_record=_on_record,
        on_due=_on_due,
        build_index=lambda state: _build_index(state, expressions, calendar),
    )
