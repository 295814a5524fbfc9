"""From a manifest on disk to callable handlers: all is resolved at load, nothing at dispatch.

An export is a Python file beside the manifest, or an installed module.  It is imported once; a
handler is a function of it that takes the event, or the event and the context, and a predicate is
one that answers a bool.  Whatever cannot be loaded is told at once, with the trigger that needs it.

Source: SEMANTICS 1.5, 1.7.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import tomllib
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard, cast

from streams.core.handler_uri import HandlerUri, parse_handler
from streams.core.intake_plan import CEL_PREFIX
from streams.core.manifest import Manifest, parse_manifest, table_name
from streams.core.manifest_place import shown
from streams.core.suggestion import suggestion
from streams.core.wire import BindingDefinition
from streams.edge import handler_modules
from streams.edge.handler_modules import functions_of, handler_of, import_export
from streams.errors import ManifestError
from streams.expressions import EXPRESSIONS
from streams.handler_api import Executor, Handler, Place
from streams.observe import logs
from streams.path_kind import is_file, is_folder
from streams.schedules import CALENDAR

__all__ = ["MANIFEST_NAME", "Handlers", "Loader", "load_manifest", "raised", "read_manifest"]

_LOG = logs.logger(__name__)

# References that no export has; asked for by every attempt of a trigger that names one.
_UNKNOWN_MAX = 1_000

MANIFEST_NAME = "harn.toml"
"""The file that a folder's manifest is in."""


def load_manifest(path: Path) -> Manifest:
    """Read the manifest at `path`, or `harn.toml` in the folder `path`.

    Raises ManifestError that lists every problem; handlers are not loaded (`Handlers.load`), but
    where there are other problems, those of handlers are listed as well.
    """
    path = path / MANIFEST_NAME if is_folder(path) else path
    document = read_manifest(path)
    found = parse_manifest(document, str(path), EXPRESSIONS, CALENDAR)
    if not isinstance(found, Manifest):
        raise ManifestError([*found, *_handler_problems(document, path)])
    for warning in found.warnings:
        _LOG.warning("manifest_deprecated", extra={"reason": warning})
    return found


def read_manifest(path: Path) -> dict[str, Any]:
    """Read a manifest's TOML.  Raises ManifestError when there is none that can be read.

    A file that says nothing is refused: to take every trigger out of force, say `triggers = []`.
    """
    try:
        # Some editors begin a file with a byte order mark, which TOML does not know.
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise ManifestError(f"{path}: there is no such file, expected a manifest") from error
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}: byte {error.start} is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise ManifestError(f"{path}: is not TOML: {error}") from error
    except RecursionError as error:
        raise ManifestError(f"{path}: lists or tables are nested too deeply") from error
    if not found:
        raise ManifestError(
            f"{path}: is empty, expected [[triggers]], or `triggers = []` to have none in force"
        )
    return found


def _handler_problems(document: Mapping[str, Any], path: Path) -> list[str]:
    """Return what is wrong with the functions that triggers name, as far as these can be read."""
    readable = parse_manifest({"exports": document.get("exports", {})}, str(path))
    triggers = document.get("triggers")
    if not isinstance(readable, Manifest) or not isinstance(triggers, list):
        return []
    loader = Loader(readable, path.parent.resolve())
    for index, given in enumerate(cast("list[object]", triggers), start=1):
        table = cast("dict[str, object]", given) if isinstance(given, dict) else {}
        loader.load_named(table.get("handler"), table.get("when"), table_name(index, table))
    return loader.problems


