"""Names in an expression that nothing has: `payload.id` where `event.payload.id` is meant.

Such an expression can be evaluated, and is null or fails for every event: a filter keeps all of
them out, a key puts them all together, and nobody is told.  So it is a problem when it is loaded.

What is below `event.payload` or `event.headers` is the sender's, and may be there or not.

Source: SEMANTICS 10.2 (8), "evaluate errors at load when possible".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, cast

import cel
import jmespath

from streams.core.wire import TriggerEvent

__all__ = ["MACROS", "cel_names_problem", "jmespath_names_problem"]

MACROS = "all|exists_one|existsOne|exists|map|filter"
"""What CEL evaluates once for each item of a list; the first argument names the item."""

_EVENT = "event"
_PROPERTIES = frozenset(TriggerEvent.__annotations__) - {"raw_body"} | {"payload"}

_TEXT = re.compile(
    r"'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|//[^\n]*", re.DOTALL
)
_RAW_TEXT = re.compile(r"\b[bB]?[rR]['\"]")
_ITEM = re.compile(rf"\.\s*(?:{MACROS})\s*\(\s*([A-Za-z_]\w*)\s*,")
_PROPERTY = re.compile(r"(?<![\w.])event\s*\.\s*([A-Za-z_]\w*)(?!\w|\s*\()")
_LIBRARIES = frozenset({"optional"})  # namespaces of functions, which are no values

_SHARE_SCOPE = frozenset(
    {
        *("comparator", "or_expression", "and_expression", "not_expression"),
        *("multi_select_list", "multi_select_dict", "key_val_pair", "function_expression"),
    }
)
_FIRST_HAS_SCOPE = frozenset(
    {
        *("subexpression", "index_expression", "pipe", "flatten"),
        *("projection", "value_projection", "filter_projection"),
    }
)


def cel_names_problem(source: str, /) -> str | None:
    """Say which name of a CEL expression no event has; None when it knows all of them.

    Raises: ValueError for a text that is no CEL.
    """
    items = set(_ITEM.findall(source))
    variables = cast("Iterable[str]", cel.compile(source).variables())
    unknown = sorted({*variables} - {_EVENT} - items - _LIBRARIES)
    for name in unknown:
        if not _is_type(name):
            return _no_variable(name)
    if _EVENT in items or _RAW_TEXT.search(source) is not None:
        return None  # another `event`, or texts that are not told apart here
    return _no_property(_PROPERTY.findall(_TEXT.sub("''", source)))


def jmespath_names_problem(source: str, /) -> str | None:
    """Say which name of a JMESPath expression no event has; None when it knows all of them.

    Raises: JMESPathError for a text that is none.
    """
    tree = cast("dict[str, Any]", jmespath.compile(source).parsed)
    for name in _fields(tree):
        if name != _EVENT:
            return _no_variable(name)
    return _no_property(_properties(tree))


def _is_type(name: str) -> bool:
    """Whether a name that is no variable of ours is one of CEL's types, as in `type(x) == int`."""
    try:
        cel.compile(name).execute({_EVENT: {}})
    except (RuntimeError, ValueError):
        return False
    return True


def _no_variable(name: str) -> str:
    meant = f"event.{name}" if name in _PROPERTIES else "event.payload"
    return f"{name!r} is not known: an expression sees `event` alone, as in {meant}"


def _no_property(names: Iterable[str]) -> str | None:
    for name in names:
        if name not in _PROPERTIES:
            known = sorted(_PROPERTIES)
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean event.{near[0]}?" if near else f"known are {', '.join(known)}"
            return f"an event has no {name!r}; {hint}"
    return None


def _fields(node: dict[str, Any]) -> Iterator[str]:
    """Names that a JMESPath tree looks up where it starts."""
    children: list[dict[str, Any]] = node["children"]
    if node["type"] == "field":
        yield node["value"]
    elif node["type"] in _SHARE_SCOPE:
        for child in children:
            yield from _fields(child)
    elif node["type"] in _FIRST_HAS_SCOPE and children:
        yield from _fields(children[0])


def _properties(node: dict[str, Any]) -> Iterator[str]:
    """Names that a JMESPath tree looks up directly in `event`."""
    children: list[dict[str, Any]] = node["children"]
    if node["type"] == "subexpression" and len(children) > 1:
        first, second = children[:2]
        if (first["type"], second["type"]) == ("field", "field"):
            yield second["value"]
        else:
            yield from _properties(first)
    elif node["type"] in _SHARE_SCOPE:
        for child in children:
            yield from _properties(child)
    elif node["type"] in _FIRST_HAS_SCOPE and children:
        yield from _properties(children[0])
