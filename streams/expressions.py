"""CEL and JMESPath over events: deterministic, without side effects, bounded.

The CEL library copies its whole context at each evaluation.  So a plain chain of properties, which
most keys are, is walked without it; comparisons of such chains with texts and whole numbers, which
most predicates are, are made without it as long as the types agree; and any other expression is
given only the properties that it names.

Bounds: 1,024 characters; JMESPath of a hundred levels and a million steps; one comprehension at
most, and one that costs more than the event's size only as far as `streams.expression_cost` says;
regular expressions are the library's, which are linear.  Names that no event has, and functions
that there are none of, are a problem at load: see `streams.expression_names` and
`streams.expression_functions`.

Source: FINDINGS 0 on CEL; DESIGN 7, "Expressions".
"""

from __future__ import annotations

import operator
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from jmespath.exceptions import JMESPathError

from streams.cel_program import compile_cel
from streams.core.event_json import payload_of
from streams.core.expression import CHARS_MAX, Failed
from streams.core.wire import TriggerEvent
from streams.expression_cost import is_costly, refusal
from streams.expression_functions import cel_functions_problem, jmespath_functions_problem
from streams.expression_names import MACROS, Seen, cel_names_problem, jmespath_names_problem
from streams.jmespath_program import Program, compile_jmespath

