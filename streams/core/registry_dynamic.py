"""Triggers that no manifest holds: registered and drained one by one.

| request | answer |
|---|---|
| `trigger_registered`, breaks a rule or the id exists in any state | `apply_answered` invalid |
| `trigger_registered` | `revision_published` with its first version, `dynamic` |
| `trigger_drain_requested`, no such trigger, or a manifest's where only others may go | invalid |
| `trigger_drain_requested`, takes no new event already | `apply_answered` unchanged |
| `trigger_drain_requested` | `revision_published` that drains it |

Manifests of the namespace leave a dynamic trigger alone.  A drained trigger that a manifest holds
comes back when that manifest is applied again.

Source: SEMANTICS 1.8, "Dynamic registration".
"""

from __future__ import annotations

from streams.core import bounds
from streams.core.record import Record, Rejection
from streams.core.registry_moves import Request, answer, publish, registered, versioned
from streams.core.state import Answer, State
from streams.core.webhook import route_problem
from streams.core.wire import (
    BindingDefinition,
    RowRegisteredBinding,
    TriggerDrainRequested,
    TriggerRegistered,
)

DYNAMIC = "dynamic"


def on_trigger_registered(state: State, record: Record, /) -> Answer:
    """Put a trigger in force whose id is new."""
    asked: TriggerRegistered = record.value
    names = (("request_id", asked["request_id"]), ("namespace", asked["namespace"]))
    problem = bounds.text_problem((name, text, bounds.ID_CHARS_MAX) for name, text in names)
    if problem is not None:
        return Rejection("REG-002", problem)
    request = Request(asked["request_id"], asked["namespace"])
    binding = asked["binding"]
    problem = _problem(binding, asked["namespace"], registered(state))
    if problem is not None:
        return (answer(state, request, "invalid", problem),)
    added = versioned(binding, asked["namespace"], [])
    return publish(state, request, [added], [], source=DYNAMIC)


def _problem(
    binding: BindingDefinition, namespace: str, known: list[RowRegisteredBinding]
) -> str | None:
    problem = bounds.binding_problem(binding) or bounds.revision_problem([binding], ())
    if problem is not None:
        return problem
    for row in known:
        if row["binding"]["trigger_id"] == binding["trigger_id"]:
            found = f"{row['binding']['binding_key']} is {row['state']}"
            return f"trigger id {binding['trigger_id']!r} exists already: {found}"
    live = [row for row in known if row["source"] == DYNAMIC and row["state"] != "terminated"]
    if len(live) >= bounds.BINDINGS_MAX:
        return f"{len(live)} triggers are registered, which is the most beside manifests"
    active = [row["binding"] for row in known if row["state"] == "active"]
    return route_problem(
        [*(each for each in active if each["namespace"] == namespace), binding],
        (each for each in active if each["namespace"] != namespace),
    )


def on_trigger_drain_requested(state: State, record: Record, /) -> Answer:
    """Drain every live version of a trigger."""
    asked: TriggerDrainRequested = record.value
    names = (("request_id", asked["request_id"]), ("trigger_id", asked["trigger_id"]))
    problem = bounds.text_problem((name, text, bounds.ID_CHARS_MAX) for name, text in names)
    if problem is not None:
        return Rejection("REG-002", problem)
    trigger_id = asked["trigger_id"]
    known = [row for row in registered(state) if row["binding"]["trigger_id"] == trigger_id]
    if not known:
        request = Request(asked["request_id"], "")
        return (answer(state, request, "invalid", f"trigger {trigger_id!r} is unknown"),)
    request = Request(asked["request_id"], known[-1]["binding"]["namespace"])
    active = [row for row in known if row["state"] == "active"]
    held = [row for row in active if row["source"] != DYNAMIC]
    if held and asked["dynamic_only"]:
        namespace = held[0]["binding"]["namespace"]
        problem = f"trigger {trigger_id!r} belongs to the manifest of namespace {namespace!r}"
        return (answer(state, request, "invalid", problem),)
    if not active:
        reason = f"trigger {trigger_id!r} takes no new event already"
        return (answer(state, request, "unchanged", reason),)
    return publish(state, request, [], active, source=DYNAMIC)
