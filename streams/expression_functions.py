"""Functions in an expression that there are none of, or that take something else.

The libraries look a function up when they come to its call: an expression with a misspelled one
can be compiled, and then fails for every event.  So it is a problem when it is loaded.

The types of arguments are not looked at: nobody knows them before an event comes.

Source: SEMANTICS 10.2 (8), "evaluate errors at load when possible".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

import jmespath
from jmespath.functions import Functions

from streams.cel_program import compile_cel
from streams.core.suggestion import suggestion

__all__ = [
    "CEL_FORMS",
    "LITERALS",
    "RAW_TEXT",
    "cel_functions_problem",
    "jmespath_functions_problem",
]

_OF_TIMES: Final = (
    *("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear"),
    *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
)

CEL_FORMS: Final[dict[str, tuple[str, ...]]] = {
    **{name: (f"{name}(x)",) for name in ("string", "int", "uint", "double", "bytes")},
    **{name: (f"{name}(x)",) for name in ("type", "dyn", "timestamp", "duration")},
    "size": ("size(x)", "x.size()"),
    **{name: (f"x.{name}(y)",) for name in ("contains", "startsWith", "endsWith", "matches")},
    **{name: (f"x.{name}()",) for name in _OF_TIMES},
    "of": ("optional.of(x)",),
    "ofNonZeroValue": ("optional.ofNonZeroValue(x)",),
    "none": ("optional.none()",),
    "hasValue": ("x.hasValue()",),
    "value": ("x.value()",),
    "or": ("x.or(y)",),
    "orValue": ("x.orValue(y)",),
    "has": ("has(x.name)",),
    **{
        name: (f"x.{name}(item, condition)",)
        for name in ("all", "exists", "exists_one", "existsOne", "filter")
    },
    "map": ("x.map(item, value)", "x.map(item, condition, value)"),
}
"""The functions of the CEL library, and the macros, each with the forms of its calls."""

LITERALS: Final = re.compile(
    r"'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|//[^\n]*", re.DOTALL
)
"""Texts in CEL, and comments."""

RAW_TEXT: Final = re.compile(r"\b[bB]?[rR]['\"]")
"""Texts in CEL in which a backslash is one: where they end is not told here."""

_NAME = re.compile(r"[A-Za-z_]\w*")
_CALL = re.compile(r"(optional\s*\.|\.)?\s*(?<!\w)([A-Za-z_]\w*)\s*\(")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def cel_functions_problem(source: str, /) -> str | None:
    """Say which call of a CEL expression is of no function; None when all can be made.

    Raises: ValueError for a text that is no CEL.
    """
    called = cast("Iterable[str]", compile_cel(source).functions())
    for name in called:  # operators among them, whose names are no words
        if name not in CEL_FORMS and _NAME.fullmatch(name) is not None:
            return f"there is no function {name!r}{suggestion(name, sorted(CEL_FORMS))}"
    if RAW_TEXT.search(source) is not None:
        return None  # texts that are not told apart here
    for name, form in _calls(LITERALS.sub(_blanked, source)):
        forms = CEL_FORMS.get(name)
        if forms is not None and form not in {_shape(known) for known in forms}:
            return f"{name!r} is called in another way, expected {' or '.join(forms)}"
    return None


def jmespath_functions_problem(source: str, /) -> str | None:
    """Say which call of a JMESPath expression is of no function; None when all can be made.

    Raises: JMESPathError for a text that is none.
    """
    known = cast("dict[str, dict[str, Any]]", Functions.FUNCTION_TABLE)
    for name, count in _jmespath_calls(cast("dict[str, Any]", jmespath.compile(source).parsed)):
        if name not in known:
            return f"there is no function {name!r}{suggestion(name, sorted(known))}"
        signature = known[name]["signature"]
        least = len(signature)
        is_variadic = bool(signature) and signature[-1].get("variadic", False)
        if count < least or (count > least and not is_variadic):
            more = " or more" if is_variadic else ""
            return f"{name!r} is given {count} arguments, expected {least}{more}"
    return None


def _blanked(literal: re.Match[str]) -> str:
    return " " if literal[0].startswith("//") else "''"


def _calls(text: str) -> Iterator[tuple[str, str]]:
    """Yield each call's name, and the shape of the call as `_shape` tells it of a form."""
    for call in _CALL.finditer(text):
        receiver = re.sub(r"\s", "", call[1] or "")
        yield call[2], f"{receiver}{call[2]}/{_arguments(text, call.end())}"


def _shape(form: str) -> str:
    """`x.startsWith(y)` is `.startsWith/1`, `optional.of(x)` is `optional.of/1`."""
    [(_, shape)] = _calls(form)
    return shape


def _arguments(text: str, at: int) -> int:
    """Count the arguments of the call whose parenthesis opens before `at`."""
    depth, commas, is_empty = 1, 0, True
    for letter in text[at:]:
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if depth == 0:
            break
        commas += letter == "," and depth == 1
        is_empty = is_empty and letter.isspace()
    return 0 if is_empty else commas + 1


def _jmespath_calls(node: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield name and number of arguments of each call in a JMESPath tree."""
    children = cast("list[Any]", node["children"])
    if node["type"] == "function_expression":
        yield node["value"], len(children)
    for child in children:
        if isinstance(child, dict):  # a slice's are numbers
            yield from _jmespath_calls(cast("dict[str, Any]", child))
