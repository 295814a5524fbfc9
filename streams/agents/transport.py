"""Faust's aiokafka transport, changed where a stage needs it.

Faust keeps group membership, assignment and flow; fetched records of the stage's mailbox bypass
its per-record path. `perform_seek` is where a partition is taken: Faust calls it in its recovery
task, after a rebalance.  Flow goes on meanwhile, so that lists are fetched, and dropped, from
wherever the client happens to stand; only what was fetched after the seek counts.

Invariant: the lists that are handed on under one seek of a partition follow one another without a
gap; whoever drops one of them seeks again.  Each says what it follows, so that one that is missing
is noticed, and fetched again, where lists are folded.

Private attributes of aiokafka are used here and nowhere else; the dependency is pinned, tests
cover each.

Source: FINDINGS 1, 8, 10, 14.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

from aiokafka.structs import TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode import Service
from mode.threads import ServiceThread

from streams.agents import fetched_records
from streams.agents.batch import Batch

fetched_records.install()

FETCH_WAIT_BUSY_MS = 10
"""A partition consumed late misses the fetch that is under way and waits for it to end."""

FETCH_WAIT_IDLE_MS = 100
"""After a second of silence: a tenth of the fetch requests, and an idle member costs next to
nothing."""

_IDLE_AFTER_S = 1.0
_PAUSED_POLL_S = 0.002
_NOTHING_POLL_S = 0.2
_BUFFERED_TIMEOUT_S = 0.02


class _Fetched(NamedTuple):
    """Records of one partition in offset order, and which seek they were fetched after."""

    seek: int
    records: list[Any]


class _NoReadOffsets(MutableMapping[TP, "int | None"]):
    """Faust's notes of how far it has read, kept empty.

    It notes an offset once a list is handed on, also when a seek went back meanwhile, and would
    then drop what is fetched again.
    """

    def __getitem__(self, tp: TP) -> int | None:
        return None

    def __setitem__(self, tp: TP, offset: int | None) -> None:
        return None

    def __delitem__(self, tp: TP) -> None:
        return None

    def __iter__(self) -> Iterator[TP]:
        return iter(())

    def __len__(self) -> int:
        return 0


class ServedThread(ServiceThread):
    """A thread of Faust's that is waited for without holding up the event loop.

    Faust joins its threads from the loop itself, while a thread may still wait for an answer of
    that loop, as a rebalance does that is under way: both would wait for ever.
    """

    abstract = True

    async def stop(self) -> None:
        """Stop, and wait until the thread has ended."""
        if self._started.is_set():
            await Service.stop(self)
            if self._thread is not None:
                await asyncio.to_thread(self._thread.stop)


class StageConsumerThread(ServedThread, driver.AIOKafkaConsumerThread):
    """The thread that runs aiokafka."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._seeks: dict[TP, int] = {}

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer: Any = super()._create_worker_consumer(transport)
        # Faust hard-codes read_uncommitted and 1.5 s; both are read when the consumer starts.
        consumer._isolation_level = "read_committed"
        consumer._fetch_max_wait_ms = FETCH_WAIT_BUSY_MS
        return consumer

    async def on_thread_stop(self) -> None:
        """Leave the group, also as a static member: scaling down then takes under a second.

        aiokafka never sends LeaveGroup for a static member; the broker accepts one by member id.
        """
        consumer: Any = self._consumer
        if consumer is not None and consumer._coordinator is not None:
            consumer._coordinator._group_instance_id = None
        await super().on_thread_stop()

    async def _fetch_records(self, *args: Any, **kwargs: Any) -> dict[Any, _Fetched]:
        """Fetch, and note which seek each list comes after: nothing runs in between."""
        found = await super()._fetch_records(*args, **kwargs)
        return {tp: _Fetched(self._seeks.get(tp, 0), records) for tp, records in found.items()}

    async def seek_numbered(self, seeks: Mapping[TP, int], offsets: Mapping[TP, int]) -> None:
        """Seek; what is fetched from now on bears the numbers in `seeks`."""
        await self.call_thread(self._seek_numbered, seeks, offsets)

    async def _seek_numbered(self, seeks: Mapping[TP, int], offsets: Mapping[TP, int]) -> None:
        self._seeks.update(seeks)
        await self._seek_wait(self._ensure_consumer(), offsets)  # it seeks before it first waits

    def set_fetch_wait_ms(self, wait_ms: int) -> None:
        """Change how long the broker may hold an empty fetch; takes effect with the next one."""
        consumer: Any = self._consumer
        if consumer is not None and consumer._fetcher is not None:
            consumer._fetcher._fetch_max_wait_ms = wait_ms


