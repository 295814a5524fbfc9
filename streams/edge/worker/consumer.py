"""A consumer manifest: what runs the job of a trigger, and which gates its owner declares.

A job names the trigger that enqueued it; whoever drains the queue has a trigger of the same id with
a handler of its own.  The version of the binding that enqueued it is of no account.

Source: seed worker-dispatch, "Producer / consumer split"; SEMANTICS 5.4; DESIGN "Registry".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from streams.core.flow import CEL_PREFIX, GATES, flow_of
from streams.core.intake_plan import plan_of
from streams.core.manifest import Manifest, canonical_json
from streams.core.wire import BindingDefinition, ConsumerGates
from streams.edge.handlers import Handlers, load_manifest
from streams.edge.invoker.seams import HandlerSource
from streams.edge.worker.unused_keys import unused_keys
from streams.errors import ManifestError
from streams.handler_api import Handler

__all__ = ["Consumer", "Resolved"]

_GATE_FIELDS = (*GATES, "priority", "max_waiting")
_DIGEST_BYTES = 16


class Resolved(NamedTuple):
    """What runs the jobs of a trigger."""

    handler: Handler
    timeout_ms: int | None
    predicate: Handler | None
    """A function that decides whether the handler runs."""
    predicate_timeout_ms: int | None
    cel: str | None
    """An expression that decides it."""
    gate_keys: tuple[tuple[str, str | None], ...] = ()
    """Key expressions of its gates, and of its priority, by name; empty when it has no gate."""


class Consumer:
    """The triggers of one consumer manifest, by id."""

    def __init__(self, bindings: Sequence[BindingDefinition], handlers: HandlerSource) -> None:
        self._found = {each["trigger_id"]: _resolve(each, handlers) for each in bindings}
        self.gates: list[ConsumerGates] = sorted(
            (gates for each in bindings if (gates := _gates(each)) is not None),
            key=lambda gates: gates["trigger_id"],
        )

    @classmethod
    def load(cls, path: Path) -> Consumer:
        """Read the manifest at `path` and import what it exports.

        Raises: ManifestError that lists every problem.
        """
        manifest: Manifest = load_manifest(path)
        found = cls(manifest.bindings, Handlers.load(manifest))
        problems = list(unused_keys(manifest))
        if problems:
            raise ManifestError(problems)
        return found

    def resolve(self, trigger_id: str, /) -> Resolved | str:
        """Return what runs a trigger's jobs, or say why nothing does."""
        found = self._found.get(trigger_id)
        if found is None:
            return (
                f"failed to resolve consumer binding {trigger_id!r}: "
                "the consumer manifest has no trigger of that id"
            )
        return found

    def __len__(self) -> int:
        return len(self._found)

    @cached_property
    def digest(self) -> str:
        """Return the digest of the gates: equal gates have equal ones."""
        text = canonical_json(self.gates)
        return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _resolve(binding: BindingDefinition, handlers: HandlerSource) -> Resolved | str:
    trigger_id, kind = binding["trigger_id"], binding["handler_kind"]
    if kind == "worker":
        return (
            f"consumer binding {trigger_id!r} has the handler {binding['target_uri']}: "
            "a drain needs a non-worker binding"
        )
    handler = handlers.resolve(binding["handler"], trigger_id) if kind == "local" else None
    if handler is None:
        return (
            f"failed to resolve consumer binding {trigger_id!r}: its handler "
            f"{binding['target_uri']!r} is no function of this manifest"
        )
    flow = flow_of(binding)
    predicate = None
    if flow.function is not None:
        predicate = handlers.resolve(flow.function, trigger_id)
        if predicate is None:
            return (
                f"failed to resolve consumer binding {trigger_id!r}: its predicate "
                f"{flow.function!r} is no function of this manifest"
            )
    cel = None if flow.when is None else flow.when.removeprefix(CEL_PREFIX)
    plan = plan_of(binding)
    keys = plan.keys if plan.gated else ()
    return Resolved(handler, flow.timeout_ms, predicate, flow.function_timeout_ms, cel, keys)


def _gates(binding: BindingDefinition) -> ConsumerGates | None:
    """Return the gates that a trigger declares, for the scheduler; None when there are none."""
    table: dict[str, Any] = json.loads(binding["definition"])
    declared = {name: table[name] for name in _GATE_FIELDS if name in table}
    if not any(gate in declared for gate in GATES):
        return None
    return {"trigger_id": binding["trigger_id"], "definition": canonical_json(declared)}
