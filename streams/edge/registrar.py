"""Register triggers one by one, beside manifests, and drain them.

A registered trigger obeys the rules of a manifest's triggers.  Its handler is a function of a
module that the manifest exports, so that every invoker which loads the manifest has it.

Source: SEMANTICS 1.8, "Dynamic registration"; DESIGN "Registry".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from streams.core.handler_uri import DEFAULT_MODULE
from streams.core.manifest import Manifest, parse_manifest
from streams.core.wire import BindingDefinition, TriggerDrainRequested, TriggerRegistered
from streams.edge.codecs import codec_of
from streams.edge.handlers import Handlers, read_manifest
from streams.edge.ingest.trace import new_uuid
from streams.edge.registry_request import ANSWER_S, RegistryAnswer, ask_registry, who
from streams.errors import ManifestError
from streams.expressions import EXPRESSIONS
from streams.provision import provision_bindings
from streams.schedules import CALENDAR
from streams.settings import Settings

__all__ = ["drain_trigger", "dynamic_binding", "register_trigger"]

# What only a manifest can say, since invokers read it there.
_MANIFESTS_ALONE = ("executor", "sources")


def dynamic_binding(
    declaration: Mapping[str, Any], manifest: Path, modules: Mapping[str, ModuleType]
) -> BindingDefinition:
    """Make a binding of a declaration, which holds the keys of a `[[triggers]]` table.

    Args:    declaration: `handler` may be a function; without an `id` one is made.
             manifest: whose exports and `[orchestrator]` count.
             modules: the manifest's exports, imported, by name.
    Raises:  ManifestError that lists every problem.
    """
    problems = [
        f"{key} is for a manifest's triggers" for key in _MANIFESTS_ALONE if key in declaration
    ]
    if problems:
        raise ManifestError([f"{manifest}: a trigger registered by itself: {p}" for p in problems])
    table: dict[str, Any] = {"id": f"dynamic_trigger_{new_uuid()}", **declaration}
    handler = table.get("handler")
    if callable(handler):
        table["handler"] = _reference(handler, manifest, modules)
    document = {**read_manifest(manifest), "triggers": [table]}
    found = parse_manifest(document, f"{manifest}: registered", EXPRESSIONS, CALENDAR)
    if not isinstance(found, Manifest):
        raise ManifestError(found)
    [binding] = found.bindings
    Handlers.load(
        Manifest(
            file=str(manifest),
            namespace=found.namespace,
            exports=found.exports,
            bindings=(binding,),
            tables=found.tables,
        )
    )
    return binding


def _reference(
    function: Callable[..., Any], manifest: Path, modules: Mapping[str, ModuleType]
) -> str:
    """Return the reference under which invokers find a function."""
    name = getattr(function, "__name__", "")
    for export, module in sorted(modules.items()):
        if name and getattr(module, name, None) is function:
            return name if export == DEFAULT_MODULE else f"{export}::{name}"
    raise ManifestError(
        f"{manifest}: handler {name or function!r} of module {function.__module__!r} is in no "
        "export: name its module in [exports]"
    )


def register_trigger(
    settings: Settings, binding: BindingDefinition, *, timeout_s: float = ANSWER_S
) -> RegistryAnswer:
    """Put a binding in force whose id is new.  Blocks; call it in a thread.

    Raises: ManifestError when the registry refuses it; TopologyError, BrokerError.
    """
    codec = codec_of(settings)
    request: TriggerRegistered = {
        "request_id": f"register_{new_uuid()}",
        "namespace": binding["namespace"],
        "binding": binding,
        "registered_by": who(),
    }
    value = codec.encode("trigger_registered", request)
    provision_bindings(settings, [binding])  # folds write only to topics that exist
    answer = ask_registry(
        settings,
        codec,
        "trigger_registered",
        value,
        key=binding["namespace"],
        request_id=request["request_id"],
        what="registration",
        timeout_s=timeout_s,
    )
    if answer.answer == "invalid":
        raise ManifestError(f"trigger {binding['trigger_id']!r} is refused: {answer.reason}")
    return answer


def drain_trigger(
    settings: Settings,
    trigger_id: str,
    *,
    dynamic_only: bool = False,
    timeout_s: float = ANSWER_S,
) -> RegistryAnswer:
    """Let a trigger take no new event, and end once it has finished what it has.  Blocks.

    Args:    dynamic_only: leave a trigger alone that a manifest holds.
    Raises:  ManifestError when there is no such trigger, or a manifest's is to be left alone;
             TopologyError, BrokerError.
    """
    codec = codec_of(settings)
    request: TriggerDrainRequested = {
        "request_id": f"drain_{new_uuid()}",
        "trigger_id": trigger_id,
        "dynamic_only": dynamic_only,
        "requested_by": who(),
    }
    answer = ask_registry(
        settings,
        codec,
        "trigger_drain_requested",
        codec.encode("trigger_drain_requested", request),
        key=trigger_id,
        request_id=request["request_id"],
        what="drain",
        timeout_s=timeout_s,
    )
    if answer.answer == "invalid":
        raise ManifestError(answer.reason)
    return answer
