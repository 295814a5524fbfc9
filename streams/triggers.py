"""Triggers declared in Python, beside those of a manifest.

    from streams.triggers import trigger

    @trigger(id="nightly", kind="cron", provider="cron", match={}, schedule="0 3 * * *")
    def nightly(event):
        ...

Functions of a manifest's exports that are marked so are registered by `harn trigger register`, and
by whoever serves the manifest.  A program registers one by itself, and may take it back:

    registered = trigger_register({"kind": "webhook", "provider": "github", "match": {},
                                   "handler": nightly})
    registered.deregister()

A declaration holds the keys of a `[[triggers]]` table, and obeys the same rules.  An id is
registered once: to change a trigger, deregister it and register another.  Applying a manifest never
touches what is registered here.  In async code call these in a thread: they wait for the registry.

Source: SEMANTICS 1.8, "Dynamic registration".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from streams.core.manifest import Manifest
from streams.core.wire import BindingDefinition
from streams.edge.codecs import codec_of
from streams.edge.handlers import MANIFEST_NAME, Handlers, load_manifest
from streams.edge.registrar import drain_trigger, dynamic_binding, register_trigger
from streams.edge.registry_request import ANSWER_S
from streams.edge.registry_view import RegistryView, read_registry
from streams.errors import ManifestError
from streams.path_kind import is_folder
from streams.settings import Settings

__all__ = [
    "RegisteredTrigger",
    "Registration",
    "declared_triggers",
    "register_declared",
    "trigger",
    "trigger_deregister",
    "trigger_register",
]

_MARK = "__harn_triggers__"

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class RegisteredTrigger:
    """A trigger in force: `binding_key` is `<trigger id>@v<version>`.

    `broadcast` says that every mailbox knows it: an event sent now meets it.
    """

    trigger_id: str
    binding_key: str
    revision: int
    broadcast: bool
    settings: Settings

    def deregister(self) -> None:
        """Take it out of force: it takes no new event, and ends with what it has."""
        trigger_deregister(self.trigger_id, settings=self.settings)


@dataclass(frozen=True, slots=True)
class Registration:
    """What became of one declared trigger: registered now, or in force already."""

    trigger_id: str
    binding_key: str
    is_new: bool


def trigger(**declaration: Any) -> Callable[[_Function], _Function]:  # noqa: ANN401 - a table
    """Mark a function as the handler of a trigger; it may be marked several times.

    Args:   declaration: the keys of a `[[triggers]]` table besides `handler`; `id` is needed.
    Raises: ManifestError when `id` is left out, or `handler` is given.
    """
    if "handler" in declaration:
        raise ManifestError("@trigger marks its handler: leave `handler` out")
    if not isinstance(declaration.get("id"), str):
        raise ManifestError("@trigger needs an id: it must be the same whenever it is registered")

    def mark(function: _Function) -> _Function:
        marks: list[dict[str, Any]] = [*getattr(function, _MARK, ()), declaration]
        setattr(function, _MARK, marks)
        return function

    return mark


def declared_triggers(module: ModuleType) -> Iterator[dict[str, Any]]:
    """Yield the declarations of a module's own functions, with their handlers, in order."""
    for value in list(vars(module).values()):
        if callable(value) and getattr(value, "__module__", None) == module.__name__:
            for declaration in getattr(value, _MARK, ()):
                yield {**declaration, "handler": value}


def trigger_register(
    declaration: Mapping[str, Any],
    *,
    manifest: str | Path = MANIFEST_NAME,
    settings: Settings | None = None,
    timeout_s: float = ANSWER_S,
) -> RegisteredTrigger:
    """Put one trigger in force.  Blocks until every mailbox knows it.

    Args:    declaration: the keys of a `[[triggers]]` table; `handler` may be the function itself;
             without an `id` one is made.
             manifest: whose exports hold the handler; invokers must have loaded it.
             settings: where the cluster is; by default the environment's.
    Raises:  ManifestError with every problem, or when the id exists; TopologyError, BrokerError.
    """
    settings = Settings.from_env() if settings is None else settings
    path = _path(manifest)
    modules = Handlers.load(_without_triggers(path), whole=True).exported
    return _register(settings, dynamic_binding(declaration, path, modules), timeout_s)


def _register(
    settings: Settings, binding: BindingDefinition, timeout_s: float
) -> RegisteredTrigger:
    answer = register_trigger(settings, binding, timeout_s=timeout_s)
    return RegisteredTrigger(
        trigger_id=binding["trigger_id"],
        binding_key=answer.added[0],
        revision=answer.revision,
        broadcast=answer.broadcast,
        settings=settings,
    )


def _path(manifest: str | Path) -> Path:
    path = Path(manifest)
    return path / MANIFEST_NAME if is_folder(path) else path


def _without_triggers(path: Path) -> Manifest:
    """Return a manifest whose own triggers need not be loaded here."""
    return replace(load_manifest(path), bindings=(), tables=())


def trigger_deregister(
    trigger_id: str, *, settings: Settings | None = None, timeout_s: float = ANSWER_S
) -> None:
    """Take a registered trigger out of force; one that drains already is left to it.

    Raises: ManifestError when nobody registered such a trigger; TopologyError, BrokerError.
    """
    settings = Settings.from_env() if settings is None else settings
    drain_trigger(settings, trigger_id, dynamic_only=True, timeout_s=timeout_s)


def register_declared(
    settings: Settings, manifest: str | Path = MANIFEST_NAME, *, timeout_s: float = ANSWER_S
) -> list[Registration]:
    """Register what the functions of a manifest's exports are marked with, unless it is in force.

    Raises: ManifestError with every problem, before anything is registered, also when an id is in
            force with another definition or has been deregistered; TopologyError, BrokerError.
    """
    path = _path(manifest)
    modules = Handlers.load(_without_triggers(path), whole=True).exported
    declared = [each for module in modules.values() for each in declared_triggers(module)]
    bindings = [dynamic_binding(each, path, modules) for each in declared]
    if not bindings:
        return []
    view = read_registry(settings, codec_of(settings))
    known = [_known(view, binding) for binding in bindings]
    problems = [found for found in known if isinstance(found, ManifestError)]
    if problems:
        raise ManifestError([str(problem) for problem in problems])
    registered: list[Registration] = []
    for binding, found in zip(bindings, known, strict=True):
        key = (
            found if isinstance(found, str) else _register(settings, binding, timeout_s).binding_key
        )
        registered.append(Registration(binding["trigger_id"], key, is_new=found is None))
    return registered


def _known(view: RegistryView, binding: BindingDefinition) -> str | ManifestError | None:
    """Return the key under which a binding is in force, None when its id is new, or a problem."""
    trigger_id = binding["trigger_id"]
    rows = [row for row in view.rows if row["binding"]["trigger_id"] == trigger_id]
    if not rows:
        return None
    newest = rows[-1]
    same = newest["binding"]["fingerprint"] == binding["fingerprint"]
    if same and newest["state"] == "active" and newest["source"] == "dynamic":
        return newest["binding"]["binding_key"]
    state, key = newest["state"], newest["binding"]["binding_key"]
    why = f"{key} is {state}" + ("" if same else " with another definition")
    return ManifestError(f"trigger {trigger_id!r} exists already: {why}; give it another id")
