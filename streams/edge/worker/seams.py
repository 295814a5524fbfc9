"""What a worker meets besides the broker, and what a test puts in its place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from streams.edge.worker.deliveries import Deliveries

__all__ = ["Seams"]


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """The world by default.

    `deliveries` None is Kafka; `clock` is wall time, ms; `exit_now` ends a process that is stuck.
    """

    deliveries: Deliveries | None = None
    clock: Callable[[], int] = _wall_ms
    exit_now: Callable[[int], object] = os._exit
