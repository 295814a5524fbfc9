"""Dispatch: every matched event runs to its one terminal outcome.

| kind | dispatch is | answer |
|---|---|---|
| `event_matched` | unknown | attempt 1 is invoked |
| `invocations_running` | invoked or running, same fence | running; its lease starts or is renewed |
| `invocation_completed` success | invoked or running, same fence | ended: succeeded |
| … failed, timeout | same | next attempt invoked or waiting; ended in the DLQ when none is left |
| … denied, cancelled, result_too_large | same | ended in the DLQ |
| … interrupted, unresolved | same | the same attempt is invoked again, at once or after a delay |
| any word under an old fence, or after the end | any | refused, on the record |
| due | running | lease lost: the same attempt under the next fence |
| due | waiting, returned | the attempt is invoked |

Invariants: fences only grow; one terminal record per dispatch; attempts are numbered without gap; a
row exists exactly while its dispatch is live.

Source: seed trigger-dispatcher; SEMANTICS 2.3, 2.4, 2.7-2.10; DESIGN "An invocation".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from streams.core import binding_drain, bounds, retry, revision
from streams.core.dispatch_index import DispatchIndex, build_index
from streams.core.dispatch_moves import (
    advance,
    dead_letter,
    dispatch_of,
    event_key,
    follow,
    invoke_again,
    let_on,
    row_key,
    skip,
    succeed,
)
from streams.core.dispatch_records import (
    Dispatch,
    attempt_failed,
    attempt_finished,
    attempt_started,
    invocation_lost,
    invocation_refused,
    invocation_reissued,
    invoke,
    predicate_evaluated,
    retry_planned,
)
from streams.core.event_json import batch_bytes
from streams.core.gate import admission
from streams.core.record import Output, Record, Rejection
from streams.core.state import Answer, Fold, State
from streams.core.wire import (
    AttemptEntry,
    EventMatched,
    InvocationCompleted,
    InvocationsRunning,
    RowDispatch,
    RowEvent,
    RowWindow,
)

LOSSES_MAX = 16
"""Leases that a dispatch may lose: an event that kills its invoker must not do so for ever."""

RETURNS_MAX = 64
"""Times one attempt may be given back: half an hour of `unresolved` with the delays below."""

RETURN_DELAY_MAX_MS = 30_000
RETRY_AFTER_MAX_MS = 86_400_000
"""A handler cannot push the next attempt further than a day."""

_KEPT_ERROR_CHARS_MAX = 500

_TERMINAL_REASONS = {
    "denied": "denied",
    "cancelled": "cancelled",
    "result_too_large": "result_too_large",
}


# ---------------------------------------------------------------------- starting attempts
def _on_event_matched(state: State, record: Record) -> Answer:
    matched: EventMatched = record.value
    index: DispatchIndex = state.index
    binding = index.bindings.get(matched["binding_key"])
    dispatch_id = matched["dispatch_id"]
    if binding is None:
        return Rejection(
            "DSP-001", f"binding {matched['binding_key']} is not in force in this partition"
        )
    if state.rows.get(row_key(dispatch_id)) is not None:
        return Rejection("DSP-002", f"dispatch {dispatch_id} is live already")
    event = matched["event"]
    problem = bounds.event_problem(event) or bounds.text_problem(_ids_of(matched))
    if problem is not None or matched["trigger_id"] != binding["trigger_id"]:
        return Rejection("DSP-005", problem or "the trigger is not the binding's")
    row: RowDispatch = {
        "dispatch_id": dispatch_id,
        "trigger_id": matched["trigger_id"],
        "binding_key": matched["binding_key"],
        "event_id": event["id"],
        "replay_of_event_id": matched["replay_of_event_id"],
        "tenant_id": event["tenant_id"],
        "traceparent": bounds.traceparent(record.headers),
        "status": "invoked",
        "attempt": 1,
        "fence": 1,
        "due_ms": None,
        "invoker_id": None,
        "losses": 0,
        "returns": 0,
        "accepted_at_ms": matched["accepted_at_ms"],
        "attempts": [],
        "keys": matched["keys"],
        "arrival": record.offset,
        "rank": 0,
        "gate": None,
        "holds": [],
        "since_ms": 0,
        "body_bytes": 0,
        "members": [],
    }
    body: RowEvent = {"event": event}
    state.rows.put(row_key(dispatch_id), row)
    state.rows.put(event_key(dispatch_id), body)
    index.opened(matched["binding_key"])
    if "error" in matched["keys"]:
        error = bounds.shortened(matched["keys"]["error"])
        return dead_letter(state, row, error, "unknown", "expression_failed")
    flow = index.flow(matched["binding_key"])
    evaluated: tuple[Output, ...] = ()
    if flow.when is not None:
        verdict = matched["keys"].get("when", "false")
        evaluated = (predicate_evaluated(Dispatch(row, binding), flow.when, verdict),)
        if verdict != "true":
            detail = {"predicate": flow.when, "reason": verdict}
            return (*evaluated, *skip(state, row, "predicate", detail))
    if not flow.declared:
        dispatch = Dispatch(row, binding)
        return (*evaluated, *attempt_started(dispatch), invoke(dispatch, event, state.partition))
    row["rank"] = flow.rank(matched["keys"])
    row["body_bytes"] = batch_bytes(event) if flow.batch is not None else 0
    return (*evaluated, *advance(state, row, None))


def _ids_of(matched: EventMatched) -> Iterable[tuple[str, str | None, int]]:
    """Name the texts of a matched event that every record about it repeats."""
    replay_of = matched["replay_of_event_id"]
    return (
        ("dispatch_id", matched["dispatch_id"], bounds.ID_CHARS_MAX),
        ("replay_of_event_id", replay_of, bounds.ID_CHARS_MAX),
    )


# ---------------------------------------------------------------------- words of invokers
def _on_invocations_running(state: State, record: Record) -> Answer:
    word: InvocationsRunning = record.value
    problem = _problem(
        invoker_id=word["invoker_id"], ids=[each["dispatch_id"] for each in word["running"]]
    )
    if problem is not None:
        return problem
    due_ms = state.now_ms + revision.policy_in_force(state)["lease_ms"]
    outputs: list[Output] = []
    for running in word["running"]:
        row: RowDispatch | None = state.rows.get(row_key(running["dispatch_id"]))
        if not _holds(row, running["fence"]):
            outputs.append(
                invocation_refused(
                    row,
                    dispatch_id=running["dispatch_id"],
                    attempt=running["attempt"],
                    fence=running["fence"],
                    invoker_id=word["invoker_id"],
                    outcome="running",
                )
            )
            continue
        assert row is not None, "a held row exists"
        held: RowDispatch = {
            **row,
            "status": "running",
            "due_ms": due_ms,
            "invoker_id": word["invoker_id"],
        }
        state.rows.put(row_key(row["dispatch_id"]), held)
    return outputs


def _problem(*, invoker_id: str, ids: Iterable[str]) -> Rejection | None:
    """Refuse a word whose ids are too long to be repeated in a refusal."""
    texts = [("invoker_id", invoker_id, bounds.ID_CHARS_MAX)]
    texts += [("dispatch_id", dispatch_id, bounds.ID_CHARS_MAX) for dispatch_id in ids]
    problem = bounds.text_problem(texts)
    return None if problem is None else Rejection("DSP-004", problem)


def _holds(row: RowDispatch | None, fence: int) -> bool:
    """Whether an invoker's word under `fence` counts."""
    return row is not None and row["fence"] == fence and row["status"] in ("invoked", "running")


