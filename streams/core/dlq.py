"""Dead letters that nobody has dealt with: one small row each, in the partition where it failed.

| entry | kind | answer |
|---|---|---|
| none | a dispatch ends undelivered | pending; `dlq_moved` is its first record |
| pending | `dlq_replayed` started | replaying, counted |
| replaying | … succeeded, skipped | resolved, and gone |
| replaying | … failed | pending again, its history one longer |
| replaying | … cancelled, unmatched | pending again |
| none | … failed | pending: it had been forgotten meanwhile |
| pending | `dlq_discard_requested` | discarded, and gone |
| replaying | `dlq_discard_requested` | refused: the replay decides |
| any | due | expired, and gone |

Every change is a `dlq_entry` in `trigger.dlq`.  Bodies are there, too (`dlq_moved`): rows hold
none, so that a storm of dead letters costs rows of a kilobyte and not of three hundred.  A replay
may fail in another partition; its word comes here.

Invariants: an entry is known by the id that it got first; at most ENTRIES_MAX are kept in a
partition, the oldest are let go first, on the record.

Source: SEMANTICS 2.7; decision A14 of DESIGN 7.
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.core import bounds, revision
from streams.core.dispatch_records import DLQ, headers_of
from streams.core.dlq_words import entry_id_of, entry_problem, home_of, word
from streams.core.record import Output, Record, Rejection
from streams.core.state import Answer, State
from streams.core.wire import (
    DlqDiscardRequested,
    DlqEntry,
    DlqNote,
    DlqReplayed,
    RowDispatch,
    RowDlq,
    TriggerEvent,
)

ENTRIES_MAX = 20_000
"""Entries of one partition; a dead letter beyond is still in the log, and can be replayed."""

HISTORY_MAX = 20
REPLAYING_MAX = 16

_NOTE_ERROR_CHARS_MAX = 200


def _row_key(dispatch_id: str) -> str:
    return f"q:{dispatch_id}"


# ---------------------------------------------------------------------- ends of dispatches
def moved(
    state: State,
    row: RowDispatch,
    event: TriggerEvent,
    error: str,
    error_class: str,
    reason: str,
    /,
) -> Iterable[Output]:
    """Keep an entry for a dispatch that ends undelivered, or tell the entry that it replays."""
    if row["dlq_entry_id"] is not None:
        return _said(row, event, "failed", error, error_class, reason)
    policy = revision.policy_in_force(state)
    note = _note(state, "dlq", event["id"], len(row["attempts"]), error)
    entry: RowDlq = {
        "entry_id": entry_id_of(state.partition, row["dispatch_id"]),
        "event_id": event["id"],
        "trigger_id": row["trigger_id"],
        "binding_key": row["binding_key"],
        "provider": event["provider"],
        "event_kind": event["kind"],
        "reason": reason,
        "error": error,
        "error_class": error_class,
        "replays": 0,
        "replaying": [],
        "history": [note],
        "moved_at_ms": state.now_ms,
        "expires_at_ms": state.now_ms + policy["dlq_ttl_ms"],
    }
    return _put(state, row["dispatch_id"], entry)


def replayed(row: RowDispatch, event: TriggerEvent, outcome: str, /) -> Iterable[Output]:
    """Tell an entry how its replay ended, if the dispatch is one; `failed` comes by `moved`."""
    return _said(row, event, outcome, "", "none", "")


def _said(
    row: RowDispatch,
    event: TriggerEvent,
    outcome: str,
    error: str,
    error_class: str,
    reason: str,
) -> Iterable[Output]:
    entry_id = row["dlq_entry_id"]
    if entry_id is None:
        return ()
    value: DlqReplayed = {
        "entry_id": entry_id,
        "event_id": row["event_id"],
        "replay_of_event_id": row["replay_of_event_id"] or "",
        "outcome": outcome,
        "trigger_id": row["trigger_id"],
        "binding_key": row["binding_key"],
        "provider": event["provider"],
        "event_kind": event["kind"],
        "attempts": len(row["attempts"]),
        "reason": reason,
        "error": error,
        "error_class": error_class,
    }
    return (word(value)._replace(headers=headers_of(row)),)


# ---------------------------------------------------------------------- words about entries
def on_replayed(state: State, record: Record, /) -> Answer:
    """Take a replay's word about an entry of this partition."""
    said: DlqReplayed = record.value
    problem = _problem(state, said["entry_id"]) or bounds.text_problem(
        (
            ("event_id", said["event_id"], bounds.ID_CHARS_MAX),
            ("replay_of_event_id", said["replay_of_event_id"], bounds.ID_CHARS_MAX),
            ("trigger_id", said["trigger_id"], bounds.ID_CHARS_MAX),
            ("binding_key", said["binding_key"], bounds.ID_CHARS_MAX),
            ("provider", said["provider"], bounds.ID_CHARS_MAX),
            ("event_kind", said["event_kind"], bounds.ID_CHARS_MAX),
            ("error", said["error"], bounds.TEXT_CHARS_MAX),
        )
    )
    if problem is not None:
        return Rejection("DSP-007", problem)
    home = home_of(said["entry_id"])
    assert home is not None, "its problem would have been named"
    entry: RowDlq | None = state.rows.get(_row_key(home.dispatch_id))
    match said["outcome"]:
        case "started":
            return () if entry is None else _started(state, home.dispatch_id, entry, said)
        case "succeeded" | "skipped":
            if entry is None:
                return ()
            state.rows.delete(_row_key(home.dispatch_id))
            status = f"replay_{said['outcome']}"
            return (_changed(entry, "resolved", status, replay_event_id=said["event_id"]),)
        case "failed":
            return _failed(state, home.dispatch_id, entry, said)
        case _:
            return () if entry is None else _undecided(state, home.dispatch_id, entry, said)


