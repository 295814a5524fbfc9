"""The fields of a turn's envelope: what each takes, and what is said of a value that it does not.

Source: SEMANTICS 8.1; seed queue-driven-agent-dispatch, "The model".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, Literal

from streams.core.bounds import ID_CHARS_MAX, TEXT_CHARS_MAX

__all__ = [
    "ATTEMPT_MAX",
    "KINDS",
    "POLICIES",
    "PRIORITIES",
    "TIME_MS_MAX",
    "Kind",
    "Policy",
    "Priority",
    "fits",
    "problem_of",
    "shown",
]

Kind = Literal["goal_loop", "orchestrator_task"]
Priority = Literal["urgent", "high", "normal", "low"]
Policy = Literal["enqueue", "reject", "interrupt"]

KINDS: Final[tuple[Kind, ...]] = ("goal_loop", "orchestrator_task")
"""What a turn may be; the first is the default."""

PRIORITIES: Final[tuple[Priority, ...]] = ("urgent", "high", "normal", "low")
"""The most urgent first; a bucket is a place in it."""

POLICIES: Final[tuple[Policy, ...]] = ("enqueue", "reject", "interrupt")
"""What a turn does whose session has unfinished ones; the first is the default.

`enqueue` waits for them, `reject` fails without running, `interrupt` ends them and runs.
"""

TIME_MS_MAX = 253_402_300_799_999
"""The last moment of the year 9999, UTC."""

ATTEMPT_MAX = 2**31 - 1

_SHOWN_CHARS_MAX = 60
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_TEXTS = (
    ("job_id", ID_CHARS_MAX, True),
    ("session_id", ID_CHARS_MAX, True),
    ("payload_ref", TEXT_CHARS_MAX, False),
    ("agent_name", ID_CHARS_MAX, False),
    ("tenant", ID_CHARS_MAX, False),
)


def problem_of(name: str, value: object, /) -> str | None:
    """Return what is wrong with a field's value, or None."""
    expected = _EXPECTED[name]
    return None if _FITS[name](value) else f"{name} is {shown(value)}, expected {expected}"


def fits(name: str, value: object, /) -> bool:
    """Whether a field takes a value."""
    return _FITS[name](value)


def _text_fits(chars_max: int, *, required: bool) -> Callable[[object], bool]:
    def text_fits(value: object) -> bool:
        return (
            isinstance(value, str)
            and len(value) <= chars_max
            and (bool(value.strip()) or not required)
            and _UNFIT.search(value) is None
        )

    return text_fits


def _whole_fits(number_max: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and 0 <= value <= number_max


_FITS: dict[str, Callable[[object], bool]] = {
    **{name: _text_fits(chars_max, required=required) for name, chars_max, required in _TEXTS},
    "kind": lambda value: isinstance(value, str) and value in KINDS,
    "priority": lambda value: isinstance(value, str) and value in PRIORITIES,
    "deadline_ms": lambda value: (
        value is None or (type(value) is int and 1 <= value <= TIME_MS_MAX)
    ),
    "when_busy": lambda value: isinstance(value, str) and value in POLICIES,
    "attempt": _whole_fits(ATTEMPT_MAX),
    "enqueued_at_ms": _whole_fits(TIME_MS_MAX),
}
_EXPECTED: dict[str, str] = {
    **{
        name: f"a text of {int(required)} to {chars_max} characters"
        + (", not blank," if required else "")
        + " without control characters"
        for name, chars_max, required in _TEXTS
    },
    "kind": f"one of {', '.join(KINDS)}",
    "priority": f"one of {', '.join(PRIORITIES)}",
    "deadline_ms": f"ms since the epoch, a whole number from 1 to {TIME_MS_MAX}, or none",
    "when_busy": f"one of {', '.join(POLICIES)}",
    "attempt": f"a whole number from 0 to {ATTEMPT_MAX}",
    "enqueued_at_ms": f"ms since the epoch, a whole number from 0 to {TIME_MS_MAX}",
}


def shown(value: object, /) -> str:
    """Return a value as a problem quotes it: as JSON spells it, and short."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "an array"
    text = json.dumps(value) if isinstance(value, str | int | float | None) else repr(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 3] + "..."