def _on_invocation_completed(state: State, record: Record) -> Answer:
    word: InvocationCompleted = record.value
    problem = _problem(invoker_id=word["invoker_id"], ids=(word["dispatch_id"],))
    if problem is not None:
        return problem
    row: RowDispatch | None = state.rows.get(row_key(word["dispatch_id"]))
    if row is None or not _holds(row, word["fence"]):
        refused = invocation_refused(
            row,
            dispatch_id=word["dispatch_id"],
            attempt=word["attempt"],
            fence=word["fence"],
            invoker_id=word["invoker_id"],
            outcome=word["outcome"],
        )
        return (refused,)
    if word["outcome"] in ("interrupted", "unresolved"):
        return _given_back(state, row, word)
    error = word["error"]
    entry: AttemptEntry = {
        "attempt": row["attempt"],
        "outcome": word["outcome"],
        "error": None if error is None else bounds.shortened(error),
        "started_at_ms": word["started_at_ms"],
        "completed_at_ms": word["completed_at_ms"],
    }
    row = {**row, "attempts": [*row["attempts"], _kept(entry)]}
    dispatch = dispatch_of(state, row)
    finished = attempt_finished(dispatch, entry)
    if word["outcome"] == "success":
        return (finished, *succeed(state, row, word["result"]))
    error = entry["error"] or word["outcome"]
    failed = (finished, *attempt_failed(dispatch, error))
    reason = _TERMINAL_REASONS.get(word["outcome"])
    if reason is None and word["error_class"] == "terminal":
        reason = "terminal"
    if reason is not None:
        return (*failed, *dead_letter(state, row, error, word["error_class"], reason))
    return (*failed, *_retry(state, row, word, error))


def _kept(entry: AttemptEntry) -> AttemptEntry:
    """Return what the history keeps of an attempt: a hundred of them must fit beside an event."""
    error = entry["error"]
    if error is None or len(error) <= _KEPT_ERROR_CHARS_MAX:
        return entry
    return {**entry, "error": error[:_KEPT_ERROR_CHARS_MAX]}


