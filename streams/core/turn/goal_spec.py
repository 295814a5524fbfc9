"""What a goal is, as somebody asked for it: read from JSON's values, or refused with every reason.

    {"objective": "all tests pass", "end_state": "", "validation_cmd": "make test",
     "max_iterations": 20, "constraints": ["change no test"]}

Only the objective is required.  A blank validation command is none: then iterations are all there
is, see `streams.core.turn.goal_loop`.

Source: SEMANTICS 8.1, 8.5.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from streams.core.bounds import TEXT_CHARS_MAX
from streams.core.wire import GoalSpec

__all__ = [
    "CONSTRAINTS_MAX",
    "ITERATIONS_DEFAULT",
    "ITERATIONS_MAX",
    "OBJECTIVE_CHARS_MAX",
    "SPEC_BYTES_MAX",
    "GoalSpecError",
    "parse_goal_spec",
]

OBJECTIVE_CHARS_MAX = 65_536
"""Of the objective, and of the end state."""

ITERATIONS_DEFAULT = 20
ITERATIONS_MAX = 1_000
CONSTRAINTS_MAX = 100

SPEC_BYTES_MAX = 300_000
"""Of all texts, UTF-8: a goal's record holds its newest iterations as well."""

_COMMAND_CHARS_MAX = 8_192
_SHOWN_CHARS_MAX = 60
_UNFIT = re.compile(r"[\x00\ud800-\udfff]")  # what no store can hold


class GoalSpecError(ValueError):
    """What cannot be a goal: `problems` names every field, its value, and what was expected."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def parse_goal_spec(found: object, /) -> GoalSpec:
    """Read a goal's specification from a JSON object's values.

    Raises: GoalSpecError with every problem found.
    """
    if not isinstance(found, Mapping):
        raise GoalSpecError((f"the goal is {_shown(found)}, expected an object",))
    fields = cast("Mapping[str, Any]", found)
    problems = [
        f"{_shown(name)} is no field of a goal, expected one of {', '.join(_FIELDS)}"
        for name in fields
        if name not in _FIELDS
    ]
    for name, (fits, expected) in _FIELDS.items():
        value = fields.get(name)
        if value is None and name != "objective":
            continue  # null is left out
        if not fits(value):
            word = "missing" if name not in fields else _shown(value)
            problems.append(f"{name} is {word}, expected {expected}")
    if problems:
        raise GoalSpecError(tuple(problems))
    texts = (fields.get(name) or "" for name in ("objective", "end_state", "validation_cmd"))
    size = sum(len(text.encode()) for text in (*texts, *(fields.get("constraints") or ())))
    if size > SPEC_BYTES_MAX:
        raise GoalSpecError((f"the goal has {size} bytes, expected at most {SPEC_BYTES_MAX}",))
    command: str | None = fields.get("validation_cmd")
    iterations: int | None = fields.get("max_iterations")
    return {
        "objective": fields["objective"],
        "end_state": fields.get("end_state") or "",
        "validation_cmd": command if command and command.strip() else None,
        "max_iterations": ITERATIONS_DEFAULT if iterations is None else iterations,
        "constraints": list(fields.get("constraints") or ()),
    }


def _text(chars_max: int, *, blank: bool) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, str)
        and len(value) <= chars_max
        and (blank or bool(value.strip()))
        and _UNFIT.search(value) is None
    )


_is_constraint = _text(TEXT_CHARS_MAX, blank=False)


def _are_constraints(value: object) -> bool:
    if not isinstance(value, list | tuple):
        return False
    each = cast("Sequence[object]", value)
    return len(each) <= CONSTRAINTS_MAX and all(_is_constraint(one) for one in each)


def _are_iterations(value: object) -> bool:
    return type(value) is int and 1 <= value <= ITERATIONS_MAX


_FIELDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "objective": (
        _text(OBJECTIVE_CHARS_MAX, blank=False),
        f"a text of 1 to {OBJECTIVE_CHARS_MAX} characters, not blank",
    ),
    "end_state": (
        _text(OBJECTIVE_CHARS_MAX, blank=True),
        f"a text of at most {OBJECTIVE_CHARS_MAX} characters",
    ),
    "validation_cmd": (
        _text(_COMMAND_CHARS_MAX, blank=True),
        f"a command of at most {_COMMAND_CHARS_MAX} characters",
    ),
    "max_iterations": (_are_iterations, f"a whole number from 1 to {ITERATIONS_MAX}"),
    "constraints": (
        _are_constraints,
        f"at most {CONSTRAINTS_MAX} texts of 1 to {TEXT_CHARS_MAX} characters",
    ),
}


def _shown(value: object) -> str:
    """Return a value as a problem quotes it: as JSON spells it, and short."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "an array"
    text = json.dumps(value) if isinstance(value, str | int | float | None) else repr(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 3] + "..."
