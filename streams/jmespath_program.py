"""The JMESPath library, asked for programs: none that is nested deeper than it can be walked.

The library recurs over an expression, so that how deep it may be would depend on who calls: what is
taken when a manifest is loaded could fail where it is evaluated.
"""

from __future__ import annotations

from typing import Any, cast

import jmespath

__all__ = ["DEPTH_MAX", "compile_jmespath"]

DEPTH_MAX = 100
"""A hundred alternatives in a row; the library takes two or three calls for each, of a thousand."""


def compile_jmespath(source: str, /) -> Any:  # noqa: ANN401 - the library's program, without types
    """Compile an expression.

    Raises: JMESPathError for a text that is none; ValueError for one that is nested too deeply.
    """
    try:
        program = jmespath.compile(source)
    except RecursionError:
        raise ValueError(f"is nested more than {DEPTH_MAX} deep") from None
    level = [cast("dict[str, Any]", program.parsed)]
    for _ in range(DEPTH_MAX):
        # Those of a slice are numbers.
        level = [each for node in level for each in node["children"] if isinstance(each, dict)]
        if not level:
            return program
    raise ValueError(f"is nested more than {DEPTH_MAX} deep")
