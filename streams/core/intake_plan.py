"""What the inbox evaluates for a binding: its filter, its keys, and so its home partition.

A binding's dispatches meet in one partition as far as its gates need it; a `dedupe_key` counts as a
gate:

| gates of the binding | key of its matches |
|---|---|
| none, and no `dedupe_key` | the event's id |
| none, but a `dedupe_key` | the binding's id and its value |
| all with the same key expression | the binding's id and the value |
| several expressions, or a gate without key | the binding's id: one partition for all of it |

A replay is not deduplicated: it is meant to be a repeat.

Source: DESIGN "Gate key"; SEMANTICS 3.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from streams.core.claims import KEY as DEDUPE
from streams.core.expression import Expressions, Failed, as_key, is_truth
from streams.core.flow import CEL_PREFIX, GATES
from streams.core.webhook import path_of
from streams.core.wire import BindingDefinition, TriggerEvent


@dataclass(frozen=True, slots=True)
class IntakePlan:
    """A binding's expressions.

    `keys` are CEL by gate, and `priority`; a gate without key is None.  `scope` is the expression
    that all gates share; `gated` says whether there is any gate.
    """

    filter: str | None
    when: str | None
    keys: tuple[tuple[str, str | None], ...]
    gated: bool
    scope: str | None
    path: str | None = None
    dedupe: str | None = None

    @property
    def trivial(self) -> bool:
        """Whether there is nothing to evaluate."""
        return not self.keys and (self.filter, self.when, self.dedupe) == (None, None, None)


@dataclass(frozen=True, slots=True)
class Taken:
    """An event that a binding takes: the values of its keys, and the key of its match."""

    keys: dict[str, str]
    scope: str


def plan_of(binding: BindingDefinition, /) -> IntakePlan:
    """Read the expressions out of a binding's canonical definition."""
    table: dict[str, Any] = json.loads(binding["definition"])
    gates = {gate: cast("dict[str, Any]", table[gate]) for gate in GATES if gate in table}
    keys: list[tuple[str, str | None]] = [(gate, found.get("key")) for gate, found in gates.items()]
    dedupe: str | None = table.get("dedupe_key")
    expressions = {key for _, key in keys}
    if dedupe is not None and gates:
        expressions.add(dedupe)
    shared = next(iter(expressions)) if len(expressions) == 1 else None
    priority = cast("dict[str, Any] | str | None", table.get("priority"))
    if isinstance(priority, dict):
        keys.append(("priority", priority["key"]))
    when = table.get("when")
    cel = None
    if isinstance(when, str) and when.startswith(CEL_PREFIX):
        cel = when.removeprefix(CEL_PREFIX)
    return IntakePlan(
        filter=table.get("filter"),
        when=cel,
        keys=tuple(keys),
        gated=bool(gates),
        scope=shared,
        path=path_of(table),
        dedupe=dedupe,
    )


def take(
    plan: IntakePlan,
    binding: BindingDefinition,
    event: TriggerEvent,
    expressions: Expressions,
    /,
    *,
    replay: bool = False,
) -> Taken | Failed | None:
    """Evaluate a binding's expressions over an event.

    Returns: what the binding takes; None when its filter keeps the event out; Failed when an
             expression cannot be evaluated, which the dispatch then records as its outcome.
    """
    if plan.filter is not None:
        passed = expressions.jmespath(plan.filter, event)
        if isinstance(passed, Failed):
            return Failed(f"filter: {passed.reason}")
        if not is_truth(passed):
            return None
    keys = keys_of(plan.keys, event, expressions)
    if isinstance(keys, Failed):
        return keys
    if plan.dedupe is not None and not replay:
        value = expressions.jmespath(plan.dedupe, event)
        if isinstance(value, Failed):
            return Failed(f"dedupe_key: {value.reason}")
        if not _is_blank(value):  # an event without it is nobody's repeat
            keys[DEDUPE] = as_key(value)
    if plan.when is not None:
        keys["when"] = _verdict(expressions.cel(plan.when, event))
    return Taken(keys, _scope(plan, binding, event, keys))


def _is_blank(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Whether a value says nothing: a sender's field that is not there, or is empty."""
    return value is None or (isinstance(value, str) and not value.strip())


def keys_of(
    sources: Iterable[tuple[str, str | None]], event: TriggerEvent, expressions: Expressions, /
) -> dict[str, str] | Failed:
    """Return the values of the gates' keys, and of the priority's; `sources` are CEL by name."""
    keys: dict[str, str] = {}
    for name, source in sources:
        value = "_global" if source is None else expressions.cel(source, event)
        if isinstance(value, Failed):
            return Failed(f"{name}.key: {value.reason}")
        try:
            keys[name] = as_key(value)
        except TypeError as error:
            return Failed(f"{name}.key: {error}")
    return keys


def _verdict(value: Any) -> str:  # noqa: ANN401 - any JSON value, or Failed
    """A predicate's verdict in words: true, false, or why it has none."""
    if isinstance(value, Failed):
        return f"failed: {value.reason}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"failed: expected true or false, found {type(value).__name__}"


def _scope(
    plan: IntakePlan, binding: BindingDefinition, event: TriggerEvent, keys: dict[str, str]
) -> str:
    if not plan.gated:
        value = keys.get(DEDUPE)
        return event["id"] if value is None else f"{binding['trigger_id']}:{value}"
    if plan.scope is None:
        return binding["trigger_id"]
    first_gate = plan.keys[0][0]
    return f"{binding['trigger_id']}:{keys[first_gate]}"
