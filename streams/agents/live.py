"""A stage on Faust: takes partitions, folds batches, commits each, gives partitions up.

    assigned → fence → committed offset → load → seek → [batch → fold → commit]* → revoked

Invariants: a batch is committed under the generation it was fetched in, or dropped; memory never
stands between two transactions; a fold that raises stops its own partition only; a broker error
ends the process with nothing half done.

Source: DESIGN "The stage runtime"; FINDINGS 10.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import faust
from faust.exceptions import Skip
from faust.types import TP

from streams.agents.batch import Batch
from streams.agents.changelog import StateReader, offset_metadata
from streams.agents.checkpointer import Checkpointer
from streams.agents.halting import Halting
from streams.agents.owned import Owned
from streams.agents.pump import Pump
from streams.agents.standing import Standing
from streams.agents.stores import Stores
from streams.agents.taking import Taking
from streams.agents.ticks import Ticker
from streams.agents.transaction import OVERDUE_FACTOR, Faults, PartitionProducer, Target
from streams.core.revision import policy_in_force
from streams.engine import BoundStage, FoldFailed, Step, fold_batch, settle
from streams.errors import BrokerError
from streams.observe import logs
from streams.observe.stage_metrics import StageMetrics
from streams.settings import Settings

_log = logs.logger(__name__)

_COMMITS_AT_ONCE = 64
_HALT_TIMEOUT_S = 10.0
_MARK_EVERY_S = 15.0


class LiveStage:
    """One stage of this member.  Belongs to the event loop; what blocks runs in its threads."""

    def __init__(
        self,
        app: faust.App,
        bound: BoundStage,
        settings: Settings,
        *,
        journal_partitions: int,
        metrics: StageMetrics,
        faults: Faults,
        pump: Pump | None = None,
    ) -> None:
        stage = bound.declaration
        self.app: Any = app  # Faust types its own parts, not the ones that replace them
        self.bound = bound
        self.settings = settings
        self.metrics = metrics
        self.pump = pump
        self.source = stage.source
        self.name = stage.name
        self.owned: dict[int, Owned] = {}
        self.ready = asyncio.Event()
        self._generation = -1
        self._taken_in = -1
        self._faults = faults
        self._journal_partitions = journal_partitions
        self._committing: dict[asyncio.Future[None], Owned] = {}
        self._doing: set[asyncio.Task[Any]] = set()
        self.pool = ThreadPoolExecutor(_COMMITS_AT_ONCE, thread_name_prefix=f"{stage.name}-txn")
        self.reader = StateReader(
            settings, group_id=app.conf.id, source=stage.source, changelog=stage.changelog
        )
        self.stores = Stores(settings, stage.name, bound.codec, self.reader)
        self._ticker = Ticker(settings, stage.source, bound.codec.encoder("tick"))
        self._checkpointer = Checkpointer(settings, bound, self.pool)
        self._halting = Halting(self)
        self._taking = Taking(self)
        self._standing = Standing(self)

    # ------------------------------------------------------------------ taking and giving up
    def new_producer(self, partition: int) -> PartitionProducer:
        """The transactional producer of a partition, not yet fenced."""
        stage = self.bound.declaration
        target = Target(
            source=stage.source,
            partition=partition,
            changelog=stage.changelog,
            journal="audit.journal",
            journal_partition=partition % self._journal_partitions,
            journal_key=f"{stage.name}/{partition}".encode(),
        )
        return PartitionProducer(
            self.settings, f"{self.app.conf.id}-{stage.name}-{partition}", target, self._faults
        )

    async def take(self, assignment: set[TP], generation: int) -> dict[TP, int]:
        """Take the assigned partitions of the mailbox.

        Returns: where each must be read from; empty when the group has moved on meanwhile.
        """
        await self.halt()
        started = time.monotonic()
        partitions = sorted(tp.partition for tp in assignment if tp.topic == self.source)
        # In a generation that we were not part of, another owner may have fenced what is ours.
        doubtful = generation != self._taken_in + 1
        owned = await self._taking.take(partitions, doubtful=doubtful)
        if generation != self.app.consumer_generation_id:
            _log.info(
                "partitions_taken_too_late", extra={"stage": self.name, "generation": generation}
            )
            return {}
        self._taken_in = generation
        self._generation = generation
        offsets: dict[TP, int] = {}
        for partition, entry in owned.items():
            assert entry.memory is not None, "a taken partition is loaded"
            self._try_again(entry)
            offsets[TP(self.source, partition)] = entry.memory.position.next_offset
            self._arm(entry)
        self.app.publish_rows(owned)
        self.metrics.owned(owned)
        self._standing.start()
        self.ready.set()
        _log.info(
            "partitions_taken",
            extra={
                "stage": self.name,
                "generation": generation,
                "partitions": partitions,
                "seconds": round(time.monotonic() - started, 3),
            },
        )
        return offsets

    def take_soon(self, assignment: set[TP], generation: int) -> None:
        """As `take`, for somebody who cannot wait."""
        self._do(self.take(assignment, generation))

    async def halt(self) -> None:
        """Start no new commit; wait, bounded, for those under way."""
        self._generation = -1
        self.ready.clear()
        self._ticker.clear()
        self._halting.forget()
        if self._committing:
            await asyncio.wait(list(self._committing), timeout=_HALT_TIMEOUT_S)
        for entry in self._committing.values():
            entry.outcome_unknown = True

    def _try_again(self, entry: Owned) -> None:
        """A partition that was halted meets its record again: with another fold, it may pass."""
        if entry.halted_at is not None:
            entry.halted_at = None
            self.metrics.halted(entry.partition, halted=False)

    def crash(self, error: BaseException) -> None:
        """End the role: a part of it that nothing waits for has failed."""
        self._do(self.app.crash(error))

    def _do(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._doing.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._doing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.crash(error)

    async def close(self) -> None:
        """Let go of connections, threads and stores.  `halt` came before."""
        self._standing.stop()
        self._ticker.close()
        if self.pump is not None:
            await self.pump.close()
        loop = asyncio.get_running_loop()
        closing = loop.run_in_executor(self.pool, self.reader.close)
        await self._taking.ended()
        await closing
        await self._checkpointer.close()
        for entry in self.owned.values():
            if entry.memory is not None:
                self.stores.close(entry.memory.rows.store)
        self.owned = {}
        self.pool.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------ batches
    def begin(self, batch: Batch) -> Batch:
        """Stream processor: bind a batch to its partition just before the agent's body sees it."""
        entry = self.owned.get(batch.tp.partition)
        if (
            entry is None
            or entry.memory is None
            or batch.generation != self._generation
            or not self.app.consumer.is_current(batch)
            or entry.halted_at
            or entry.step_dropped
        ):
            raise Skip
        next_offset = entry.memory.position.next_offset
        if batch.records[0].offset < next_offset:  # positions can step back around a seek
            batch.records = [record for record in batch.records if record.offset >= next_offset]
            if not batch.records:
                raise Skip
        if batch.follows > next_offset:
            self._fetch_again(batch, next_offset)
            raise Skip
        batch.owned = entry
        self._ticker.disarm(entry.partition)
        return batch

    def _fetch_again(self, batch: Batch, next_offset: int) -> None:
        """Go back for what lies between the state and a batch: something has dropped it.

        Nothing should; and if something does, no record is passed over.
        """
        place = {"stage": self.name, "partition": batch.tp.partition}
        missing = {"next_offset": next_offset, "follows": batch.follows}
        _log.warning("records_fetched_again", extra={**place, **missing})
        self._do(self.app.consumer.seek_to({batch.tp: next_offset}))

    async def process(self, batch: Batch) -> None:
        """Fold and commit a bound batch; a full one takes several transactions."""
        entry = batch.owned
        assert entry is not None, "begin has bound the batch"
        records = batch.records
        while records:
            going = await self._admitted(entry, records, batch.generation)
            step = await self._fold_or_halt(entry, going, batch.generation) if going else None
            if step is None or not await self._commit(entry, step, batch.generation):
                return
            records = records[step.records :]
            if self.pump is not None:
                self.pump.folded(entry.partition, step.position.next_offset)
        self._arm(entry)
        await self._after_commit(entry)

    async def _admitted(self, entry: Owned, records: list[Any], generation: int) -> list[Any]:
        """Return what may be folded now: all, unless a pump holds some of it back for a while.

        Nothing once the generation is over.
        """
        if self.pump is None:
            return records
        assert entry.memory is not None, "a bound partition is loaded"
        admitted = await self.pump.admit(
            len(records),
            max_outstanding=policy_in_force(entry.memory.state)["pump_max_outstanding"],
            appended_ms=records[0].timestamp,
            wanted=lambda: generation == self._generation,
        )
        return records if admitted >= len(records) else records[:admitted]

    async def _fold_or_halt(self, entry: Owned, records: list[Any], generation: int) -> Step | None:
        """The next step; None when the generation is over, or the fold raised and it is halted."""
        if generation != self._generation:
            return None
        if entry.told:
            records = records[:1]  # what an operator said is about one record
        started = time.perf_counter()
        try:
            step = self._fold(entry, records)
        except FoldFailed as failure:
            entry.rebuild(self.bound)
            if failure.suspects > 1:
                half = records[: failure.suspects // 2]
                return await self._fold_or_halt(entry, half, generation)
            await self._commit_prefix(entry, records[: failure.index], generation)
            if generation == self._generation:  # else its next owner meets the record again
                self._halting.stop(entry, failure)
            return None
        self.metrics.folded(step, time.perf_counter() - started)
        return step

    def _fold(self, entry: Owned, records: list[Any]) -> Step:
        assert entry.memory is not None, "a bound partition is loaded"
        return fold_batch(
            entry.memory,
            records,
            skips=frozenset(entry.skips),
            timer_skips=frozenset(entry.timer_skips),
        )

    async def _commit_prefix(self, entry: Owned, records: list[Any], generation: int) -> None:
        """Commit the records before a failing one: they fold alike, whatever the cut."""
        while records:
            step = self._fold(entry, records)
            if not await self._commit(entry, step, generation):
                return
            records = records[step.records :]

    async def _commit(self, entry: Owned, step: Step, generation: int) -> bool:
        """Commit a step in a thread; False when its generation is over and it was dropped."""
        memory = entry.memory
        assert memory is not None, "a folded partition is loaded"
        metadata, member_generation = self.app.consumer.group_metadata()
        if generation != self._generation or member_generation != generation:
            entry.step_dropped = True
            return False
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        self._committing[ended] = entry
        position = step.position
        started = time.perf_counter()
        try:
            text = offset_metadata(position.seq, position.now_ms, position.chain)
            committing = loop.run_in_executor(
                self.pool, entry.producer.commit, step, text, metadata
            )
            await self._in_time(committing, entry.partition, position.seq)
            # Given up while it was under way: whoever takes the partition reads what became of it.
            if entry.outcome_unknown or entry.memory is not memory:
                return False
            settle(memory, step)
            entry.forget_words()
        except BaseException as error:
            entry.outcome_unknown = True
            if isinstance(error, BrokerError):
                _log.error(
                    "transaction_failed",
                    extra={"stage": self.name, "partition": entry.partition, "reason": str(error)},
                )
            raise
        finally:
            self._committing.pop(ended, None)
            if not ended.done():
                ended.set_result(None)
        self.metrics.committed(step, time.perf_counter() - started)
        return True

    async def _in_time(self, committing: asyncio.Future[None], partition: int, seq: int) -> None:
        """Wait for a commit as long as one can still succeed.  Raises: BrokerError."""
        limit_s = self.settings.transaction_timeout_ms / 1000 * OVERDUE_FACTOR
        try:
            async with asyncio.timeout(limit_s):
                await committing
        except TimeoutError as error:
            message = f"transaction {seq} of {self.name}/{partition} did not end in {limit_s:g} s"
            raise BrokerError(message, retryable=True) from error

    def _arm(self, entry: Owned) -> None:
        assert entry.memory is not None, "an armed partition is loaded"
        memory = entry.memory
        self._ticker.arm(entry.partition, memory.rows.next_tick_ms(), memory.position.now_ms)

    async def _after_commit(self, entry: Owned) -> None:
        """What must not run while a step is open: checkpoints, and the rocksdb replay bound."""
        assert entry.memory is not None, "a committed partition is loaded"
        await self._checkpointer.consider(entry.memory)
        now = time.monotonic()
        if now - entry.marked_at_s >= _MARK_EVERY_S and self.settings.store == "rocksdb":
            entry.marked_at_s = now
            loop = asyncio.get_running_loop()
            store = entry.memory.rows.store
            try:
                await loop.run_in_executor(self.pool, self.stores.mark, entry.partition, store)
            except BrokerError as error:  # a later start replays more than it has to
                place = {"stage": self.name, "partition": entry.partition}
                _log.warning("store_not_marked", extra={**place, "reason": str(error)})
