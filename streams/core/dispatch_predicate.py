"""A predicate that is a function: an invoker evaluates it, before the gates.

| the dispatch | happens | answer |
|---|---|---|
| is matched | its predicate keeps failing | skipped: `circuit_open` |
| | its budget is used up | by the binding's strategy: skipped, warned, dead letter, or deferred |
| | otherwise | evaluating: the predicate is invoked |
| evaluating | the verdict is yes | through the gates |
| | … no | skipped |
| | no verdict: it raised, took too long, returned something else | skipped, and counted |
| deferred | its budget is renewed | as when it was matched |

Leases, fences and what an invoker gives back are as for an attempt; the attempt's number is 0.

Source: SEMANTICS 2.6.
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.core import bounds, breaker, budget
from streams.core.clock import rfc3339
from streams.core.dispatch_index import DispatchIndex
from streams.core.dispatch_moves import (
    advance,
    dead_letter,
    dispatch_of,
    invoke_again,
    row_key,
    skip,
)
from streams.core.dispatch_records import ATTEMPTS, LIFECYCLE, predicate_evaluated
from streams.core.flow import Flow
from streams.core.record import Output
from streams.core.spend import Spend
from streams.core.state import State
from streams.core.wire import (
    BudgetDeferred,
    InvocationCompleted,
    LifecyclePredicateBudgetExceeded,
    RowDispatch,
    Usage,
)

DEFERRALS_MAX = 168
"""Times a dispatch may wait for its budget: a week of hours."""

_TOOK_MS_MAX = 1 << 62  # an invoker says from when to when: what is between must fit where it goes

_NOTHING: Usage = {"cost_usd_micros": 0, "tokens": 0}


def begin(state: State, row: RowDispatch, /) -> Iterable[Output]:
    """Evaluate a dispatch's predicate if it may be, and its budget; else go on to the gates."""
    index: DispatchIndex = state.index
    flow = index.flow(row["binding_key"])
    if flow.function is not None and breaker.is_open(state, row["binding_key"]):
        return _says_no(state, row, flow, "circuit_open", _NOTHING, 0)
    warned: tuple[Output, ...] = ()
    expected = 0
    if flow.spend is not None:
        binding = index.bindings[row["binding_key"]]
        expected = _expected(state, row, flow, flow.spend)
        reason = budget.exceeded(state, binding, flow.spend, expected)
        if reason is not None:
            told = _exceeded(state, row, flow.spend, reason, expected, _NOTHING)
            if flow.spend.strategy != "warn":
                return (told, *_exhausted(state, row, flow, flow.spend, reason))
            warned = (told,)
    if flow.function is None:
        return (*warned, *_pass(state, row))
    asking: RowDispatch = {**row, "attempt": 0, "due_ms": None, "reserved_micros": expected}
    if flow.spend is not None and expected:
        budget.reserve(state, index.bindings[row["binding_key"]], flow.spend, expected)
    return (*warned, invoke_again(state, asking))


def completed(state: State, row: RowDispatch, word: InvocationCompleted, /) -> Iterable[Output]:
    """Take the word on an evaluation: the verdict, or why there is none."""
    index: DispatchIndex = state.index
    flow = index.flow(row["binding_key"])
    row = budget.release(state, row)
    usage = budget.usage_of(word)
    took_ms = min(max(word["completed_at_ms"] - word["started_at_ms"], 0), _TOOK_MS_MAX)
    verdict = _verdict(word)
    noted: list[Output] = []
    if flow.spend is not None:
        breaker.sampled(state, row["binding_key"], usage["cost_usd_micros"])
    if isinstance(verdict, bool):
        noted += breaker.succeeded(state, row["binding_key"])
    else:
        noted += breaker.failed(state, row["binding_key"], took_ms)
    if flow.spend is not None and _overran(flow.spend, word, usage):
        reason = "budget_exceeded"
        expected = _expected(state, row, flow, flow.spend)
        noted.append(_exceeded(state, row, flow.spend, reason, expected, usage))
        if flow.spend.strategy == "fail":
            evaluated = _evaluated(state, row, flow, reason, usage, took_ms)
            return (*noted, evaluated, *_dead(state, row, reason))
        if flow.spend.strategy != "warn" or not isinstance(verdict, bool):
            return (*noted, *_says_no(state, row, flow, reason, usage, took_ms))
    if verdict is True:
        evaluated = _evaluated(state, row, flow, "true", usage, took_ms)
        return (*noted, evaluated, *_pass(state, {**row, "fence": row["fence"] + 1}))
    why = None if verdict is False else verdict
    return (*noted, *_says_no(state, row, flow, why, usage, took_ms))


def _verdict(word: InvocationCompleted) -> bool | str:
    """Return the verdict, or why there is none."""
    if word["outcome"] != "success":
        return bounds.shortened(f"failed: {word['error'] or word['outcome']}")
    if word["result"] in ("true", "false"):
        return word["result"] == "true"
    return "failed: expected true or false"


