"""Fold every vector's records anew and write what comes of them: `make vectors`.

Look at the difference before you commit it: it is a change of behaviour.
"""

from __future__ import annotations

import json
import sys

from tests.support.vector import FILES, FOLDER, write


def main() -> None:
    for path in FILES:
        before = path.read_text()
        write(path, json.loads(before))
        word = "same" if path.read_text() == before else "changed"
        sys.stdout.write(f"{word:8}{path.relative_to(FOLDER)}\n")


if __name__ == "__main__":
    main()