_PROGRAMS_MAX = 4_096
_REASON_CHARS_MAX = 200
_CHAIN = re.compile(r"event(\.[A-Za-z_][A-Za-z0-9_]*)+")
_COMPREHENSION = re.compile(rf"\.\s*(?:{MACROS})\s*\(")
_COMMENT = re.compile(r"//[^\n]*")
_COMPARISON = re.compile(
    r"\s*(event(?:\.[A-Za-z_][A-Za-z0-9_]*)+)\s*(==|!=|<=|>=|<|>)\s*"
    r"(?:'([^'\\\r\n]*)'|\"([^\"\\\r\n]*)\"|(-?[0-9]{1,15}))\s*"
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_INT64 = 1 << 63
_MENTIONED = re.compile(r"(?<![\w.])event((?:\s*\.\s*[A-Za-z_][A-Za-z0-9_]*)*)(\s*\()?")
_PLAIN = frozenset({"id", "kind", "provider", "tenant_id", "dedupe_key", "headers"})
"""Properties of an event that are the same in the document, which has to be made."""

_PAYLOAD = frozenset({"payload", "provider_payload"})
"""Names of what the payload's text holds."""

_KEYWORDS = frozenset({"in", "true", "false", "null"})

_Program = Callable[[TriggerEvent], Any]
_Comparison = tuple[list[str], Callable[[Any, Any], bool], str | int]
"""Names of a chain, what compares, and the literal."""


class ExpressionSet:
    """Implements `streams.core.expression.Expressions`."""

    def __init__(self) -> None:
        self._cel: OrderedDict[str, _Program] = OrderedDict()
        self._jmespath: OrderedDict[str, _Program] = OrderedDict()
        self._last: tuple[TriggerEvent | None, dict[str, Any]] = (None, {})
        self._last_payload: tuple[TriggerEvent | None, Any] = (None, None)

    def cel(self, source: str, event: TriggerEvent, /) -> Any:  # noqa: ANN401 - see the protocol
        """See `Expressions.cel`."""
        return _evaluate(self._kept(self._cel, source, self._compile_cel), event)

    def jmespath(self, source: str, event: TriggerEvent, /) -> Any:  # noqa: ANN401 - see the protocol
        """See `Expressions.jmespath`."""
        return _evaluate(self._kept(self._jmespath, source, self._compile_jmespath), event)

    def cel_problem(self, source: str, /) -> str | None:
        """See `Expressions.cel_problem`."""
        problem = _problem(source, self._compile_cel)
        return problem or cel_functions_problem(source) or cel_names_problem(source)

    def jmespath_problem(self, source: str, /) -> str | None:
        """See `Expressions.jmespath_problem`."""
        problem = _problem(source, compile_jmespath)
        return problem or jmespath_functions_problem(source) or jmespath_names_problem(source)

    # ------------------------------------------------------------------ compiling
    @staticmethod
    def _kept(
        programs: OrderedDict[str, _Program], source: str, compile_: Callable[[str], _Program]
    ) -> _Program:
        program = programs.get(source)
        if program is None:
            program = programs[source] = compile_(source)
            if len(programs) > _PROGRAMS_MAX:
                programs.popitem(last=False)
        return program

    def _compile_cel(self, source: str) -> _Program:
        if _is_chain(source):
            return self._chain(source.split(".")[1:])
        execute = _bounded_cel(source).execute
        paths, costly = _paths_in(source), is_costly(source)

        def by_library(event: TriggerEvent) -> Any:  # noqa: ANN401 - any JSON value
            given = _pruned(self._document(event), paths)
            refused = refusal(given) if costly else None
            return refused or execute({"event": given})

        comparisons = _comparisons_in(source)
        return self._conjunction(comparisons, by_library) if comparisons else by_library

    def _conjunction(self, comparisons: list[_Comparison], by_library: _Program) -> _Program:
        """Return what compares while the types agree, and leaves everything else to the library."""
        terms = [(self._chain(names), compare, value) for names, compare, value in comparisons]

        def holds(event: TriggerEvent) -> Any:  # noqa: ANN401 - any JSON value
            for walk, compare, value in terms:
                found = walk(event)
                if type(found) is not type(value):
                    return by_library(event)
                if type(found) is int and not -_INT64 <= found < _INT64:
                    return by_library(event)
                if not compare(found, value):
                    return False
            return True

        return holds

    def _chain(self, names: list[str]) -> _Program:
        first = names[0]
        within = names[1:] if first in _PAYLOAD else names

        def walk(event: TriggerEvent) -> Any:  # noqa: ANN401 - any JSON value
            found: Any
            if first in _PAYLOAD:
                found = self._payload(event)
            else:
                found = event if first in _PLAIN else self._document(event)
            for name in within:
                if not isinstance(found, dict) or name not in found:
                    return None
                found = found[name]
            return found

        return walk

    def _compile_jmespath(self, source: str) -> _Program:
        program = Program(source)
        return lambda event: program.search({"event": self._document(event)})

    def _payload(self, event: TriggerEvent) -> Any:  # noqa: ANN401 - any JSON value
        """What the event's payload holds; the last one is kept: most keys are a property of it."""
        known, payload = self._last_payload
        if known is not event:
            payload = payload_of(event)
            self._last_payload = event, payload
        return payload

    def _document(self, event: TriggerEvent) -> dict[str, Any]:
        """The event as expressions see it; the last one is kept: several look at one event."""
        known, document = self._last
        if known is not event:
            payload = self._payload(event)
            document = {**event, "payload": payload, "provider_payload": payload}
            del document["raw_body"]
            self._last = event, document
        return document


def _is_chain(source: str) -> bool:
    return _CHAIN.fullmatch(source) is not None and not _KEYWORDS & set(source.split("."))


def _comparisons_in(source: str) -> list[_Comparison]:
    """Return the comparisons that a CEL text is the conjunction of; empty when it is another one.

    Texts are compared for equality only.
    """
    found: list[_Comparison] = []
    at = 0
    while True:
        term = _COMPARISON.match(source, at)
        if term is None or not _is_chain(term[1]):
            return []
        chain, sign, single, double, number = term.groups()
        text = single if single is not None else double
        if text is not None and sign not in ("==", "!="):
            return []
        value = int(number) if text is None else text
        found.append((chain.split(".")[1:], _COMPARE[sign], value))
        at = term.end()
        if at == len(source):
            return found
        if not source.startswith("&&", at):
            return []
        at += 2


def _paths_in(source: str) -> list[list[str]]:
    """Return the chains of properties of `event` that a CEL text mentions, the calls left out.

    One that is empty stands for the whole event.
    """
    paths: list[list[str]] = []
    for mention in _MENTIONED.finditer(source):
        names = re.findall(r"[A-Za-z_][A-Za-z0-9_]*", mention[1])
        paths.append(names[:-1] if mention[2] else names)
    return paths


def _pruned(document: dict[str, Any], paths: list[list[str]]) -> dict[str, Any]:
    """Return what is left of a document without the properties that no path leads to or through."""
    pruned: dict[str, Any] = {}
    for path in paths:
        if not path:
            return document
        place, found = pruned, document
        for name in path[:-1]:
            value = found.get(name)
            if type(value) is not dict or place.get(name) is value:  # another path ends there
                break
            place = place.setdefault(name, {})
            found = value
        else:
            name = path[-1]
        if name in found:
            place[name] = found[name]
    return pruned


class Where:
    """A condition in CEL over documents: what operators choose records with.

    Args:   seen: names of a document, and the properties that each has.
    Raises: ValueError that says what is wrong with the source.
    """

    def __init__(self, source: str, seen: Seen) -> None:
        problem = (
            _problem(source, lambda text: _bounded_cel(text).execute)
            or cel_functions_problem(source)
            or cel_names_problem(source, seen)
        )
        if problem is not None:
            raise ValueError(problem)
        self.source = source
        self._execute = _bounded_cel(source).execute

    def verdict(self, document: Mapping[str, Any], /) -> bool | Failed:
        """Whether the condition holds of a document; what is missing does not hold."""
        value = _evaluate(self._execute, document)
        if value is None or isinstance(value, bool | Failed):
            return value or False
        return Failed(f"expected true or false, found {type(value).__name__}")


def event_document(event: TriggerEvent, /) -> dict[str, Any]:
    """Return an event as expressions see it; a payload that is no JSON stays a text."""
    try:
        payload = payload_of(event)
    except ValueError:
        payload = event["provider_payload"]
    document = {**event, "payload": payload, "provider_payload": payload}
    del document["raw_body"]
    return document


def _bounded_cel(source: str) -> Any:  # noqa: ANN401 - the library's program, which it does not type
    # Between a dot and a name there may be a comment; what looks like one may be part of a text.
    if any(len(_COMPREHENSION.findall(text)) > 1 for text in (source, _COMMENT.sub("", source))):
        message = f"has more than one of {', '.join(MACROS.split('|'))}"
        raise ValueError(message)
    return compile_cel(source)


def _evaluate(program: Callable[[Any], Any], event: Any) -> Any:  # noqa: ANN401 - see the protocol
    """Run a program over what a sender wrote, on which a library may fail in any way."""
    try:
        return program(event)
    except LookupError:
        return None  # a missing property, or an item beyond the end of a list
    except Exception as error:  # noqa: BLE001 - see above
        return _failed(error)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the CEL library's, which is no Exception
            raise
        return _failed(error)


def _failed(error: BaseException) -> Failed:
    reason = str(error)[:_REASON_CHARS_MAX].encode(errors="backslashreplace").decode()
    return Failed(f"{type(error).__name__}: {reason}")


def _problem(source: str, compile_: Callable[[str], object]) -> str | None:
    if len(source) > CHARS_MAX:
        return f"has {len(source)} characters, expected at most {CHARS_MAX}"
    if not source.strip():
        return "is empty"
    try:
        compile_(source)
    except (ValueError, TypeError, JMESPathError) as error:
        return what_is_wrong(error)
    return None


def what_is_wrong(error: Exception) -> str:
    """Return what a parser says in one line; some go on with the expression, and point at it."""
    first = str(error).splitlines()[0][:300]
    return first.rstrip(": ").removesuffix(", for expression")


EXPRESSIONS = ExpressionSet()
"""The one that every stage uses: what it keeps is a cache."""