class Handlers:
    """The handlers and predicates of one manifest, by reference.

    Args:    placed: by trigger and reference, those whose binding says where they run.
             exported: modules by the name of their export, for triggers that no manifest holds.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        placed: Mapping[tuple[str, str], Handler] | None = None,
        exported: Mapping[str, ModuleType] | None = None,
    ) -> None:
        self._handlers = dict(handlers)
        self._placed = dict(placed or {})
        self._exported = dict(exported or {})
        self._unknown: set[str] = set()

    @classmethod
    def load(
        cls, manifest: Manifest, base_dir: Path | None = None, *, whole: bool = False
    ) -> Handlers:
        """Import what the manifest exports and find each handler of its triggers.

        Args:    base_dir: where exported files are; by default the manifest's own folder.
                 whole: an export that no trigger needs and that cannot be imported is a problem as
                 well; otherwise it is logged.
        Raises:  ManifestError that lists every module and handler that cannot be used.
        """
        base_dir = (Path(manifest.file).parent if base_dir is None else base_dir).resolve()
        loader = Loader(manifest, base_dir)
        for binding, table in zip(manifest.bindings, manifest.tables, strict=True):
            loader.load(binding, table)
        needed = len(loader.problems)
        exported = loader.exported()
        for problem in () if whole else loader.problems[needed:]:
            _LOG.warning("export_not_loaded", extra={"reason": problem})
        if loader.problems[: None if whole else needed]:
            # Sources of one trigger share its handler, and what is wrong with it.
            raise ManifestError(dict.fromkeys(loader.problems))
        return cls(loader.found, loader.placed, exported)

    @classmethod
    def of(cls, functions: Mapping[str, Callable[..., Any]]) -> Handlers:
        """Take functions by the reference that bindings name, without a manifest.

        Raises ValueError when one takes neither an event nor an event and a context.
        """
        return cls({reference: handler_of(function) for reference, function in functions.items()})

    def resolve(self, reference: str, trigger_id: str = "", /) -> Handler | None:
        """Return the handler that a binding names, or None when this manifest has no such one."""
        found = self._placed.get((trigger_id, reference)) or self._handlers.get(reference)
        return self._of_export(reference, trigger_id) if found is None else found

    @property
    def exported(self) -> Mapping[str, ModuleType]:
        """Return the modules that could be imported, by the name of their export."""
        return self._exported

    def _of_export(self, reference: str, trigger_id: str) -> Handler | None:
        """Find what a trigger names that was registered by itself; nothing is imported here.

        What is not there is told once: a newer manifest names it.
        """
        if reference in self._unknown:
            return None
        try:
            uri = parse_handler(reference)
            handler = handler_of(getattr(self._exported[uri.module], uri.function))
        except (ValueError, KeyError, AttributeError):
            if len(self._unknown) < _UNKNOWN_MAX:
                self._unknown.add(reference)
                extra = {"handler": reference, "trigger_id": trigger_id}
                _LOG.warning("handler_not_loaded", extra=extra)
            return None
        self._handlers[reference] = handler
        return handler

    def __len__(self) -> int:
        return len(self._handlers)


class Loader:
    """Collects functions of exports, and problems; lives for one loading of a manifest."""

    def __init__(self, manifest: Manifest, base_dir: Path) -> None:
        self.found: dict[str, Handler] = {}
        self.placed: dict[tuple[str, str], Handler] = {}
        self.problems: list[str] = []
        self._manifest = manifest
        self._base_dir = base_dir
        self._modules: dict[str, ModuleType | None] = {}

    def exported(self) -> dict[str, ModuleType]:
        """Import the other exports as well, and return all that could be imported."""
        for name, target in self._manifest.exports.items():
            if name in self._modules:
                continue
            if target.endswith(".py") and not is_file(self._base_dir / target):
                continue
            self._module(name)
        return {name: module for name, module in self._modules.items() if module is not None}

    def load(self, binding: BindingDefinition, needed_by: str) -> None:
        """Find what a binding names; a module that cannot be imported is told once."""
        definition: dict[str, Any] = json.loads(binding["definition"])
        place = f"{self._manifest.file}: {needed_by}"
        if binding["handler_kind"] == "local":
            reference = binding["handler"]
            handler = self._find(reference, f"{place}: handler {reference!r}")
            executor: Executor | None = definition.get("executor")
            if handler is not None and executor is not None:
                self._put(binding, handler, executor, f"{place}: executor is {executor!r}")
        when: str | None = definition.get("when")
        if when is not None and not when.startswith(CEL_PREFIX):
            self._find_predicate(when, f"{place}: when {when!r}")

    def load_named(self, handler: object, when: object, needed_by: str) -> None:
        """Find functions that a trigger may name; what is no name of one is not looked at."""
        place = f"{self._manifest.file}: {needed_by}"
        if self._names_function(handler):
            self._find(handler, f"{place}: handler {handler!r}")
        if self._names_function(when):
            self._find_predicate(when, f"{place}: when {when!r}")

    def _names_function(self, reference: object) -> TypeGuard[str]:
        if not isinstance(reference, str) or reference.startswith(CEL_PREFIX):
            return False
        try:
            uri = parse_handler(reference)
        except ValueError:
            return False
        return uri.kind == "local" and uri.module in self._manifest.exports

    def _put(
        self, binding: BindingDefinition, handler: Handler, executor: Executor, place: str
    ) -> None:
        """Note where a binding's handler runs."""
        reference = binding["handler"]
        if executor == "async" and not handler.is_async:
            self.problems.append(f"{place}, but {reference} is not async: use 'thread'")
        elif executor == "thread" and handler.is_async:
            self.problems.append(f"{place}, but {reference} is async: use 'async' or 'process'")
        else:
            placed = dataclasses.replace(handler, executor=executor)
            self.placed[binding["trigger_id"], reference] = placed

    def _find(self, reference: str, place: str) -> Handler | None:
        """Return a function as a handler; None with the problem noted."""
        if reference in self.found:
            return self.found[reference]
        uri = parse_handler(reference)
        function = self.function(uri, place)
        if function is None:
            return None
        try:
            handler = handler_of(function)
        except ValueError as error:
            self.problems.append(f"{place}: {error}")
            return None
        found = dataclasses.replace(handler, place=self._place(uri))
        self.found[reference] = found
        return found

    def function(self, uri: HandlerUri, place: str) -> Any:  # noqa: ANN401 - whatever stands there
        """Return what an export has under a name; None with the problem noted."""
        module = self._module(uri.module)
        if module is None:
            return None
        function = getattr(module, uri.function, None)
        if function is None:
            where = self._manifest.exports[uri.module]
            near = suggestion(uri.function, functions_of(module))
            self.problems.append(f"{place}: {where} has no {uri.function!r}{near}")
        return function

    def _find_predicate(self, reference: str, place: str) -> None:
        predicate = self._find(reference, place)
        if predicate is None:
            return
        answers = _return_annotation(predicate.function)
        if answers is not None and answers not in (bool, "bool"):
            shown_type = getattr(answers, "__name__", str(answers))
            self.problems.append(f"{place}: returns {shown_type}, expected (event) -> bool")

    def _place(self, uri: HandlerUri) -> Place:
        return Place(str(self._base_dir), self._manifest.exports[uri.module], uri.function)

    def _module(self, name: str) -> ModuleType | None:
        if name not in self._modules:
            self._modules[name] = self._import(name, self._manifest.exports[name])
        return self._modules[name]

    def _import(self, name: str, target: str) -> ModuleType | None:
        place = f"{self._manifest.file}: exports.{name} is {shown(target)}"
        path = (self._base_dir / target).resolve()
        if target.endswith(".py") and not is_file(path):
            self.problems.append(f"{place}, but there is no file {path}")
            return None
        try:
            return import_export(target, self._base_dir)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a user's module may raise anything, SystemExit included
            self.problems.append(f"{place}, which {raised(error)}")
        return None


def _return_annotation(function: Callable[..., Any]) -> object | None:
    """Return what a function says it returns; None when it does not say."""
    try:
        answers = inspect.signature(function).return_annotation
    except (TypeError, ValueError):
        return None
    return None if answers is inspect.Signature.empty else answers


def raised(error: BaseException) -> str:
    """Say what an import raised, and in which line of the user's."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [
        frame
        for frame in frames
        if "importlib" not in frame.filename
        and frame.filename not in (__file__, handler_modules.__file__)
    ]
    where = f" in {theirs[-1].filename}:{theirs[-1].lineno}" if theirs else ""
    if isinstance(error, SyntaxError):
        where = f" in {error.filename}:{error.lineno}"
    text = traceback.format_exception_only(error)[-1].strip()
    return f"raised {text}{where}"
