"""Time without traffic: when a timer is due and no record came, the owner appends a tick.

Nothing sleeps for a timer.  A tick is a record like any other: the fold fires what is due when it
meets it.  Ticks fall on a grid, so that many timers close together cost one transaction.

Source: DESIGN law 2; FINDINGS 12, 15.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from confluent_kafka import Producer

from streams.kafka import make_producer
from streams.settings import Settings
from topology.model import TICK

_GRID_MS = 25
_REPEAT_MS = 1_000
"""A tick that did not come back by then is sent again: it may have been lost, and another does no
harm."""

_KEY = b"\0tick"


class Ticker:
    """Appends the ticks of one stage's owned partitions."""

    def __init__(
        self, settings: Settings, source: str, encode: Callable[[dict[str, int]], bytes]
    ) -> None:
        self._settings = settings
        self._source = source
        self._encode = encode
        self._producer: Producer | None = None
        self._armed: dict[int, asyncio.TimerHandle] = {}
        self._sent: dict[int, int] = {}
        self.ticks = 0

    def arm(self, partition: int, due_ms: int | None, stream_time_ms: int) -> None:
        """Wait for a partition's next due time; replaces what it waited for.

        `stream_time_ms` is the partition's own clock, which the broker moves.  Where it is ahead of
        ours, it is the better one.  A tick that came back too early tells that it is behind, and
        then it must be waited for.
        """
        self.disarm(partition)
        if due_ms is None:
            self._sent.pop(partition, None)
            return
        now_ms = time.time() * 1000
        delay_ms = due_ms - now_ms
        came_back_early = self._sent.get(partition) == due_ms
        delay_ms = (max if came_back_early else min)(delay_ms, due_ms - stream_time_ms)
        self._call_later(partition, due_ms, _on_grid(now_ms, max(delay_ms, 0)))

    def disarm(self, partition: int) -> None:
        """Stop waiting for a partition: a batch is at hand, it carries time itself."""
        handle = self._armed.pop(partition, None)
        if handle is not None:
            handle.cancel()

    def clear(self) -> None:
        """Stop waiting for every partition."""
        for partition in list(self._armed):
            self.disarm(partition)
        self._sent.clear()

    def close(self) -> None:
        """Stop, and let go of the connection."""
        self.clear()
        self._producer = None

    def _call_later(self, partition: int, due_ms: int, delay_ms: float) -> None:
        loop = asyncio.get_running_loop()
        self._armed[partition] = loop.call_later(delay_ms / 1000, self._send, partition, due_ms)

    def _send(self, partition: int, due_ms: int) -> None:
        if self._producer is None:
            self._producer = make_producer(self._settings, idempotent=False, linger_ms=0, acks="1")
        self._sent[partition] = due_ms
        self.ticks += 1
        try:
            self._producer.produce(
                self._source,
                self._encode({"due_ms": due_ms}),
                _KEY,
                partition=partition,
                headers=[("kind", TICK.encode())],
            )
            self._producer.poll(0)
        finally:
            self._call_later(partition, due_ms, _REPEAT_MS)


def _on_grid(now_ms: float, delay_ms: float) -> float:
    """The delay, stretched so that it ends on the grid."""
    due_ms = now_ms + delay_ms
    return delay_ms + (-due_ms) % _GRID_MS
