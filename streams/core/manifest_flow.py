"""The expressions and gates of a trigger, as its table declares them.

    filter = "event.payload.action == 'opened'"          # JMESPath
    when = "cel:event.payload.number > 10"
    rate_limit = { key = "event.tenant_id", period = "1m", max = 100 }
    concurrency = { key = "event.tenant_id", max = 2 }
    priority = { key = "event.payload.plan", order = ["gold", "silver"] }

Durations become milliseconds; expressions are compiled here, so that a bad one is refused at load.

Source: SEMANTICS 1.4, 1.5, 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.core.flow import CEL_PREFIX
from streams.core.handler_uri import parse_handler
from streams.core.manifest_durations import read_duration
from streams.core.manifest_place import Place
from streams.core.manifest_table import (
    Field,
    Read,
    given_fields,
    read_choice,
    read_integer,
    read_table,
    read_texts,
    table_of,
)
from streams.core.suggestion import no_export
from streams.core.worker_queue import PRIORITIES

__all__ = ["FLOW_FIELDS", "flow_rules", "read_concurrency"]

_COUNT_MAX = 1_000_000
_BATCH_SIZE_MAX = 1_000
_WINDOW_MAX = 10_000


def read_cel(value: object, place: Place) -> str:
    """Take a CEL expression."""
    if not isinstance(value, str):
        place.expected(value, "a CEL expression such as 'event.tenant_id'")
        return ""
    problem = None if place.expressions is None else place.expressions.cel_problem(value)
    if problem is not None:
        place.refuse(f"is {value!r}, which is no CEL expression over an event: {problem}")
    return value


def read_jmespath(value: object, place: Place) -> str:
    """Take a JMESPath expression."""
    if not isinstance(value, str):
        place.expected(value, "a JMESPath expression such as 'event.payload.id'")
        return ""
    problem = None if place.expressions is None else place.expressions.jmespath_problem(value)
    if problem is not None:
        place.refuse(f"is {value!r}, which is no JMESPath expression over an event: {problem}")
    return value


_PREDICATE = "a function, as 'fn' or 'module::fn', or 'cel:' and an expression"


def read_when(value: object, place: Place) -> str:
    """Take a predicate: `cel:` and an expression, or a function as `handler` names it."""
    if not isinstance(value, str):
        place.expected(value, _PREDICATE)
        return ""
    if value.startswith(CEL_PREFIX):
        read_cel(value.removeprefix(CEL_PREFIX), place)
        return value
    try:
        if parse_handler(value).kind != "local":
            place.expected(value, _PREDICATE)
    except ValueError as error:
        place.refuse(f"{error}: expected {_PREDICATE}")
        return ""
    return value.strip()


def _when_is_exported(when: str, exports: Mapping[str, str], place: Place) -> None:
    if not when or when.startswith(CEL_PREFIX):
        return
    module = parse_handler(when).module
    if module and module not in exports:
        place.field("when").refuse(f"is {when!r}, but {no_export(module, exports)}")


def _read_flag(value: object, place: Place) -> bool:
    if not isinstance(value, bool):
        place.expected(value, "true or false")
        return False
    return value


def _gate(*fields: Field, renamed: Mapping[str, str] | None = None) -> Read:
    """Return what reads a gate's table; durations are kept under a name that says milliseconds."""
    names = renamed or {}

    def read(value: object, place: Place) -> dict[str, Any]:
        table = table_of(value, place)
        values = read_table({} if table is None else table, fields, place)
        given = given_fields(values, fields)
        return {names.get(name, name): each for name, each in given.items()}

    return read


_KEY = Field(name="key", read=read_cel)
_NEEDED_KEY = Field(name="key", read=read_cel, required=True, default="")
_PERIOD = Field(name="period", read=read_duration, required=True, default=0)
_WINDOW_LIMIT = Field(name="max", read=read_integer(1, _WINDOW_MAX), required=True, default=0)
_LIMIT = Field(name="max", read=read_integer(1, _COUNT_MAX), required=True, default=0)
_ON_RETRY = Field(name="release_on_retry", read=_read_flag, default=False)

_read_batch = _gate(
    _KEY,
    Field(name="size", read=read_integer(1, _BATCH_SIZE_MAX), required=True, default=0),
    Field(name="timeout", read=read_duration, required=True, default=0),
    renamed={"timeout": "timeout_ms"},
)
_read_debounce = _gate(
    _NEEDED_KEY,
    _PERIOD,
    Field(name="max_wait", read=read_duration),
    renamed={"period": "period_ms", "max_wait": "max_wait_ms"},
)
_read_window = _gate(_KEY, _PERIOD, _WINDOW_LIMIT, renamed={"period": "period_ms"})
_read_singleton = _gate(_KEY, _ON_RETRY)
read_concurrency = _gate(_KEY, _LIMIT, _ON_RETRY)
_read_priority_table = _gate(_NEEDED_KEY, Field(name="order", read=read_texts, required=True))


def _read_priority(value: object, place: Place) -> dict[str, Any] | str:
    """Take a queue's priority as a text, or a table that orders the waiters of concurrency."""
    if isinstance(value, str):
        return read_choice(*PRIORITIES)(value, place)
    priority = _read_priority_table(value, place)
    if priority.get("order") == []:
        place.field("order").refuse("is empty, expected at least one value")
    return priority


FLOW_FIELDS: tuple[Field, ...] = (
    Field(name="filter", read=read_jmespath),
    Field(name="dedupe_key", read=read_jmespath),
    Field(name="when", read=read_when),
    Field(name="batch", read=_read_batch),
    Field(name="debounce", read=_read_debounce),
    Field(name="rate_limit", read=_read_window),
    Field(name="throttle", read=_read_window),
    Field(name="singleton", read=_read_singleton),
    Field(name="concurrency", read=read_concurrency),
    Field(name="priority", read=_read_priority),
    Field(name="max_waiting", read=read_integer(1, _COUNT_MAX)),
    Field(name="circuit", read=read_choice("park", "dlq", "off"), default="park"),
    Field(name="circuit_max_park", read=read_duration),
)
"""The keys of a trigger that this module reads."""


def flow_rules(values: Mapping[str, Any], exports: Mapping[str, str], place: Place) -> None:
    """What holds between gates: batch stands alone, priority needs concurrency."""
    _when_is_exported(values["when"] or "", exports, place)
    if values["circuit"] != "park" and values["circuit_max_park"] is not None:
        problem = f"bounds parking, but circuit is {values['circuit']!r}"
        place.field("circuit_max_park").refuse(problem)
    ordered = isinstance(values["priority"], dict)
    if ordered and values["concurrency"] is None:
        place.field("priority").refuse("orders the waiters of concurrency, which is not declared")
    if values["batch"] is None:
        return
    others = ["debounce", "rate_limit", "throttle", "singleton", "concurrency"]
    others += ["priority"] if ordered else []
    together = [gate for gate in others if values[gate] is not None]
    if together:
        place.field("batch").refuse(f"stands alone: it cannot be combined with {together[0]}")
    waiting_max: int | None = values["max_waiting"]
    size: int = values["batch"].get("size", 0)
    if waiting_max is not None and size > waiting_max:
        # The gate would be full before the batch is, and what comes then be dead-lettered.
        stands = f"is {size}, expected at most max_waiting, which is {waiting_max}"
        place.field("batch").field("size").refuse(stands)