def _retry(
    state: State, row: RowDispatch, word: InvocationCompleted, error: str
) -> Iterable[Output]:
    dispatch = dispatch_of(state, row)
    delay_ms = retry.delay_ms(dispatch.binding["retry"], row["attempt"])
    if delay_ms is None:
        return dead_letter(state, row, error, word["error_class"], "retry_exhausted")
    delay_ms = max(delay_ms, min(word["retry_after_ms"] or 0, RETRY_AFTER_MAX_MS))
    planned = retry_planned(dispatch, delay_ms, error)
    upcoming: RowDispatch = {
        **row,
        "status": "waiting",
        "attempt": row["attempt"] + 1,
        "fence": row["fence"] + 1,
        "due_ms": state.now_ms + delay_ms,
        "invoker_id": None,
        "returns": 0,
    }
    if delay_ms == 0:
        started = attempt_started(dispatch_of(state, upcoming))
        return (*planned, *started, invoke_again(state, upcoming))
    given = _released_on_retry(state, row)
    upcoming["holds"] = [gate for gate in row["holds"] if gate not in given]
    state.rows.put(row_key(row["dispatch_id"]), upcoming)
    return (*planned, *let_on(state, row, given)) if given else planned


def _released_on_retry(state: State, row: RowDispatch) -> list[str]:
    """Name the slots that a dispatch gives up while it waits for its next attempt."""
    index: DispatchIndex = state.index
    limit = index.flow(row["binding_key"]).concurrency
    released = limit is not None and limit.release_on_retry and "concurrency" in row["holds"]
    return ["concurrency"] if released else []


def _given_back(state: State, row: RowDispatch, word: InvocationCompleted) -> Answer:
    """Issue an attempt again, uncounted: its invoker did not finish it, and says so."""
    returns = row["returns"] + 1
    if returns > RETURNS_MAX:
        error = bounds.shortened(word["error"] or f"given back {returns} times")
        return tuple(dead_letter(state, row, error, word["error_class"], "unresolved"))
    delay_ms = 0
    if word["outcome"] == "unresolved":
        delay_ms = min(1_000 << min(returns - 1, 5), RETURN_DELAY_MAX_MS)
    reissued = invocation_reissued(dispatch_of(state, row), word["outcome"], delay_ms)
    again: RowDispatch = {
        **row,
        "status": "returned",
        "fence": row["fence"] + 1,
        "due_ms": state.now_ms + delay_ms,
        "invoker_id": None,
        "returns": returns,
    }
    if delay_ms > 0:
        state.rows.put(row_key(row["dispatch_id"]), again)
        return (reissued,)
    return (reissued, invoke_again(state, again))


# ---------------------------------------------------------------------- time
def _on_due(
    state: State, key: str, row: RowDispatch | RowWindow, _record: Record, /
) -> Iterable[Output]:
    if "status" not in row:  # a window whose last start lies a period back
        state.rows.delete(key)
        return ()
    match row["status"]:
        case "gated":
            return _gate_due(state, row)
        case "running":
            return _lease_lost(state, row)
        case "waiting":
            return _retry_due(state, row)
        case "returned":
            return (invoke_again(state, row),)
        case status:
            message = f"a dispatch that is {status} has no due time"
            raise AssertionError(message)


def _retry_due(state: State, row: RowDispatch) -> Iterable[Output]:
    """Start the next attempt; a slot given up meanwhile is queued for again, at its old place."""
    index: DispatchIndex = state.index
    flow = index.flow(row["binding_key"])
    if flow.concurrency is None or "concurrency" in row["holds"]:
        return (*attempt_started(dispatch_of(state, row)), invoke_again(state, row))
    outputs: list[Output] = []
    verdict = admission.meet(state, index.slots, flow, row, "concurrency")
    further = follow(state, row, verdict, outputs)
    if further is not None:
        outputs += advance(state, further, "concurrency")
    return outputs


def _gate_due(state: State, row: RowDispatch) -> Iterable[Output]:
    index: DispatchIndex = state.index
    verdict = admission.due(state, index.slots, index.flow(row["binding_key"]), row)
    outputs: list[Output] = []
    further = follow(state, row, verdict, outputs)
    if further is not None:
        outputs += advance(state, further, row["gate"])
    return outputs


def _lease_lost(state: State, row: RowDispatch) -> Iterable[Output]:
    losses = row["losses"] + 1
    lost = invocation_lost(dispatch_of(state, row), losses)
    if losses > LOSSES_MAX:
        error = f"{losses} invokers were lost while they ran it"
        return (lost, *dead_letter(state, row, error, "invoker_lost", "invoker_lost"))
    again: RowDispatch = {**row, "fence": row["fence"] + 1, "losses": losses}
    return (lost, invoke_again(state, again))


_HANDLERS: dict[str, Callable[[State, Record], Answer]] = {
    "event_matched": _on_event_matched,
    "invocations_running": _on_invocations_running,
    "invocation_completed": _on_invocation_completed,
    "revision_published": binding_drain.on_revision_published,
    "revision_reached": binding_drain.on_revision_reached,
}


def _on_record(state: State, record: Record, /) -> Answer:
    handler = _HANDLERS.get(record.kind)
    if handler is None:
        return Rejection("DSP-003", f"dispatch has no use for kind {record.kind!r}")
    return handler(state, record)


FOLD = Fold(on_record=_on_record, on_due=_on_due, build_index=build_index)