def _problem(state: State, entry_id: str) -> str | None:
    problem = entry_problem(entry_id, "", state.partitions)
    home = home_of(entry_id)
    if problem is None and home is not None and home.partition != state.partition:
        problem = f"entry {entry_id[:64]} is partition {home.partition}'s, not {state.partition}'s"
    return problem or bounds.text_problem((("entry_id", entry_id, 2 * bounds.ID_CHARS_MAX),))


def _started(state: State, dispatch_id: str, entry: RowDlq, said: DlqReplayed) -> Iterable[Output]:
    note = _note(state, "replay_started", said["event_id"], 0, "")
    replaying = [*entry["replaying"], said["event_id"]][-REPLAYING_MAX:]
    started: RowDlq = {
        **entry,
        "replays": entry["replays"] + 1,
        "replaying": replaying,
        "history": _longer(entry, note),
    }
    changed = _changed(started, "pending", "replay_started", replay_event_id=said["event_id"])
    return (*_put(state, dispatch_id, started), changed)


def _failed(
    state: State, dispatch_id: str, entry: RowDlq | None, said: DlqReplayed
) -> Iterable[Output]:
    """Put an entry back: it failed again.  One that was forgotten meanwhile is made anew."""
    note = _note(state, "replay_dlq", said["event_id"], said["attempts"], said["error"])
    ttl_ms = revision.policy_in_force(state)["dlq_ttl_ms"]
    again: RowDlq = {
        "entry_id": said["entry_id"],
        "event_id": said["replay_of_event_id"] if entry is None else entry["event_id"],
        "trigger_id": said["trigger_id"],
        "binding_key": said["binding_key"],
        "provider": said["provider"],
        "event_kind": said["event_kind"],
        "reason": said["reason"],
        "error": said["error"],
        "error_class": said["error_class"],
        "replays": 1 if entry is None else entry["replays"],
        "replaying": [] if entry is None else _without(entry, said["event_id"]),
        "history": [note] if entry is None else _longer(entry, note),
        "moved_at_ms": state.now_ms if entry is None else entry["moved_at_ms"],
        # What failed again has a new body in the log, and so its time begins anew.
        "expires_at_ms": state.now_ms + ttl_ms,
    }
    changed = _changed(again, "pending", "replay_dlq", replay_event_id=said["event_id"])
    return (*_put(state, dispatch_id, again), changed)


