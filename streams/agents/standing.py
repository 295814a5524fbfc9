"""Measures where owned partitions stand, once a second: rows held, and records not yet folded."""

from __future__ import annotations

import asyncio
import time

from faust.types import TP

from streams.agents.stage_view import StageView
from streams.core.dispatch_index import DispatchIndex

_EVERY_S = 1.0


class Standing:
    """Fills a stage's gauges while it lives."""

    def __init__(self, live: StageView) -> None:
        self._live = live
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Measure from now on; a second call changes nothing."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Measure no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            self._measure()

    def _measure(self) -> None:
        live = self._live
        lags: dict[int, int] = {}
        now_ms = time.time_ns() // 1_000_000
        for entry in live.owned.values():
            if entry.memory is None:
                continue
            next_offset = entry.memory.position.next_offset
            lag = live.app.consumer.waiting(TP(live.source, entry.partition), next_offset)
            rows = entry.memory.rows
            live.metrics.standing(entry.partition, rows=len(rows.store), lag=lag)
            live.metrics.keeps(entry.partition, rows)
            live.metrics.schedules(entry.partition, rows, now_ms)
            state = entry.memory.state
            if isinstance(state.index, DispatchIndex):
                oldest = state.index.oldest_accepted(state)
                live.metrics.pending(entry.partition, oldest, now_ms)
            lags[entry.partition] = lag
        if live.pump is not None:
            live.pump.waiting(lags)