def _overran(spend: Spend, word: InvocationCompleted, usage: Usage) -> bool:
    """Whether one evaluation took more than it may."""
    cost_max, tokens_max = spend.max_cost_micros, spend.tokens_max
    return (
        word["outcome"] == "timeout"
        or (cost_max is not None and usage["cost_usd_micros"] > cost_max)
        or (tokens_max is not None and usage["tokens"] > tokens_max)
    )


def _expected(state: State, row: RowDispatch, flow: Flow, spend: Spend) -> int:
    """Return what an evaluation is expected to cost; an expression costs nothing."""
    if flow.function is None:
        return 0
    return breaker.expected_micros(state, row["binding_key"], spend.max_cost_micros or 0)


def _pass(state: State, row: RowDispatch) -> Iterable[Output]:
    """Take a dispatch to its gates; its first attempt is the next to come."""
    first: RowDispatch = {**row, "status": "invoked", "attempt": 1, "due_ms": None, "returns": 0}
    return advance(state, first, None)


def _says_no(
    state: State, row: RowDispatch, flow: Flow, reason: str | None, usage: Usage, took_ms: int
) -> Iterable[Output]:
    """End a dispatch that its predicate keeps from its first attempt."""
    word = reason or "false"
    evaluated = _evaluated(state, row, flow, word, usage, took_ms)
    detail = {"predicate": flow.function or "", "reason": word}
    return (evaluated, *skip(state, row, "predicate", detail))


def _evaluated(
    state: State, row: RowDispatch, flow: Flow, word: str, usage: Usage, took_ms: int
) -> Output:
    """Make the record of an evaluation: `true`, `false`, or why there is no verdict."""
    return predicate_evaluated(
        dispatch_of(state, row),
        flow.function or "",
        word,
        usage=usage,
        latency_ms=took_ms,
        strategy=None if flow.spend is None else flow.spend.strategy,
    )


# ---------------------------------------------------------------------- budgets
def _exhausted(
    state: State, row: RowDispatch, flow: Flow, spend: Spend, reason: str
) -> Iterable[Output]:
    """Do what the binding wants done when its budget is used up."""
    if spend.strategy == "fail":
        return _dead(state, row, reason)
    if spend.strategy == "retry_later" and row["deferrals"] < DEFERRALS_MAX:
        return (_deferred(state, row, spend, reason),)
    if spend.strategy == "retry_later":
        return _dead(state, row, f"{reason}, {DEFERRALS_MAX} times")
    if flow.function is not None:
        return _says_no(state, row, flow, reason, _NOTHING, 0)
    return skip(state, row, "budget", {"reason": reason})


def _dead(state: State, row: RowDispatch, reason: str) -> Iterable[Output]:
    error = f"trigger budget exhausted: {reason}"
    return dead_letter(state, row, error, "budget_exhausted", "budget_exhausted")


def _deferred(state: State, row: RowDispatch, spend: Spend, reason: str) -> Output:
    retry_at_ms = budget.renewed_at(state, spend)
    waits: RowDispatch = {
        **row,
        "status": "deferred",
        "attempt": 0,
        "due_ms": retry_at_ms,
        "deferrals": row["deferrals"] + 1,
    }
    state.rows.put(row_key(row["dispatch_id"]), waits)
    dispatch = dispatch_of(state, waits)
    value: BudgetDeferred = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "trigger_id": row["trigger_id"],
        "binding_key": row["binding_key"],
        "handler_kind": dispatch.binding["handler_kind"],
        "target_uri": dispatch.binding["target_uri"],
        "reason": reason,
        "retry_at": rfc3339(retry_at_ms),
        "replay_of_event_id": row["replay_of_event_id"],
    }
    return dispatch.output(ATTEMPTS, "budget_deferred", value)


def _exceeded(
    state: State, row: RowDispatch, spend: Spend, reason: str, expected_micros: int, usage: Usage
) -> Output:
    hour_micros, day_micros = budget.spent(state, f"t:{row['trigger_id']}")
    limits = spend.trigger
    value: LifecyclePredicateBudgetExceeded = {
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "trigger_id": row["trigger_id"],
        "reason": reason,
        "strategy": spend.strategy,
        "expected_cost_usd_micros": expected_micros,
        "cost_usd_micros": usage["cost_usd_micros"],
        "tokens": usage["tokens"],
        "daily_limit_usd_micros": limits.daily_micros,
        "hourly_limit_usd_micros": limits.hourly_micros,
        "cost_today_usd_micros": day_micros,
        "cost_hour_usd_micros": hour_micros,
        "replay_of_event_id": row["replay_of_event_id"],
    }
    return dispatch_of(state, row).output(LIFECYCLE, "predicate.budget_exceeded", value)
