"""Writes a partition's full rows now and then: an audit can start after a mailbox' old head.

When one is due follows from the log alone (stream time and offsets), so every owner of a partition
agrees.  The rows are taken between two commits and written in the background; their hash stands in
the journal, which proves them.  A checkpoint that fails is missed until the next boundary: the
stage goes on, an audit starts at an older one.

Source: DESIGN "Topics" (audit.checkpoints), "Proof".
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Executor
from typing import Any

from confluent_kafka import KafkaException, Producer

from streams.audit.checkpoint import encode_checkpoint
from streams.engine import BoundStage, Memory, StatePosition
from streams.kafka import make_producer
from streams.observe import logs
from streams.settings import Settings

_log = logs.logger(__name__)

_TOPIC = "audit.checkpoints"
_HEADERS: Any = [("kind", b"checkpoint_part")]
_FLUSH_S = 60.0
_LOOK_UP_S = 0.2

Rows = list[tuple[bytes, bytes]]


class Checkpointer:
    """Checkpoints of one stage's owned partitions; one is written at a time."""

    def __init__(self, settings: Settings, bound: BoundStage, threads: Executor) -> None:
        self._settings = settings
        self._bound = bound
        self._threads = threads
        self._last: dict[int, StatePosition] = {}
        self._producer: Producer | None = None
        self._writing: asyncio.Task[None] | None = None
        self._given_up = threading.Event()

    async def consider(self, memory: Memory) -> None:
        """Start a checkpoint if the last commit crossed a boundary of time or offsets.

        Returns once the rows are taken: no commit of the partition may come in between.
        """
        position = memory.position
        last = self._last.setdefault(memory.partition, position)
        if self._writing is not None or not self._due(last, position):
            return
        self._last[memory.partition] = position
        loop = asyncio.get_running_loop()
        taken = loop.run_in_executor(self._threads, memory.rows.store.snapshot)
        self._writing = loop.create_task(self._write(memory.partition, position, taken))
        await asyncio.wait([taken])

    def _due(self, last: StatePosition, position: StatePosition) -> bool:
        interval, records = self._settings.checkpoint_interval_ms, self._settings.checkpoint_records
        return (
            position.now_ms // interval > last.now_ms // interval
            or position.next_offset // records > last.next_offset // records
        )

    async def _write(
        self, partition: int, position: StatePosition, taken: asyncio.Future[Rows]
    ) -> None:
        place = {
            "stage": self._bound.declaration.name,
            "partition": partition,
            "seq": position.seq,
        }
        try:
            rows = await taken
            loop = asyncio.get_running_loop()
            left = await loop.run_in_executor(
                self._threads, self._write_blocking, partition, position, rows
            )
        except (KafkaException, BufferError, OSError) as error:
            _log.warning("checkpoint_failed", extra={**place, "reason": repr(error)})
        else:
            event = "checkpoint_incomplete" if left else "checkpoint_written"
            _log.info(event, extra={**place, "rows": len(rows)})
        finally:
            self._writing = None

    def _write_blocking(self, partition: int, position: StatePosition, rows: Rows) -> int:
        """Append all parts; returns 0 once all are acknowledged, else what is left of them."""
        if self._producer is None:
            self._producer = make_producer(self._settings)
        producer, stage = self._producer, self._bound.declaration.name
        key = f"{stage}/{partition}".encode()
        for part in encode_checkpoint(self._bound.codec, stage, partition, position, rows):
            if self._given_up.is_set():
                return 1  # at least the part at hand
            producer.produce(_TOPIC, part, key, partition=partition, headers=_HEADERS)
            producer.poll(0)
        until = time.monotonic() + _FLUSH_S
        while (left := producer.flush(_LOOK_UP_S)) and time.monotonic() < until:
            if self._given_up.is_set():
                break
        return left

    async def close(self) -> None:
        """Give up a checkpoint that is being written: an incomplete one is ignored by readers."""
        self._given_up.set()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        self._producer = None
