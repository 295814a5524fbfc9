"""Writes a partition's full rows now and then: an audit can start after a mailbox' old head.

When one is due follows from the log alone (stream time and offsets), so every owner of a partition
agrees.  The rows are taken between two commits and written in the background; their hash stands in
the journal, which proves them.

Source: DESIGN "Topics" (audit.checkpoints), "Proof".
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from confluent_kafka import Producer

from streams.audit.checkpoint import encode_checkpoint
from streams.engine import BoundStage, Memory, StatePosition
from streams.kafka import make_producer
from streams.observe import logs
from streams.settings import Settings

_log = logs.logger(__name__)

_TOPIC = "audit.checkpoints"
_HEADERS: Any = [("kind", b"checkpoint_part")]
_FLUSH_S = 60.0


class Checkpointer:
    """Checkpoints of one stage's owned partitions; one is written at a time."""

    def __init__(self, settings: Settings, bound: BoundStage) -> None:
        self._settings = settings
        self._bound = bound
        self._last: dict[int, StatePosition] = {}
        self._producer: Producer | None = None
        self._writing: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()

    def consider(self, memory: Memory) -> None:
        """Start a checkpoint if the last commit crossed a boundary of time or offsets."""
        position = memory.position
        last = self._last.setdefault(memory.partition, position)
        if not self._due(last, position) or self._one_at_a_time.locked():
            return
        self._last[memory.partition] = position
        rows = memory.rows.store.snapshot()
        self._writing = asyncio.get_running_loop().create_task(
            self._write(memory.partition, position, rows)
        )

    def _due(self, last: StatePosition, position: StatePosition) -> bool:
        interval, records = self._settings.checkpoint_interval_ms, self._settings.checkpoint_records
        return (
            position.now_ms // interval > last.now_ms // interval
            or position.next_offset // records > last.next_offset // records
        )

    async def _write(
        self, partition: int, position: StatePosition, rows: list[tuple[bytes, bytes]]
    ) -> None:
        async with self._one_at_a_time:
            loop = asyncio.get_running_loop()
            left = await loop.run_in_executor(None, self._write_blocking, partition, position, rows)
        stage = self._bound.declaration.name
        event = "checkpoint_incomplete" if left else "checkpoint_written"
        _log.info(
            event,
            extra={"stage": stage, "partition": partition, "seq": position.seq, "rows": len(rows)},
        )

    def _write_blocking(
        self, partition: int, position: StatePosition, rows: list[tuple[bytes, bytes]]
    ) -> int:
        if self._producer is None:
            self._producer = make_producer(self._settings)
        stage = self._bound.declaration.name
        key = f"{stage}/{partition}".encode()
        for part in encode_checkpoint(self._bound.codec, stage, partition, position, rows):
            self._producer.produce(_TOPIC, part, key, partition=partition, headers=_HEADERS)
            self._producer.poll(0)
        return self._producer.flush(_FLUSH_S)

    async def close(self) -> None:
        """Give up a checkpoint that is being written: an incomplete one is ignored by readers."""
        if self._writing is not None:
            self._writing.cancel()
            with suppress(asyncio.CancelledError):
                await self._writing
        self._producer = None
