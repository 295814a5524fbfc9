"""Enqueues jobs on one of the queues and prints, as JSON, when each was sent.

python client.py on_dramatiq FIRST COUNT SLEEP_MS [PER_SECOND]
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator


def _paced(first: int, count: int, per_second: float) -> Iterator[int]:
    """Yield numbers at a steady rate, or as fast as they are taken."""
    began_s = time.monotonic()
    for index in range(count):
        if per_second:
            time.sleep(max(0.0, began_s + index / per_second - time.monotonic()))
        yield first + index


def main(name: str, first: str, count: str, sleep_ms: str, per_second: str = "0") -> None:
    """Send, and tell."""
    sent_ns: list[int] = []
    module = importlib.import_module(name)
    began_s = time.monotonic()
    numbers = _paced(int(first), int(count), float(per_second))
    module.send(numbers, int(sleep_ms), lambda _: sent_ns.append(time.monotonic_ns()))
    print(json.dumps({"seconds": time.monotonic() - began_s, "sent_ns": sent_ns}))


if __name__ == "__main__":
    main(*sys.argv[1:])