class StageConsumer(driver.Consumer):
    """Yields one message per fetched record list of the stage's mailbox."""

    app: Any
    _thread: Any
    _heard_at = 0.0
    _fetch_wait_ms = FETCH_WAIT_BUSY_MS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._handed: dict[TP, int] = {}
        self._lists: deque[tuple[TP, Batch]] = deque()  # fetched, and not handed on yet
        self._seeks: dict[TP, int] = {}
        self._read_offset = _NoReadOffsets()

    def _new_consumer_thread(self) -> Any:
        return StageConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def getmany(
        self,
        timeout: float,  # noqa: ASYNC109 - Faust's signature
    ) -> AsyncIterator[tuple[TP, Any]]:
        """Fetched records: lists for the stage, single messages for any other topic.

        A list may come from a fetch that began before a seek and ended after it, while the flow is
        still stopped: it is kept until the flow goes on, since nobody would seek for it again.
        """
        live = self.app.live
        waiting = bool(self._lists) and self.flow_active
        records = {} if waiting else (await self._wait_next_records(timeout))[0]
        generation = self.app.consumer_generation_id
        self._adapt_fetch_wait(waiting or bool(records))
        others: dict[TP, Any] = {}
        for tp, (seek, fetched) in records.items():
            if tp.topic == live.source:
                self._lists.append((tp, Batch(tp, generation, fetched, seek)))
            else:
                others[tp] = fetched
        while self._lists and self.flow_active and not self.should_stop:
            tp, batch = self._lists.popleft()
            # Others were fetched before a seek that has been made, or will be.
            if batch.generation == self.app.consumer_generation_id and self.is_current(batch):
                batch.follows = self._handed.get(tp, 0)
                self._handed[tp] = batch.next_offset
                yield tp, self._batch_message(tp, batch)
        if others and self.flow_active and not self.should_stop:
            for tp, record in self.scheduler.iterate(others):
                if not self.flow_active or self.app.consumer_generation_id != generation:
                    break
                yield tp, self._to_message(tp, record)

    def _batch_message(self, tp: TP, batch: Batch) -> Any:
        first = batch.records[0]
        message: Any = driver.ConsumerMessage
        return message(
            tp.topic,
            tp.partition,
            first.offset,
            first.timestamp / 1000.0,
            first.timestamp_type,
            None,
            None,
            batch,
            None,
            0,
            0,
            tp,
            generation_id=batch.generation,
        )

    def _adapt_fetch_wait(self, heard: bool) -> None:  # noqa: FBT001
        now = time.monotonic()
        if heard:
            self._heard_at = now
        wait_ms = FETCH_WAIT_BUSY_MS if now - self._heard_at < _IDLE_AFTER_S else FETCH_WAIT_IDLE_MS
        if wait_ms != self._fetch_wait_ms:
            self._fetch_wait_ms = wait_ms
            self._thread.set_fetch_wait_ms(wait_ms)

    async def _wait_next_records(
        self,
        timeout: float,  # noqa: ASYNC109 - Faust's signature
    ) -> tuple[Any, Any]:
        """Faust's own, but paused partitions are looked at again after 2 ms instead of 1 s."""
        if not self.flow_active:
            can_resume: Any = self.can_resume_flow
            await self.wait(can_resume)
        try:
            self.not_waiting_next_records.clear()
            active = set(self._get_active_partitions())
            buffered = self._buffered_partitions
            if not active:
                await asyncio.sleep(_PAUSED_POLL_S if buffered else _NOTHING_POLL_S)
                return {}, active
            records = await self._getmany(
                active_partitions=active, timeout=_BUFFERED_TIMEOUT_S if buffered else timeout
            )
            return records, active
        finally:
            self.not_waiting_next_records.set()

    async def verify_all_partitions_active(self) -> None:
        """Leave Faust's watch over its own delivery, acks and commits out: stages use none of them.

        It took every changelog for a stream that hangs, and from the fifth minute on each idle
        stage logged an error four times a minute.  `harn_stage_lag_records` tells of real ones.
        """

    async def perform_seek(self) -> None:
        """Take the assigned partitions, then seek each to where its state stands."""
        await super().perform_seek()
        seeks = await self.app.live.take(self.assignment(), self.app.consumer_generation_id)
        if seeks:
            await self.seek_to(seeks)

    def waiting(self, tp: TP, next_offset: int) -> int:
        """How many offsets lie between a partition's state and its end.

        Transaction markers take offsets, too: once everything fetched is folded and the end is
        read, nothing waits, whatever the offsets say.
        """
        end = self.highwater(tp) or 0
        if self._handed.get(tp, 0) <= next_offset and self._position(tp) >= end:
            return 0
        return max(end - next_offset, 0)

    def _position(self, tp: TP) -> int:
        """Where the next fetch of a partition begins; 0 while that is not known."""
        assignment = self._thread._ensure_consumer()._subscription.subscription.assignment
        state = assignment.state_value(TopicPartition(*tp)) if assignment else None
        return state.position if state is not None and state.has_valid_position else 0

    def seek_to(self, offsets: dict[TP, int]) -> Coroutine[Any, Any, None]:
        """Go on at these offsets; from this call on no list that was fetched before counts.

        The call itself counts, before what it returns is waited for.
        """
        seeks = {tp: self._seeks.get(tp, 0) + 1 for tp in offsets}
        self._seeks.update(seeks)
        self._handed.update(offsets)
        sought: Coroutine[Any, Any, None] = self._thread.seek_numbered(seeks, offsets)
        return sought

    def is_current(self, batch: Batch) -> bool:
        """Whether a batch was fetched after the last seek of its partition."""
        return batch.seek == self._seeks.get(batch.tp, 0)

    def group_metadata(self) -> tuple[bytes, int]:
        """This member as librdkafka's transactions want it, and its generation.

        The generation fences besides the transactional id: a member that was voted out cannot
        commit.
        """
        coordinator = self._thread._ensure_consumer()._coordinator
        instance: str | None = coordinator._group_instance_id
        instance_part = b"\x01" if not instance else b"\0" + instance.encode() + b"\0"
        metadata = (
            b"CGMDv2:"
            + struct.pack("=i", coordinator.generation)
            + self.app.conf.id.encode()
            + b"\0"
            + (coordinator.member_id or "").encode()
            + b"\0"
            + instance_part
        )
        return metadata, coordinator.generation


class StageTransport(driver.Transport):
    """aiokafka transport with the consumer above."""

    Consumer = StageConsumer
