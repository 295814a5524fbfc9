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
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from streams.core.wire import TriggerEvent

CHARS_MAX = 1_024
"""Characters of an expression."""

KEY_CHARS_MAX = 200
"""Characters of a value that is part of a key; a longer one is known by its hash."""


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


def as_key(value: Any, /) -> str:  # noqa: ANN401 - what an expression gave
    """Return a value as part of a key: null, text, true/false, decimal text, else compact JSON.

    A long one is known by its hash.  Raises: TypeError for a value that JSON does not have.
    """
    text = value if type(value) is str else _key_text(value)  # as most keys are
    if not text.isascii():  # half a surrogate pair cannot be written
        text = text.encode(errors="backslashreplace").decode()
    if len(text) <= KEY_CHARS_MAX:
        return text
    return "blake2b-" + blake2b(text.encode(), digest_size=20).hexdigest()


def _key_text(value: Any) -> str:  # noqa: ANN401 - what an expression gave
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
        case dict() | list():
            return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        case _:
            raise TypeError(f"a {type(value).__name__} is no key")


def is_truth(value: Any, /) -> bool:  # noqa: ANN401 - any JSON value
    """Whether a JMESPath result lets an event pass: all but null, false and what is empty."""
    return value is not None and value is not False and value not in ("", [], {})
