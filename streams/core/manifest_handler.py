"""How a trigger's handler is run, as its table declares it: where, and how long at most.

    [orchestrator]
    pumps = { max_outstanding = 320 }   # invocations that may be before each invoker

    executor = "process"      # or "thread", "async"; what the handler is decides when left out
    timeout = "30s"           # of each attempt

Whether a function fits its executor is seen when handlers are loaded; here it is only read.

Source: seed trigger-dispatcher, "Handler URI resolution"; SEMANTICS 1.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.core.bounds import DURATION_MS_MAX
from streams.core.handler_uri import HandlerUri
from streams.core.manifest_durations import read_timing
from streams.core.manifest_place import Place
from streams.core.manifest_table import (
    Field,
    read_choice,
    read_integer,
    read_table,
    table_of,
)

__all__ = ["HANDLER_FIELDS", "handler_definition", "handler_rules", "read_pumps"]

_OUTSTANDING_MAX = 1_000_000
_PUMPS = (Field(name="max_outstanding", read=read_integer(1, _OUTSTANDING_MAX)),)

HANDLER_FIELDS: tuple[Field, ...] = (
    Field(name="executor", read=read_choice("async", "thread", "process")),
    Field(name="timeout", read=read_timing(DURATION_MS_MAX, "366 days")),
)
"""The keys of a trigger that this module reads."""


def read_pumps(value: object, place: Place) -> dict[str, Any]:
    """Take what a manifest says of the pump."""
    table = table_of(value, place)
    return {} if table is None else read_table(table, _PUMPS, place)


def handler_rules(values: Mapping[str, Any], _exports: Mapping[str, str], place: Place) -> None:
    """What holds between keys: only a function of ours has an executor and a timeout."""
    handler: HandlerUri | None = values["handler"]
    if handler is None or handler.kind == "local":
        return
    for field in HANDLER_FIELDS:
        if values[field.name] is not None:
            place.field(field.name).refuse(f"is for functions, and the handler is {handler.uri!r}")


def handler_definition(definition: dict[str, Any]) -> dict[str, Any]:
    """Return a definition whose timeout is named with its unit."""
    if "timeout" not in definition:
        return definition
    return {
        "timeout_ms" if name == "timeout" else name: value for name, value in definition.items()
    }
