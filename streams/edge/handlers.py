"""From a manifest on disk to callable handlers: all is resolved at load, nothing at dispatch.

An export is a Python file beside the manifest, or an installed module.  It is imported once; a
handler is a function of it that takes the event, or the event and the context.  Whatever cannot be
loaded is told at once, with the trigger that needs it.

Source: SEMANTICS 1.7.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import tomllib
import traceback
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from streams.core.handler_uri import parse_handler
from streams.core.manifest import Manifest, parse_manifest
from streams.core.manifest_place import shown
from streams.errors import ManifestError
from streams.expressions import EXPRESSIONS
from streams.handler_api import Handler
from streams.schedules import CALENDAR

__all__ = ["MANIFEST_NAME", "Handlers", "load_manifest"]

MANIFEST_NAME = "harn.toml"
"""The file that a folder's manifest is in."""


def load_manifest(path: Path) -> Manifest:
    """Read the manifest at `path`, or `harn.toml` in the folder `path`.

    Raises ManifestError that lists every problem; handlers are not loaded (`Handlers.load`).
    """
    path = path / MANIFEST_NAME if path.is_dir() else path
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ManifestError(f"{path}: there is no such file, expected a manifest") from error
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}: byte {error.start} is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise ManifestError(f"{path}: is not TOML: {error}") from error
    found = parse_manifest(document, str(path), EXPRESSIONS, CALENDAR)
    if isinstance(found, Manifest):
        return found
    raise ManifestError(found)


class Handlers:
    """The handlers of one manifest, by reference."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = dict(handlers)

    @classmethod
    def load(cls, manifest: Manifest, base_dir: Path | None = None) -> Handlers:
        """Import what the manifest's handlers need and find each of them.

        Args:    base_dir: where exported files are; by default the manifest's own folder.
        Raises:  ManifestError that lists every module and handler that cannot be used.
        """
        base_dir = (Path(manifest.file).parent if base_dir is None else base_dir).resolve()
        loader = _Loader(manifest, base_dir)
        for index, binding in enumerate(manifest.bindings, start=1):
            loader.load(binding["handler"], f"[[triggers]] {index} ({binding['trigger_id']})")
        if loader.problems:
            raise ManifestError(loader.problems)
        return cls(loader.handlers)

    @classmethod
    def of(cls, functions: Mapping[str, Callable[..., Any]]) -> Handlers:
        """Take functions by the reference that bindings name, without a manifest.

        Raises ValueError when one takes neither an event nor an event and a context.
        """
        return cls({reference: _handler(function) for reference, function in functions.items()})

    def resolve(self, reference: str) -> Handler | None:
        """Return the handler that a binding names, or None when this manifest has no such one."""
        return self._handlers.get(reference)

    def __len__(self) -> int:
        return len(self._handlers)


class _Loader:
    """Collects handlers and problems; lives for one `Handlers.load`."""

    def __init__(self, manifest: Manifest, base_dir: Path) -> None:
        self.handlers: dict[str, Handler] = {}
        self.problems: list[str] = []
        self._manifest = manifest
        self._base_dir = base_dir
        self._modules: dict[str, ModuleType | None] = {}

    def load(self, reference: str, needed_by: str) -> None:
        """Find one handler; a module that cannot be imported is told once."""
        if reference in self.handlers:
            return
        uri = parse_handler(reference)
        module = self._module(uri.module)
        if module is None:
            return
        place = f"{self._manifest.file}: {needed_by}: handler {reference!r}"
        function = getattr(module, uri.function, None)
        if function is None:
            where = self._manifest.exports[uri.module]
            self.problems.append(f"{place}: {where} has no {uri.function!r}")
            return
        try:
            self.handlers[reference] = _handler(function)
        except ValueError as error:
            self.problems.append(f"{place}: {error}")

    def _module(self, name: str) -> ModuleType | None:
        if name not in self._modules:
            self._modules[name] = self._import(name, self._manifest.exports[name])
        return self._modules[name]

    def _import(self, name: str, target: str) -> ModuleType | None:
        place = f"{self._manifest.file}: exports.{name}"
        try:
            if not target.endswith(".py"):
                return importlib.import_module(target)
            path = (self._base_dir / target).resolve()
            if path.is_file():
                return _import_file(path, self._base_dir)
            self.problems.append(f"{place} is {shown(target)}, but there is no file {path}")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a user's module may raise anything, SystemExit included
            self.problems.append(f"{place} is {shown(target)}, which {_raised(error)}")
        return None


def _import_file(path: Path, base_dir: Path) -> ModuleType:
    """Import one file, so that the files beside it can import it, and it them."""
    if str(base_dir) not in sys.path:
        sys.path.append(str(base_dir))  # last: no installed module is hidden
        importlib.invalidate_caches()
    if path.parent == base_dir and _is_found_as(path.stem, path):
        return importlib.import_module(path.stem)
    # Its name means another module already, so it gets one that nobody else has.
    name = f"{path.stem}_{blake2b(str(path).encode(), digest_size=6).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a .py file has a loader"
    assert spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _is_found_as(name: str, path: Path) -> bool:
    """Whether `import name` gives the file `path`."""
    if not name.isidentifier():
        return False
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module that was made by hand
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == path


def _handler(function: Any) -> Handler:  # noqa: ANN401 - whatever the user's module has there
    """Check a handler's form.  Raises ValueError that says what it must be."""
    if not callable(function):
        raise ValueError(  # noqa: TRY004 - a value of the user's, not an argument of ours
            f"is {type(function).__name__}, expected a function"
        )
    body = function if inspect.isroutine(function) else function.__call__
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise ValueError("is a generator, expected a function that returns its result")
    return Handler(
        function=function,
        is_async=inspect.iscoroutinefunction(body) or inspect.iscoroutinefunction(function),
        takes_context=_takes_context(function),
    )


def _takes_context(function: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin, which does not say: it gets the event
        return False
    two, one = _accepts(signature, 2), _accepts(signature, 1)
    if not one and not two:
        raise ValueError(f"takes {signature}, expected (event) or (event, context)")
    # A second parameter with a default of its own is the function's business.
    return two and (not one or "context" in signature.parameters)


def _accepts(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _raised(error: BaseException) -> str:
    """Say what an import raised, and in which line of the user's."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [
        frame
        for frame in frames
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    where = f" in {theirs[-1].filename}:{theirs[-1].lineno}" if theirs else ""
    if isinstance(error, SyntaxError):
        where = f" in {error.filename}:{error.lineno}"
    text = traceback.format_exception_only(error)[-1].strip()
    return f"raised {text}{where}"