def _undecided(
    state: State, dispatch_id: str, entry: RowDlq, said: DlqReplayed
) -> Iterable[Output]:
    """Put an entry back whose replay was cancelled, or found no binding."""
    status = "replay_cancelled" if said["outcome"] == "cancelled" else "replay_unmatched"
    note = _note(state, status, said["event_id"], said["attempts"], said["error"])
    again: RowDlq = {
        **entry,
        "replaying": _without(entry, said["event_id"]),
        "history": _longer(entry, note),
    }
    changed = _changed(again, "pending", status, replay_event_id=said["event_id"])
    return (*_put(state, dispatch_id, again), changed)


def on_discard_requested(state: State, record: Record, /) -> Answer:
    """Take an operator's word that a dead letter needs no delivery; a repeat changes nothing."""
    request: DlqDiscardRequested = record.value
    problem = _problem(state, request["entry_id"]) or bounds.text_problem(
        (
            ("requested_by", request["requested_by"], bounds.ID_CHARS_MAX),
            ("audit_id", request["audit_id"], bounds.ID_CHARS_MAX),
        )
    )
    if problem is not None:
        return Rejection("DSP-007", problem)
    home = home_of(request["entry_id"])
    assert home is not None, "its problem would have been named"
    entry: RowDlq | None = state.rows.get(_row_key(home.dispatch_id))
    if entry is None:
        return ()
    if entry["replaying"]:
        return (_changed(entry, "pending", "discard_refused", request=request),)
    state.rows.delete(_row_key(home.dispatch_id))
    return (_changed(entry, "discarded", "discarded", request=request),)


def on_due(state: State, key: str, entry: RowDlq, /) -> Iterable[Output]:
    """Let an entry go whose body the log lets go."""
    state.rows.delete(key)
    return (_changed(entry, "expired", "expired"),)


# ---------------------------------------------------------------------- rows and records
def _put(state: State, dispatch_id: str, entry: RowDlq) -> Iterable[Output]:
    """Store an entry; the oldest one goes when there are too many."""
    key = _row_key(dispatch_id)
    outputs: tuple[Output, ...] = ()
    if state.rows.get(key) is None and state.rows.count("q") >= ENTRIES_MAX:
        oldest = state.rows.oldest("q")
        assert oldest is not None, "a counted row has a timer"
        evicted: RowDlq = state.rows.get(oldest)
        state.rows.delete(oldest)
        outputs = (_changed(evicted, "expired", "evicted"),)
    state.rows.put(key, entry)
    return outputs


def _changed(
    entry: RowDlq,
    state: str,
    status: str,
    *,
    replay_event_id: str | None = None,
    request: DlqDiscardRequested | None = None,
) -> Output:
    value: DlqEntry = {
        "entry_id": entry["entry_id"],
        "event_id": entry["event_id"],
        "trigger_id": entry["trigger_id"],
        "binding_key": entry["binding_key"],
        "provider": entry["provider"],
        "event_kind": entry["event_kind"],
        "state": state,
        "status": status,
        "reason": entry["reason"],
        "error": entry["error"],
        "error_class": entry["error_class"],
        "replays": entry["replays"],
        "replaying": entry["replaying"],
        "history": entry["history"],
        "replay_event_id": replay_event_id,
        "requested_by": None if request is None else request["requested_by"],
        "audit_id": None if request is None else request["audit_id"],
    }
    return Output(DLQ, "dlq_entry", entry["event_id"], value)


def _note(state: State, status: str, event_id: str, attempts: int, error: str) -> DlqNote:
    return {
        "at_ms": state.now_ms,
        "status": status,
        "event_id": event_id,
        "attempts": attempts,
        "error": error[:_NOTE_ERROR_CHARS_MAX],
    }


def _longer(entry: RowDlq, note: DlqNote) -> list[DlqNote]:
    return [*entry["history"], note][-HISTORY_MAX:]


def _without(entry: RowDlq, event_id: str) -> list[str]:
    return [each for each in entry["replaying"] if each != event_id]
