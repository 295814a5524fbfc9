"""What invokers say about attempts: they run, they ended, or they are given back.

Source: SEMANTICS 2.4, 2.7; DESIGN "An invocation".
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.core import (
    bounds,
    budget,
    cancel,
    circuit,
    dispatch_predicate,
    emission,
    parking,
    retry,
    revision,
)
from streams.core.destination import destination_of
from streams.core.dispatch_index import DispatchIndex
from streams.core.dispatch_moves import (
    dead_letter,
    dispatch_of,
    invoke_again,
    let_on,
    row_key,
    start,
    succeed,
)
from streams.core.dispatch_records import (
    Dispatch,
    attempt_failed,
    attempt_finished,
    invocation_refused,
    invocation_reissued,
    retry_planned,
)
from streams.core.flow import Flow
from streams.core.record import Output, Record, Rejection
from streams.core.state import Answer, State
from streams.core.wire import AttemptEntry, InvocationCompleted, InvocationsRunning, RowDispatch

RETURNS_MAX = 64
"""Times one attempt may be given back: half an hour of `unresolved` with the delays below."""

RETURN_DELAY_MAX_MS = 30_000
RETRY_AFTER_MAX_MS = 86_400_000
"""A handler cannot push the next attempt further than a day."""

_KEPT_ERROR_CHARS_MAX = 500

_AT_INVOKER = frozenset({"evaluating", "invoked", "running"})

_TERMINAL_REASONS = {
    "denied": "denied",
    "cancelled": "cancelled",
    "result_too_large": "result_too_large",
}


def on_invocations_running(state: State, record: Record, /) -> Answer:
    """Start or renew the lease of each attempt that an invoker says it runs."""
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
        outputs += cancel.on_taken(state, row, word["invoker_id"])
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
    return row is not None and row["fence"] == fence and row["status"] in _AT_INVOKER


def on_invocation_completed(state: State, record: Record, /) -> Answer:
    """Take the outcome of an attempt."""
    word: InvocationCompleted = record.value
    problem = _problem(invoker_id=word["invoker_id"], ids=(word["dispatch_id"],))
    problem = problem or emission.problem(word["emissions"])
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
    flow: Flow = state.index.flow(row["binding_key"])
    if word["usage"] is None or flow.spend is None:
        return _completed(state, row, word)
    binding = dispatch_of(state, row).binding
    charged = budget.charge(state, binding, flow.spend, budget.usage_of(word))
    return (*charged, *_completed(state, row, word))


def _completed(state: State, row: RowDispatch, word: InvocationCompleted) -> Iterable[Output]:
    """Take an outcome that counts."""
    if row["cancelled"] is not None:
        return cancel.on_word(state, row, word)
    if word["outcome"] in ("interrupted", "unresolved"):
        return _given_back(state, row, word)
    if row["attempt"] == 0:
        return dispatch_predicate.completed(state, row, word)
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
        works: Iterable[Output] = ()
        if state.index.circuits:
            works = circuit.succeeded(state, destination_of(dispatch.binding))
        sent = emission.emitted(state, row, word["emissions"])
        return (finished, *works, *sent, *succeed(state, row, word["result"]))
    error = entry["error"] or word["outcome"]
    failed: tuple[Output, ...] = (finished, *attempt_failed(dispatch, error))
    reason = _TERMINAL_REASONS.get(word["outcome"])
    if reason is None and word["error_class"] == "terminal":
        reason = "terminal"
    if reason is not None:
        return (
            *failed,
            *_answered(state, dispatch, word),
            *dead_letter(state, row, error, word["error_class"], reason),
        )
    destination = destination_of(dispatch.binding)
    flow: Flow = state.index.flow(row["binding_key"])
    ends = flow.circuit == "dlq"
    if flow.circuit != "off":
        failed += tuple(circuit.failed(state, destination, row["dispatch_id"], restarts=ends))
    if ends and parking.blocked(state, flow, destination):
        error = bounds.shortened(f"circuit opened: {destination}: {error}")
        return (*failed, *dead_letter(state, row, error, word["error_class"], "circuit_open"))
    return (*failed, *_retry(state, row, word, error))


def _answered(state: State, dispatch: Dispatch, word: InvocationCompleted) -> Iterable[Output]:
    """Say what a final failure means to the destination: one that says no is there."""
    if word["outcome"] == "cancelled":
        return ()
    destination = destination_of(dispatch.binding)
    return circuit.probe_answered(state, destination, dispatch.row["dispatch_id"])


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
        return (*planned, *start(state, upcoming))
    given = _released_on_retry(state, row)
    upcoming["holds"] = [gate for gate in row["holds"] if gate not in given]
    state.rows.put(row_key(row["dispatch_id"]), upcoming)
    return (*planned, *let_on(state, row, given)) if given else planned


def _released_on_retry(state: State, row: RowDispatch) -> list[str]:
    """Name the slots that a dispatch gives up while it waits for its next attempt."""
    index: DispatchIndex = state.index
    flow = index.flow(row["binding_key"])
    gates = (("singleton", flow.singleton), ("concurrency", flow.concurrency))
    return [
        gate
        for gate, declared in gates
        if declared is not None and declared.release_on_retry and gate in row["holds"]
    ]


def _given_back(state: State, row: RowDispatch, word: InvocationCompleted) -> Iterable[Output]:
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
