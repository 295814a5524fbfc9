"""What a CEL expression may cost over one event: who sends long lists shall not stop a partition.

A comprehension looks at each item of a list once.  The library copies for each item what the rest
of the expression names, and for `map` and `filter` also what was found so far: such an expression
costs the list's length times all that it is given, seconds for ten thousand short texts.

| expression | steps |
|---|---|
| no comprehension, or `all`, `exists`, `exists_one` of an item's own properties | not counted |
| any other | longest list or map, times all values, a text counting as one for each 4 characters |

Beyond STEPS_MAX it is not evaluated: it fails, by the event alone and so in each replay alike.

Source: law 9.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

from streams.core.expression import Failed
from streams.expression_names import MACROS

__all__ = ["STEPS_MAX", "is_costly", "refusal"]

STEPS_MAX: Final = 4_000_000
"""A quarter of a second: a list of 2,000 short texts."""

_CHARS_A_STEP = 4
_MACRO = re.compile(rf"\.\s*({MACROS})\s*\(")
_COLLECTING = frozenset({"map", "filter"})
_COMMENT = re.compile(r"//[^\n]*")
_TOKEN = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[()]|(?<![\w.])event(?!\w)")


def is_costly(source: str, /) -> bool:
    """Whether a CEL text may cost more than its event's size: what cannot be told counts as such.

    Between words there may be a comment; what looks like one may be part of a text.
    """
    return any(_collects_or_looks_back(text) for text in (source, _COMMENT.sub("", source)))


def _collects_or_looks_back(source: str) -> bool:
    macro = _MACRO.search(source)
    if macro is None:
        return False
    if macro[1] in _COLLECTING:
        return True
    depth = 1
    for token in _TOKEN.finditer(source, macro.end()):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if not depth:
            return False
        if token[0] == "event":
            return True
    return True  # its end was not found


def refusal(given: object, /) -> Failed | None:
    """Return why a costly expression is not evaluated over what it is given, or None.

    Cost: O(values), and no more than STEPS_MAX of them.
    """
    longest, values = 1, 0
    found: list[Any] = [given]
    while found:
        value = found.pop()
        values += 1
        if isinstance(value, str):
            values += len(value) // _CHARS_A_STEP
        elif isinstance(value, dict | list):
            items = cast("list[Any]", [*value.values()] if isinstance(value, dict) else value)
            longest = max(longest, len(items))
            found.extend(items)
        if longest * values > STEPS_MAX:
            return Failed(
                f"more than {STEPS_MAX} steps: what it is given is too large for a comprehension "
                "that collects, or names `event` for each item"
            )
    return None
