"""Names in an expression that nothing has: `payload.id` where `event.payload.id` is meant.

Such an expression can be evaluated, and is null or fails for every event: a filter keeps all of
them out, a key puts them all together, and nobody is told.  So it is a problem when it is loaded.

What is below `event.payload` or `event.headers` is the sender's, and may be there or not.

Source: SEMANTICS 10.2 (8), "evaluate errors at load when possible".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, cast

import jmespath

from streams.cel_program import compile_cel
from streams.core.wire import TriggerEvent
from streams.expression_functions import LITERALS, RAW_TEXT

__all__ = ["EVENT", "MACROS", "Seen", "cel_names_problem", "jmespath_names_problem"]

MACROS = "all|exists_one|existsOne|exists|map|filter"
"""What CEL evaluates once for each item of a list; the first argument names the item."""

Seen = Mapping[str, frozenset[str] | None]
"""What an expression sees: names, and which properties each has; None: any."""

EVENT: Final[Seen] = {"event": frozenset(TriggerEvent.__annotations__) - {"raw_body"} | {"payload"}}
"""What the expressions of a trigger see."""

_ITEM = re.compile(rf"\.\s*(?:{MACROS})\s*\(\s*([A-Za-z_]\w*)\s*,")
_PROPERTY = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s*\.\s*([A-Za-z_]\w*)(?!\w|\s*\()")
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


def cel_names_problem(source: str, seen: Seen = EVENT, /) -> str | None:
    """Say which name of a CEL expression nothing has; None when it knows all of them.

    Raises: ValueError for a text that is no CEL.
    """
    items = set(_ITEM.findall(source))
    variables = cast("Iterable[str]", compile_cel(source).variables())
    for name in sorted({*variables} - {*seen} - items - _LIBRARIES):
        if not _is_type(name):
            return _no_variable(name, seen)
    if RAW_TEXT.search(source) is not None:
        return None  # texts that are not told apart here
    # An item may have the name of something else: it is not looked at.
    own = {name: properties for name, properties in seen.items() if name not in items}
    return _no_property(_PROPERTY.findall(LITERALS.sub("''", source)), own)


def jmespath_names_problem(source: str, seen: Seen = EVENT, /) -> str | None:
    """Say which name of a JMESPath expression nothing has; None when it knows all of them.

    Raises: JMESPathError for a text that is none.
    """
    tree = cast("dict[str, Any]", jmespath.compile(source).parsed)
    for name in _fields(tree):
        if name not in seen:
            return _no_variable(name, seen)
    return _no_property(_properties(tree), seen)


def _is_type(name: str) -> bool:
    """Whether a name that is no variable of ours is one of CEL's types, as in `type(x) == int`."""
    try:
        compile_cel(name).execute({})
    except (RuntimeError, ValueError):
        return False
    return True


def _no_variable(name: str, seen: Seen) -> str:
    owners = [owner for owner, properties in seen.items() if name in (properties or ())]
    meant = f", as in {owners[0]}.{name}" if owners else ""
    if "event" in seen:
        meant = meant or ", as in event.payload"
    names = [f"`{each}`" for each in seen]
    what = f"{names[0]} alone" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{name!r} is not known: an expression sees {what}{meant}"


def _no_property(names: Iterable[tuple[str, str]], seen: Seen) -> str | None:
    for owner, name in names:
        properties = seen.get(owner)
        if properties is not None and name not in properties:
            known = sorted(properties)
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {owner}.{near[0]}?" if near else f"known are {', '.join(known)}"
            article = "an" if owner[0] in "aeiou" else "a"
            return f"{article} {owner} has no {name!r}; {hint}"
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


def _properties(node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Names that a JMESPath tree looks up directly in what it sees, each with where."""
    children: list[dict[str, Any]] = node["children"]
    if node["type"] == "subexpression" and len(children) > 1:
        first, second = children[:2]
        if (first["type"], second["type"]) == ("field", "field"):
            yield first["value"], second["value"]
        else:
            yield from _properties(first)
    elif node["type"] in _SHARE_SCOPE:
        for child in children:
            yield from _properties(child)
    elif node["type"] in _FIRST_HAS_SCOPE and children:
        yield from _properties(children[0])
