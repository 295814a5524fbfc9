"""What a worker shall do."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["WorkerPlan", "default_consumer_id"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """What a worker shall do.

    `queue_keys` are queues, or `queue#shard` each.  With `once` it takes what there is, and ends.
    """

    consumer_id: str
    queue_keys: Sequence[str]
    concurrency: int
    claim_ttl_ms: int
    once: bool = False


def default_consumer_id() -> str:
    """Return a name that no other start of a worker has."""
    return f"{socket.gethostname() or 'local'}-pid{os.getpid()}-{time.time_ns() // 1_000_000}"
