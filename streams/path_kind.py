"""What a path that somebody named leads to.

`pathlib` raises where a folder may not be looked into, or where no file can have such a name: then
nothing is there for us, and whoever asked says what was expected.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["is_file", "is_folder"]


def is_file(path: Path, /) -> bool:
    """Whether it is a file, as far as this process can see."""
    return os.path.isfile(path)  # noqa: PTH113 - see above


def is_folder(path: Path, /) -> bool:
    """Whether it is a folder, as far as this process can see."""
    return os.path.isdir(path)  # noqa: PTH112 - see above
