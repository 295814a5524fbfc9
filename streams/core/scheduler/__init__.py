"""The scheduler of worker queues: the fold of `worker.requests`."""

from __future__ import annotations

from streams.core.scheduler.fold import FOLD

__all__ = ["FOLD"]
