"""Expressions of a manifest over an event: what folds ask of the library that evaluates them.

| language | used for |
|---|---|
| CEL | `key` of a gate, `priority.key`, `when = "cel:…"` |
| JMESPath | `filter`, `dedupe_key` |

Evaluation is pure and bounded, so a fold may do it; the libraries themselves stay outside the core.

Source: DESIGN 7, "Expressions"; SEMANTICS 3.1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from streams.core.wire import TriggerEvent

CHARS_MAX = 1_024
"""Characters of an expression."""


class Failed(NamedTuple):
    """An expression that could not be evaluated over an event, and why."""

    reason: str


class Expressions(Protocol):
    """Compiles and evaluates.  Compiled programs are kept; the same text is compiled once."""

    def cel(self, source: str, event: TriggerEvent, /) -> Any:  # noqa: ANN401 - JSON, or Failed
        """Evaluate CEL over `{"event": …}`; a missing property is null.  Failed if it cannot be."""
        ...

    def jmespath(self, source: str, event: TriggerEvent, /) -> Any:  # noqa: ANN401 - as above
        """Evaluate JMESPath over `{"event": …}`.  Failed when it cannot be."""
        ...

    def cel_problem(self, source: str, /) -> str | None:
        """What makes a text no usable CEL expression, or None."""
        ...

    def jmespath_problem(self, source: str, /) -> str | None:
        """What makes a text no usable JMESPath expression, or None."""
        ...


def as_key(value: Any, /) -> str:  # noqa: ANN401 - any JSON value
    """A value as part of a key: null, text, true/false, decimal text, else compact JSON."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(value)
        case float():
            return str(int(value)) if value.is_integer() else repr(value)
        case Mapping() | Sequence():
            return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        case _:
            return str(value)


def is_truth(value: Any, /) -> bool:  # noqa: ANN401 - any JSON value
    """Whether a JMESPath result lets an event pass: all but null, false and what is empty."""
    return value is not None and value is not False and value not in ("", [], {})
