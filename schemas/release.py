"""Keep a copy of the schemas as a release wrote them: `python -m schemas.release 0.1.0`.

The copy is what later versions are compared with, and what they read old records by.  It is taken
once a release; `--replace` takes it anew, which is right only for a version that nobody has run
yet.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from schemas.compatibility import compare
from schemas.load import SchemaSet, version_key
from schemas.shape import SchemaError

FOLDER = Path(__file__).resolve().parent


def release(version: str, *, replace: bool = False, folder: Path = FOLDER) -> list[Path]:
    """Copy the `.avsc` files of `folder` to `released/<version>/`; return the copies.

    Raises: SchemaError when the version is malformed, not after the last one, already there (unless
    `replace`), or when the schemas and those of the last release cannot read each other.
    """
    current = SchemaSet.load(folder)
    target = folder / "released" / version
    version_key(version)
    if target.exists() and not replace:
        raise SchemaError(f"{target}: exists; a release is copied once (--replace takes it anew)")
    earlier = {name: held for name, held in current.releases.items() if name != version}
    if earlier:
        last = list(earlier)[-1]
        if version_key(version) < version_key(last):
            raise SchemaError(f"release {version}: expected one after the last, {last}")
        problems = compare(earlier[last], current)
        if problems:
            lines = "\n  ".join(str(problem) for problem in problems)
            raise SchemaError(f"release {version}: incompatible with {last}:\n  {lines}")
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    return [Path(shutil.copy(folder / f"{stem}.avsc", target)) for stem in current]


def main(arguments: list[str]) -> int:
    """Run `python -m schemas.release <version> [--replace]`; return the exit code."""
    versions = [argument for argument in arguments if argument != "--replace"]
    if len(versions) != 1:
        sys.stderr.write("usage: python -m schemas.release <major>.<minor>.<patch> [--replace]\n")
        return 2
    try:
        copies = release(versions[0], replace="--replace" in arguments)
    except SchemaError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{len(copies)} schemas copied to {copies[0].parent}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
