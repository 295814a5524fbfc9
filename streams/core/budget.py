"""Money: what was spent against a budget, what is about to be, and whether there is room for more.

| happens | answer |
|---|---|
| an evaluation starts | what it is expected to cost is reserved until its outcome comes |
| an outcome says what was spent | it is spent; all partitions are told once a quantum is |
| another partition tells | it is spent here, too |
| the hour or the day ends | its window starts at zero |

A quantum is the smaller limit divided by four times the partitions.  So what partitions have not
told each other is less than a quarter of the limit: that, and what runs in the others at the moment
when it is used up, is how far a budget can be overdrawn.

Source: SEMANTICS 2.6; DESIGN 7, "Circuits, predicate breakers and budgets".
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.core import bounds
from streams.core.dispatch_index import DispatchIndex
from streams.core.record import Output, Record, Rejection
from streams.core.spend import Spend
from streams.core.state import Answer, State
from streams.core.wire import (
    BindingDefinition,
    BudgetSpent,
    InvocationCompleted,
    RowBudget,
    RowDispatch,
    Usage,
)

MICROS_MAX = 10**15
"""A billion dollars: sums of what outcomes say stay far from the largest number of a record."""

HOUR_MS = 3_600_000
DAY_MS = 86_400_000

DISPATCHES = "trigger.dispatches"
SCOPE_CHARS_MAX = bounds.ID_CHARS_MAX + 2

_REASONS = {"t:": "", "n:": "orchestrator_"}


def spent(state: State, scope: str, /) -> tuple[int, int]:
    """Return what was spent in this hour and in this day, millionths of a US dollar."""
    row = _current(state, scope)
    return row["hour_micros"], row["day_micros"]


def exceeded(
    state: State, binding: BindingDefinition, spend: Spend, expected_micros: int, /
) -> str | None:
    """Return which budget has no room for as much as that, or None."""
    index: DispatchIndex = state.index
    for scope, limits in spend.scopes(binding):
        coming = index.reserved.get(scope, 0) + expected_micros
        hour_micros, day_micros = spent(state, scope)
        prefix = _REASONS[scope[:2]]
        if limits.hourly_micros is not None and hour_micros + coming > limits.hourly_micros:
            return f"{prefix}hourly_budget_exceeded"
        if limits.daily_micros is not None and day_micros + coming > limits.daily_micros:
            return f"{prefix}daily_budget_exceeded"
    return None


def renewed_at(state: State, spend: Spend, /) -> int:
    """Return when there may be room: the next UTC hour if an hourly limit is set, else the day."""
    hourly = any(each.hourly_micros is not None for each in (spend.trigger, spend.namespace))
    window_ms = HOUR_MS if hourly else DAY_MS
    return state.now_ms - state.now_ms % window_ms + window_ms


def reserve(state: State, binding: BindingDefinition, spend: Spend, micros: int, /) -> None:
    """Count what an evaluation is expected to cost, until `release`; its row says so."""
    index: DispatchIndex = state.index
    index.reserve(binding, spend, micros)


def release(state: State, row: RowDispatch, /) -> RowDispatch:
    """Return a row without its reservation, which is counted no more."""
    if not row["reserved_micros"]:
        return row
    index: DispatchIndex = state.index
    spend = index.flow(row["binding_key"]).spend
    assert spend is not None, "only a binding with a budget reserves"
    index.reserve(index.bindings[row["binding_key"]], spend, -row["reserved_micros"])
    return {**row, "reserved_micros": 0}


def charge(
    state: State, binding: BindingDefinition, spend: Spend, usage: Usage, /
) -> Iterable[Output]:
    """Count what an outcome says was spent; tells the other partitions now and then."""
    outputs: list[Output] = []
    micros = usage["cost_usd_micros"]
    for scope, limits in spend.scopes(binding) if micros > 0 else ():
        before = _current(state, scope)
        unreported = before["unreported_micros"] + micros
        row: RowBudget = {**_added(before, micros, micros), "unreported_micros": unreported}
        if state.partitions > 1 and unreported >= limits.quantum_micros(state.partitions):
            outputs += _told(state, row)
            row = {**row, "unreported_micros": 0}
        state.rows.put(_key(scope), row)
    return outputs


def on_budget_spent(state: State, record: Record, /) -> Answer:
    """Count what another partition spent."""
    word: BudgetSpent = record.value
    problem = bounds.text_problem((("scope", word["scope"], SCOPE_CHARS_MAX),))
    if (
        problem is not None
        or not 0 <= word["micros"] <= MICROS_MAX
        or word["partition"] == state.partition
    ):
        return Rejection("DSP-008", problem or "a word on money that no partition says")
    row = _current(state, word["scope"])
    in_hour = word["micros"] if word["hour_ms"] == row["hour_ms"] else 0
    in_day = word["micros"] if word["day_ms"] == row["day_ms"] else 0
    if in_day:
        state.rows.put(_key(word["scope"]), _added(row, in_hour, in_day))
    return ()


def _key(scope: str) -> str:
    return f"m:{scope}"


def _current(state: State, scope: str) -> RowBudget:
    """Return a scope's row with its windows moved to the present."""
    hour_ms = state.now_ms - state.now_ms % HOUR_MS
    day_ms = state.now_ms - state.now_ms % DAY_MS
    row: RowBudget | None = state.rows.get(_key(scope))
    fresh: RowBudget = {
        "scope": scope,
        "hour_ms": hour_ms,
        "hour_micros": 0,
        "day_ms": day_ms,
        "day_micros": 0,
        "unreported_micros": 0,
        "expires_at_ms": day_ms + DAY_MS,
    }
    if row is None or row["day_ms"] != day_ms:
        return fresh
    if row["hour_ms"] != hour_ms:
        return {**row, "hour_ms": hour_ms, "hour_micros": 0}
    return row


def _added(row: RowBudget, in_hour: int, in_day: int) -> RowBudget:
    return {
        **row,
        "hour_micros": row["hour_micros"] + in_hour,
        "day_micros": row["day_micros"] + in_day,
    }


def _told(state: State, row: RowBudget) -> Iterable[Output]:
    value: BudgetSpent = {
        "scope": row["scope"],
        "partition": state.partition,
        "day_ms": row["day_ms"],
        "hour_ms": row["hour_ms"],
        "micros": row["unreported_micros"],
    }
    for partition in range(state.partitions):
        if partition != state.partition:
            yield Output(
                DISPATCHES, "budget_spent", f"budget:{state.partition}", value, partition=partition
            )


def usage_of(word: InvocationCompleted, /) -> Usage:
    """Return what an outcome says was spent, nothing when it does not say or says nonsense."""
    usage = word["usage"]
    if usage is None:
        return {"cost_usd_micros": 0, "tokens": 0}
    micros, tokens = usage["cost_usd_micros"], usage["tokens"]
    return {
        "cost_usd_micros": min(max(micros, 0), MICROS_MAX),
        "tokens": min(max(tokens, 0), MICROS_MAX),
    }
