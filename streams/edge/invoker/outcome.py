"""How an invocation ended, as `invocation_completed` says it.

| what happened | outcome | error class |
|---|---|---|
| the handler returned a JSON value, or nothing | `success` | `none` |
| … a value that JSON cannot hold | `failed` | `handler_error` |
| … more than a third of the largest record | `result_too_large` | `result_too_large` |
| it raised `Terminal` | `failed` | `terminal` |
| it raised `Retryable`, or any other `Exception` | `failed` | `handler_error` |
| it raised another `BaseException`, such as `SystemExit` | `failed` | `handler_panic` |
| no handler of that name is loaded here | `unresolved` | `unresolved` |
| the process stops before it ended | `interrupted` | `none` |

An error's text is its type and message: it holds what the handler put there, never the event.

Source: SEMANTICS 2.8; DESIGN "An invocation".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from streams.core.wire import ErrorClass, InvocationOutcome
from streams.handler_api import Retryable, Terminal

__all__ = ["INTERRUPTED", "Outcome", "raised", "returned", "unresolved"]

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


INTERRUPTED = Outcome("interrupted", error="the invoker stopped before the handler ended")


def returned(value: Any, bytes_max: int) -> Outcome:  # noqa: ANN401 - the user's value
    """Return the outcome of a handler that returned `value`; its JSON has at most `bytes_max`."""
    if value is None:
        return Outcome("success")
    try:
        result = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        reason = f"the result ({type(value).__name__}) cannot be written as JSON: {error}"
        return Outcome("failed", error=_bounded(reason), error_class="handler_error")
    if len(result) > bytes_max:
        reason = f"the result has {len(result)} bytes as JSON, expected at most {bytes_max}"
        return Outcome("result_too_large", error=reason, error_class="result_too_large")
    return Outcome("success", result.decode())


def raised(error: BaseException) -> Outcome:
    """Return the outcome of a handler that raised."""
    text = _describe(error)
    match error:
        case Terminal():
            return Outcome("failed", error=text, error_class="terminal")
        case Retryable():
            return Outcome(
                "failed",
                error=text,
                error_class="handler_error",
                retry_after_ms=min(error.after_ms, RETRY_AFTER_MAX_MS),
            )
        case Exception():
            return Outcome("failed", error=text, error_class="handler_error")
        case _:
            return Outcome("failed", error=text, error_class="handler_panic")


def unresolved(reference: str) -> Outcome:
    """Return the outcome of an intent whose handler is not loaded here."""
    reason = f"handler {reference!r} is not loaded by this invoker"
    return Outcome("unresolved", error=_bounded(reason), error_class="unresolved")


def _describe(error: BaseException) -> str:
    name = type(error).__name__
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001 - a user's __str__ may raise anything
        message = f"its message cannot be read ({type(broken).__name__})"
    return _bounded(f"{name}: {message}" if message else name)


def _bounded(text: str) -> str:
    """Cut to the schema's bound; a lone surrogate, which UTF-8 cannot hold, becomes `?`."""
    return text[:ERROR_CHARS_MAX].encode(errors="replace").decode()
