"""The CEL library, loaded by the first expression that needs it.

It brings a prompt for terminals with it: a tenth of a second of every start, and most processes
evaluate no expression.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["compile_cel"]


def compile_cel(source: str, /) -> Any:  # noqa: ANN401 - the library's program, which it does not type
    """Return the library's program for a CEL expression.

    Raises: ValueError for a text that is no CEL.
    """
    return importlib.import_module("cel").compile(source)
