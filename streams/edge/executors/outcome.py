"""How an invocation ended, as `invocation_completed` says it.

| what happened | outcome | error class |
|---|---|---|
| the handler returned a JSON value, or nothing | `success` | `none` |
| … a value that JSON cannot hold | `failed` | `handler_error` |
| … more than a third of the largest record | `result_too_large` | `result_too_large` |
| it raised `Denied` | `denied` | `auth_failed` |
| … `Terminal` | `failed` | `terminal` |
| … `Unavailable` | `failed` | `provider_5xx` |
| … `Retryable`, or any other `Exception` | `failed` | `handler_error` |
| … another `BaseException`, such as `SystemExit` | `failed` | `handler_panic` |
| its process died | `failed` | `handler_panic` |
| a predicate answered true or false | `success` | `none` |
| … anything else, or raised | `failed` | `predicate_panic` |
| it ran for longer than its timeout | `timeout` | `handler_timeout` |
| somebody cancelled it | `cancelled` | `none` |
| no handler of that name is loaded here | `unresolved` | `unresolved` |
| no process can be started for it | `unresolved` | `unresolved` |
| the process stops before it ended | `interrupted` | `none` |

An error's text is its type and message: it holds what the handler put there, never the event.

Source: SEMANTICS 2.6, 2.8; DESIGN "An invocation".
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import msgspec

from streams.core.wire import Emission, ErrorClass, InvocationOutcome, InvokePurpose, Usage
from streams.handler_api import Cancelled, Context, Denied, Retryable, Terminal, Unavailable

__all__ = [
    "INTERRUPTED",
    "Outcome",
    "answered",
    "cancelled",
    "died",
    "raised",
    "returned",
    "timed_out",
    "unresolved",
    "unstarted",
    "with_word_of",
]

ERROR_CHARS_MAX = 1_024
RETRY_AFTER_MAX_MS = 86_400_000
"""Dispatch waits no longer than a day, whatever is asked for."""


class Outcome(NamedTuple):
    """An outcome, its result as JSON text, and its error; fields as in the schema."""

    outcome: InvocationOutcome
    result: str | None = None
    error: str | None = None
    error_class: ErrorClass = "none"
    retry_after_ms: int | None = None
    usage: Usage | None = None
    emissions: tuple[Emission, ...] = ()


def with_word_of(context: Context, outcome: Outcome) -> Outcome:
    """Return an outcome with what the function said beside it: what it spent, what it emitted.

    What another process has said for it already stays.
    """
    if outcome.usage is None and context.spent:
        outcome = outcome._replace(usage=context.spent.usage())
    if context.emissions and outcome.outcome == "success" and not outcome.emissions:
        outcome = outcome._replace(emissions=context.emissions.taken())
    return outcome


INTERRUPTED = Outcome("interrupted", error="the invoker stopped before the handler ended")


def answered(purpose: InvokePurpose, value: Any, bytes_max: int) -> Outcome:  # noqa: ANN401 - the user's value
    """Return the outcome of a function that returned `value`."""
    if purpose == "handler":
        return returned(value, bytes_max)
    if type(value) is bool:
        return Outcome("success", "true" if value else "false")
    _close(value)
    reason = f"the predicate answered {type(value).__name__}, expected True or False"
    return Outcome("failed", error=_bounded(reason), error_class="predicate_panic")


def returned(value: Any, bytes_max: int) -> Outcome:  # noqa: ANN401 - the user's value
    """Return the outcome of a handler that returned `value`; its JSON has at most `bytes_max`."""
    if value is None:
        return Outcome("success")
    try:
        result = msgspec.json.encode(value)
    except BaseException as error:  # noqa: BLE001 - a user's type may raise anything
        _close(value)
        reason = f"the result ({type(value).__name__}) cannot be written as JSON: {_text(error)}"
        return Outcome("failed", error=_bounded(reason), error_class="handler_error")
    if len(result) > bytes_max:
        reason = f"the result has {len(result)} bytes as JSON, expected at most {bytes_max}"
        return Outcome("result_too_large", error=reason, error_class="result_too_large")
    return Outcome("success", result.decode())


def raised(error: BaseException, purpose: InvokePurpose = "handler") -> Outcome:
    """Return the outcome of a function that raised."""
    text = _describe(error)
    if purpose == "predicate":
        return Outcome("failed", error=text, error_class="predicate_panic")
    match error:
        case Denied():
            return Outcome("denied", error=text, error_class="auth_failed")
        case Terminal():
            return Outcome("failed", error=text, error_class="terminal")
        case Retryable():
            error_class = "provider_5xx" if isinstance(error, Unavailable) else "handler_error"
            return Outcome(
                "failed", error=text, error_class=error_class, retry_after_ms=_asked_ms(error)
            )
        case Cancelled(reason="shutdown"):
            return INTERRUPTED
        case Exception():
            return Outcome("failed", error=text, error_class="handler_error")
        case _:
            return Outcome("failed", error=text, error_class="handler_panic")


def died(exit_code: int, signal_name: str | None) -> Outcome:
    """Return the outcome of a handler whose process ended before it did."""
    how = f"with exit code {exit_code}" if signal_name is None else f"by {signal_name}"
    return Outcome(
        "failed", error=f"the handler's process ended {how}", error_class="handler_panic"
    )


def timed_out(timeout_ms: int, left_alone: str = "") -> Outcome:
    """Return the outcome of a handler that was not done in time; `left_alone` says what of it."""
    reason = f"ran for longer than its timeout of {timeout_ms} ms{left_alone}"
    return Outcome("timeout", error=reason, error_class="handler_timeout")


def cancelled(reason: str) -> Outcome:
    """Return the outcome of a handler that somebody cancelled, and why."""
    return Outcome("cancelled", error=_bounded(reason))


def unresolved(reference: str) -> Outcome:
    """Return the outcome of an intent whose handler is not loaded here."""
    reason = f"handler {reference!r} is not loaded by this invoker"
    return Outcome("unresolved", error=_bounded(reason), error_class="unresolved")


def unstarted(reason: str) -> Outcome:
    """Return the outcome of an intent for which no process can be started now."""
    return Outcome("unresolved", error=_bounded(reason), error_class="unresolved")


def _asked_ms(error: Retryable) -> int:
    """Return the delay that is asked for, in its bounds; none when a subclass talks nonsense."""
    try:
        return max(0, min(int(error.after_ms), RETRY_AFTER_MAX_MS))
    except BaseException:  # noqa: BLE001 - a user's subclass may answer or raise anything
        return 0


def _close(value: object) -> None:
    """Close what was never awaited, so that its author hears of it here and not by a warning."""
    if inspect.iscoroutine(value):
        value.close()


def _describe(error: BaseException) -> str:
    message = _text(error)
    name = type(error).__name__
    return _bounded(f"{name}: {message}" if message else name)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # noqa: BLE001 - a user's __str__ may raise anything
        return f"its message cannot be read ({type(broken).__name__})"


def _bounded(text: str) -> str:
    """Cut to the schema's bound; a lone surrogate, which UTF-8 cannot hold, becomes `?`."""
    return text[:ERROR_CHARS_MAX].encode(errors="replace").decode()
