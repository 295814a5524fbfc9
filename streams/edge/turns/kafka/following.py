"""Records of the API, read as they come: new goals and tasks, and what people want of sessions.

They are read uncommitted: the API writes without transactions, and what owners write is left out.
So a record is there before the transaction of the moment ends.

A turn that is UNSURE, since its goal or task is not known or looks done with, is decided when all
has been folded that was acknowledged when the turn had been read: the API appends the record first.

Source: DESIGN "A turn"; SEMANTICS 8.2, 8.9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, cast

from streams.codec import Codec, DecodeError
from streams.core.turn.claim import ENDED
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.held import Held
from streams.core.turn.memory import Memory
from streams.core.turn.partition_key import partition_of_session
from streams.core.turn.record import desired_key, goal_key, job_key, session_record_key
from streams.core.turn.words import JOBS, SESSIONS
from streams.core.wire import AgentJobStatus
from streams.edge.turns.kafka.feed import Feed, Fetched, Place
from streams.edge.turns.kafka.partition import OwnedPartition
from streams.edge.turns.kafka.partition_shelf import row_of
from streams.edge.turns.kafka.taking import Taker
from streams.edge.turns.record_shelf import Gone
from streams.edge.turns.turn_codec import is_owners
from streams.errors import BrokerError
from streams.observe import logs
from streams.settings import Settings

__all__ = ["Following"]

_LOG = logs.logger(__name__)

_AGAIN_S = 0.5


class Following:
    """Reads records of all partitions of a worker.

    Args: partitions: those that are owned, by number.
          ask: calls what blocks, in a thread.
          changed: told when there may be something to begin.
    """

    def __init__(
        self,
        settings: Settings,
        codec: Codec,
        taker: Taker,
        partitions: Mapping[int, OwnedPartition],
        *,
        ask: Callable[..., Awaitable[Any]],
        changed: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._taker = taker
        self._partitions = partitions
        self._ask = ask
        self._changed = changed
        self._fail = fail
        self._doubts: dict[OwnedPartition, asyncio.Task[None]] = {}
        self._feed = Feed(
            settings,
            name="records",
            isolation="read_uncommitted",
            take=self._take,
            fail=fail,
            ends=True,
        )
        self.start, self.stop = self._feed.start, self._feed.stop

    def read(self, offsets: Mapping[Place, int], ticket: int) -> None:
        """Follow the records of a partition, from where loading them ended."""
        self._feed.read(offsets, ticket)

    def drop(self, partition: OwnedPartition) -> None:
        """Follow a partition no more."""
        self._feed.drop(partition.places, partition.ticket)

    def doubt(self, partition: OwnedPartition) -> None:
        """See to it that the unsure turns of a partition are decided."""
        if partition not in self._doubts:
            task = asyncio.ensure_future(self._make_certain(partition))
            self._doubts[partition] = task
            task.add_done_callback(lambda done: self._was_certain(partition, done))

    def _was_certain(self, partition: OwnedPartition, task: asyncio.Task[None]) -> None:
        del self._doubts[partition]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)
        elif partition.unsure and not partition.gone:
            self.doubt(partition)

    async def _make_certain(self, partition: OwnedPartition) -> None:
        while partition.unsure and not partition.gone:
            asked = dict(partition.unsure)
            try:
                await self._read_all(partition)
                await self._look_up(partition, asked)
            except BrokerError as error:
                extra = {"partition": partition.number, "reason": str(error)}
                _LOG.warning("turn_records_not_read", extra=extra)
                await asyncio.sleep(_AGAIN_S)
                continue
            for offset, held in asked.items():
                if partition.unsure.pop(offset, None) is not None:
                    self._warn_of_nothing(partition, held)
                    partition.owner.put_back(held, certain=True)
            self._changed()

    def _warn_of_nothing(self, partition: OwnedPartition, held: Held) -> None:
        """Tell of a turn without a goal or task: it is about to be skipped for good."""
        envelope = held.envelope
        if partition.owner.memory.claimable(envelope) is not None:
            return
        reason = "its goal or task is not there"
        home = partition_of_session(envelope.session_id, self._settings.agent_turns_partitions)
        if home != partition.number:
            reason = (
                f"its session lives in partition {home}: produce turns to it, or with the key "
                "session:<id> and partitioner murmur2"
            )
        extra = {"position": str(held.at), "job_id": envelope.job_id, "reason": reason}
        _LOG.warning("turn_without_record", extra={**extra, "record": envelope.payload_ref})

    async def _read_all(self, partition: OwnedPartition) -> None:
        """Wait until all is folded that the API has written by now."""
        for topic in (JOBS, SESSIONS):
            end = await self._ask(self._taker.end_of, topic, partition.number)
            await partition.read_up_to(topic, end)

    async def _look_up(self, partition: OwnedPartition, asked: Mapping[int, Held]) -> None:
        """Find on the shelf what memory had no room for, or was not loaded with."""
        memory = partition.owner.memory
        records, sessions = _missing(memory, asked.values())
        for kind, key, status, value in await self._found(partition, JOBS, records):
            if memory.claimable(records[key]) is None:  # else it came meanwhile, and is newer
                self._remember(memory, kind, key, status, value)
        for kind, key, status, value in await self._found(partition, SESSIONS, sessions):
            if not memory.knows(key):
                self._remember(memory, kind, key, status, value)
        for session_id in set(sessions.values()):
            if memory.desired(session_id) is None:
                memory.no_wish(session_id)

    @staticmethod
    async def _found(
        partition: OwnedPartition, topic: str, keys: Collection[str]
    ) -> list[tuple[str, str, str, bytes]]:
        return await partition.shelf.find(topic, keys) if keys else []

    def _remember(self, memory: Memory, kind: str, key: str, status: str, value: bytes) -> None:
        if value:
            memory.fold(kind, key, self._codec.decode(value)[1])
        elif status in ENDED:
            memory.ended(key, cast("AgentJobStatus", status))

    def _take(self, found: list[Fetched]) -> None:
        reached: dict[tuple[OwnedPartition, str], int] = {}
        for record in found:
            partition = self._partitions.get(record.partition)
            if partition is None or partition.ticket != record.ticket:
                continue
            if not record.at_end and record.key is not None:
                if not is_owners(record.headers):
                    self._learn(partition, record.topic, record.key, record.value)
                elif record.value is None:
                    partition.owner.parting.seen(record.key.decode(errors="replace"))
            reached[partition, record.topic] = record.offset + (not record.at_end)
        for (partition, topic), next_offset in reached.items():
            partition.followed(topic, next_offset)
            self._decide_known(partition)
        self._changed()

    def _learn(
        self, partition: OwnedPartition, topic: str, key: bytes, value: bytes | None
    ) -> None:
        text = key.decode(errors="replace")
        if value is None:
            partition.owner.learn("", text, None)
            partition.shelf.note([Gone(text, 0, 0)])
            return
        try:
            kind, found = self._codec.decode(value)
        except DecodeError as error:
            extra = {"topic": topic, "partition": partition.number, "key": text}
            _LOG.warning("turn_record_unreadable", extra={**extra, "reason": str(error)})
            return
        partition.owner.learn(kind, text, found)
        if "session_id" in found:
            partition.shelf.note([row_of(kind, text, found, value)])

    def _decide_known(self, partition: OwnedPartition) -> None:
        """Put back what was unsure and has something to do now."""
        for offset, held in list(partition.unsure.items()):
            if partition.owner.is_known(held):
                del partition.unsure[offset]
                partition.owner.put_back(held)


def _missing(
    memory: Memory, asked: Iterable[Held]
) -> tuple[dict[str, AgentTurnEnvelope], dict[str, str]]:
    """Return keys to be looked up: that of a record with its turn, of a session with its id."""
    records: dict[str, AgentTurnEnvelope] = {}
    sessions: dict[str, str] = {}
    for held in asked:
        envelope = held.envelope
        if memory.forgot_records and memory.claimable(envelope) is None:
            key_of = goal_key if envelope.kind == "goal_loop" else job_key
            records[key_of(envelope.payload_ref)] = envelope
        if memory.may_lack_session(envelope.session_id):
            for key_of_session in (session_record_key, desired_key):
                sessions[key_of_session(envelope.session_id)] = envelope.session_id
    return records, sessions
