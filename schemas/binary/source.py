"""Builds a Python function from lines, as `dataclasses` does: straight code, no call a field.

Nothing from outside becomes code: names are made here, and whatever comes from a schema is passed
as a constant or through `repr` of a text.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any


class Source:
    """The body of a function that is being written, and the constants it uses."""

    def __init__(self, constants: Mapping[str, object]) -> None:
        self._lines: list[str] = []
        self._indent = 1
        self._made = 0
        self._namespace = dict(constants)

    def name(self, prefix: str) -> str:
        """Return a variable name that is not used yet."""
        self._made += 1
        return f"{prefix}{self._made}"

    def constant(self, prefix: str, value: object) -> str:
        """Bind `value` under a name of its own, and return the name."""
        name = self.name(prefix)
        self._namespace[name] = value
        return name

    def add(self, *lines: str) -> None:
        """Append lines at the present indentation."""
        self._lines.extend(f"{'    ' * self._indent}{line}" for line in lines)

    @contextmanager
    def block(self, header: str) -> Generator[None]:
        """Append `header`, and indent what is added inside the `with`."""
        self.add(header)
        self._indent += 1
        yield
        self._indent -= 1

    def build(self, name: str, parameters: str) -> Callable[..., Any]:
        """Compile the function; tracebacks show its lines, under the file name `<name>`."""
        lines = [f"def {name}({parameters}):", *self._lines]
        text = "\n".join(lines) + "\n"
        file = f"<{name}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), self._namespace)  # noqa: S102 - see the module's docstring
        function: Callable[..., Any] = self._namespace[name]  # pyright: ignore[reportAssignmentType]
        return function
