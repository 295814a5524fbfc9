"""The JMESPath library, asked for programs that can be walked, and that come to an end.

The library recurs over an expression, so that how deep it may be would depend on who calls: what is
taken when a manifest is loaded could fail where it is evaluated.

`[@, @]` holds twice what there was, and so does each further one behind it: a text of a hundred
characters makes more values than fit into any memory.  So a step is counted for each part of an
expression that is evaluated over a value, for each value that a new list or object holds, and for
what a join adds; a text counts as one for each 4 characters.  Nothing else of the language makes
more of what it is given.

Source: law 9.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import jmespath
from jmespath.functions import Functions
from jmespath.visitor import TreeInterpreter

__all__ = ["DEPTH_MAX", "STEPS_MAX", "Program", "TooManySteps", "compile_jmespath"]

DEPTH_MAX: Final = 100
"""A hundred alternatives in a row; the library takes two or three calls for each, of a thousand."""

STEPS_MAX: Final = 1_000_000
"""A second at most: a condition of ten parts over a hundred thousand items."""

_CHARS_A_STEP = 4
_FUNCTIONS = Functions()

_Node = Any
"""A dictionary of `type`, `value` and `children`."""


class TooManySteps(ValueError):  # noqa: N818 - a state of an evaluation
    """An expression that takes more steps over a value than STEPS_MAX."""

    def __init__(self) -> None:
        super().__init__(f"more than {STEPS_MAX} steps: it makes too much of what it is given")


class Program:
    """A compiled expression; threads may share it."""

    def __init__(self, source: str) -> None:
        self.tree: _Node = jmespath.compile(source).parsed

    def search(self, document: Any) -> Any:  # noqa: ANN401 - any JSON value
        """Evaluate over a document.  Raises: JMESPathError; TooManySteps."""
        return _Counting().visit(self.tree, document)


class _Counting(TreeInterpreter):
    """Evaluates once."""

    def __init__(self) -> None:
        super().__init__()
        self._left = STEPS_MAX
        self._visits: dict[str, Callable[[_Node, Any], Any]] = {}

    def visit(self, node: _Node, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        # As the library has it, without a call to it: this is what an evaluation's time goes into.
        self._left -= 1
        if self._left < 0:
            raise TooManySteps
        kind = node["type"]
        visit = self._visits.get(kind)
        if visit is None:
            visit = self._visits[kind] = getattr(self, f"visit_{kind}")
        return visit(node, value)

    def visit_multi_select_list(self, node: _Node, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        return self._counted(super().visit_multi_select_list(node, value))

    def visit_multi_select_dict(self, node: _Node, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        return self._counted(super().visit_multi_select_dict(node, value))

    def visit_function_expression(self, node: _Node, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        arguments = [self.visit(child, value) for child in node["children"]]
        if node["value"] == "join":
            self._count_join(*arguments)
        return _FUNCTIONS.call_function(node["value"], arguments)

    def _count_join(self, separator: object = None, texts: object = None, *_more: object) -> None:
        if isinstance(separator, str) and isinstance(texts, list):
            self._count(len(separator) * len(cast("list[Any]", texts)) // _CHARS_A_STEP)

    def _counted(self, made: Any) -> Any:  # noqa: ANN401 - any JSON value
        """Count what a new list or object holds; values that it holds twice are counted twice."""
        found: list[Any] = [made]
        while found:
            value = found.pop()
            if isinstance(value, str):
                self._count(len(value) // _CHARS_A_STEP)
            elif isinstance(value, dict | list):
                items = cast("list[Any]", [*value.values()] if isinstance(value, dict) else value)
                self._count(len(items))
                found.extend(items)
        return made

    def _count(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooManySteps


def compile_jmespath(source: str, /) -> Program:
    """Compile an expression.

    Raises: JMESPathError for a text that is none; ValueError for one that is nested too deeply.
    """
    try:
        program = Program(source)
    except RecursionError:
        raise ValueError(f"is nested more than {DEPTH_MAX} deep") from None
    level = [program.tree]
    for _ in range(DEPTH_MAX):
        # Those of a slice are numbers.
        level = [each for node in level for each in node["children"] if isinstance(each, dict)]
        if not level:
            return program
    raise ValueError(f"is nested more than {DEPTH_MAX} deep")
