"""A handler's function, found where a manifest says it is: a Python file, or an installed module.

Light on purpose: the processes that run handlers import this and little else.

Source: SEMANTICS 1.7.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from streams.handler_api import Handler
from streams.path_kind import is_file

__all__ = ["functions_of", "handler_of", "import_export"]


def import_export(target: str, base_dir: Path) -> ModuleType:
    """Import what an export names: a dotted module, or a file relative to `base_dir`.

    Raises: FileNotFoundError when there is no such file; whatever the import raises.
    """
    if not target.endswith(".py"):
        return importlib.import_module(target)
    path = (base_dir / target).resolve()
    if not is_file(path):
        raise FileNotFoundError(str(path))
    return _import_file(path, base_dir)


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


def functions_of(module: ModuleType) -> list[str]:
    """Return the names of a module's own public functions, in its order."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and getattr(value, "__module__", None) == module.__name__
    ]


def handler_of(function: Any) -> Handler:  # noqa: ANN401 - whatever the user's module has there
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
