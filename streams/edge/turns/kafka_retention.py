"""Forgets, where turns run inline on Kafka, what was done with long enough ago.

No partition has an owner there, so any process that takes turns does it, by what its view has.
What another one wrote within the same milliseconds stands before the word that forgets, and would
be lost with it: the word is read back, and what stands just before it and is younger than what was
due is written once more.

Source: DESIGN law 9, "A turn"; ADR 25.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from streams.codec import Codec
from streams.core.turn.parting import CHANGED_AT, RETENTION, Due
from streams.core.turn.words import JOBS, SESSIONS
from streams.edge.turns.forgetting import Forgetting
from streams.edge.turns.kafka_ledger import KafkaLedger
from streams.edge.turns.turn_view import TurnView
from streams.errors import TaskQueueUnavailable
from streams.observe import logs

__all__ = ["KafkaRetention"]

_LOG = logs.logger(__name__)

_BATCH = 250
_READ_S = 10.0
_OF_JOBS = frozenset({"agent_goal", "agent_job"})
_MOMENTS = ("updated_at_ms", "requested_at_ms")


class KafkaRetention(Forgetting):
    """Forgets what a view of the topics shows as done with."""

    def __init__(
        self, ledger: KafkaLedger, view: TurnView, codec: Codec, retention_ms: int
    ) -> None:
        super().__init__(retention_ms)
        self._ledger = ledger
        self._view = view
        self._codec = codec

    async def sweep(self) -> None:
        """Forget what is due, and say how much.  Raises: TaskQueueUnavailable."""
        await self._view.caught_up.wait()
        if count := await self.forget():
            _LOG.info("turn_records_forgotten", extra={"count": count})

    async def forget(self) -> int:
        """Forget all that is due now: what has ended, then sessions that have nothing left.

        Returns: how much that was.  Raises: TaskQueueUnavailable.
        """
        count = 0
        before_ms = self._ledger.now_ms() - self.retention_ms
        for ended in (True, False):
            while due := await self._due(before_ms, ended=ended):
                for each in due:
                    await self._part(each)
                count += len(due)
        return count

    async def _due(self, before_ms: int, *, ended: bool) -> Sequence[Due]:
        self._ledger.require_view()
        return await asyncio.to_thread(self._view.due, before_ms, ended=ended, limit=_BATCH)

    async def _part(self, due: Due) -> None:
        """Write the word that forgets a record, unless it was changed; and what it would undo."""
        with self._view.watches.watching(due.key) as watch:
            found = self._view.get(due.kind, due.key)
            if found is None or _changed_at_ms(found) != due.changed_at_ms:
                return
            topic = JOBS if due.kind in _OF_JOBS else SESSIONS
            headers = (
                (CHANGED_AT, str(due.changed_at_ms).encode()),
                (RETENTION, str(self.retention_ms).encode()),
            )
            offset = await self._ledger.append(
                topic, due.kind, due.key, None, session_id=due.session_id, headers=headers
            )
            try:
                async with asyncio.timeout(_READ_S):
                    await watch.until(offset)
            except TimeoutError:
                reason = f"{topic} was not read to its end within {_READ_S:g} s"
                raise TaskQueueUnavailable(topic, reason, retryable=True) from None
            other = watch.last_between(-1, offset)
            if other is None or other.value is None:
                return
            value = self._codec.decode_as(due.kind, other.value)
            if value is not None and _changed_at_ms(value) > due.changed_at_ms:
                await self._ledger.write(topic, due.kind, due.key, value)


def _changed_at_ms(value: Mapping[str, Any]) -> int:
    return max(value.get(name, 0) for name in _MOMENTS)
