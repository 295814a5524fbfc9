"""Reads what a partition has of goals, tasks and sessions, in the background, for its shelf.

Each topic has a thread and a connection, which serve one partition after another: a partition that
was just taken is not waited for behind a connection.  Goals are read while no sessions are: turns
of sessions that rested for long wait for theirs, and both would share one core.

Source: DESIGN law 9, "A turn"; ADR 25.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from streams.core.turn.words import JOBS, SESSIONS
from streams.edge.topic_reader import ReadRecord, TopicReader
from streams.errors import BrokerError
from streams.observe import logs
from streams.settings import Settings

__all__ = ["ShelfBuilder"]

_LOG = logs.logger(__name__)

_READ_S = 0.2
_SILENCE_S = 30.0
_AGAIN_S = 1.0
_PAUSE_S = 0.005  # between two batches: turns run meanwhile
_LOOK_S = 0.02  # while others go first

Put = Callable[[list[ReadRecord]], None]
"""Takes the next records of a partition, in a topic's thread."""


class ShelfBuilder:
    """Of a worker; made and used on the event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stopping = threading.Event()
        self._readers: dict[str, TopicReader] = {}  # each is its thread's
        self._sessions = 0  # partitions whose sessions are read, or are to be
        self._pools = {
            topic: ThreadPoolExecutor(1, thread_name_prefix=f"turns-{topic}")
            for topic in (SESSIONS, JOBS)
        }

    async def read(
        self, topic: str, partition: int, end: int, put: Put, *, closed: threading.Event
    ) -> None:
        """Hand over what stands before `end`, however often the broker is away, or until closed.

        Raises: what `put` raises; BrokerError or TopologyError, for what does not pass.
        """
        loop = asyncio.get_running_loop()
        first = topic == SESSIONS
        self._sessions += first
        try:
            await loop.run_in_executor(
                self._pools[topic], self._read_all, topic, partition, end, put, closed
            )
        finally:
            self._sessions -= first

    def stop(self) -> None:
        """Read nothing more, and let go of the connections."""
        self._stopping.set()
        for topic, pool in self._pools.items():
            pool.submit(self._let_go, topic)
            pool.shutdown(wait=False)

    # ------------------------------------------------------------------ a topic's thread
    def _read_all(
        self, topic: str, partition: int, end: int, put: Put, closed: threading.Event
    ) -> None:
        self._let_sessions_go_first(topic, closed)
        while end > 0 and not (closed.is_set() or self._stopping.is_set()):
            try:
                for found in self._read(topic, partition, end):
                    if closed.is_set() or self._stopping.is_set():
                        return
                    put(found)
                    closed.wait(_PAUSE_S)
                    self._let_sessions_go_first(topic, closed)
            except BrokerError as error:
                self._let_go(topic)
                if not error.retryable:
                    raise
                extra = {"partition": partition, "reason": str(error)}
                _LOG.warning("turn_records_not_read", extra=extra)
                closed.wait(_AGAIN_S)
            else:
                return

    def _let_sessions_go_first(self, topic: str, closed: threading.Event) -> None:
        while topic != SESSIONS and self._sessions and not self._stopping.is_set():
            if closed.wait(_LOOK_S):
                return

    def _read(self, topic: str, partition: int, end: int) -> Iterator[list[ReadRecord]]:
        """Yield what stands before `end`, and nothing where there is nothing at the moment."""
        reader = self._readers.get(topic)
        if reader is None:
            reader = self._readers[topic] = TopicReader(self._settings, topic)
        reader.start_at({partition: 0})
        heard_s = time.monotonic()
        while True:
            found = reader.read(_READ_S)
            yield [each for each in found if each.offset < end]
            if reader.at_end or (found and found[-1].offset >= end - 1):
                return
            if found:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > _SILENCE_S:
                message = f"{topic}/{partition} could not be read: no answer from the broker"
                raise BrokerError(message, retryable=True)

    def _let_go(self, topic: str) -> None:
        reader = self._readers.pop(topic, None)
        if reader is not None:
            reader.close()
