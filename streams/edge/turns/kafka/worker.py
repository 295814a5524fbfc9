"""A worker of turns on Kafka: its partitions come and go, and their turns share its slots.

| what happens to a partition | what becomes of its turns that run |
|---|---|
| another member wants it | they may end within TURN_HANDOVER_S, then they are given back |
| the worker stops | the same, within HARN_DRAIN_MS, while it is no member any more |
| it is lost, or another owner has fenced it | their bodies are cancelled, nothing is written |
| a transaction fails | the same; it is taken anew as long as the group says that it is ours |

Source: DESIGN "A turn"; seed queue-driven-agent-dispatch, "Delivery and idempotency guarantees".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

from streams.agents.transaction import OVERDUE_FACTOR, Fenced, Overdue
from streams.codec import Codec
from streams.core.turn.memory import KEPT_MAX
from streams.core.turn.owner import Owner
from streams.core.turn.words import TURNS
from streams.core.wire import TurnOutcome, TurnReleaseReason
from streams.edge.turns.body import Bodies
from streams.edge.turns.kafka.arrivals import Arrivals
from streams.edge.turns.kafka.batch_writer import BatchWriter
from streams.edge.turns.kafka.departures import END_S, Departures
from streams.edge.turns.kafka.feed import Feed, Fetched
from streams.edge.turns.kafka.following import Following
from streams.edge.turns.kafka.group_protocol import chosen
from streams.edge.turns.kafka.membership import GROUP, Membership
from streams.edge.turns.kafka.partition import OwnedPartition
from streams.edge.turns.kafka.partition_shelf import PartitionShelf
from streams.edge.turns.kafka.presence import Doing
from streams.edge.turns.kafka.retention import Retention
from streams.edge.turns.kafka.running import Running
from streams.edge.turns.kafka.shelf_builder import ShelfBuilder
from streams.edge.turns.kafka.slots import Slots
from streams.edge.turns.kafka.taking import Taken, Taker
from streams.errors import BrokerError
from streams.observe import logs
from streams.settings import Settings

__all__ = ["TurnObserver", "TurnWorker"]

_LOG = logs.logger(__name__)

_AGAIN_S = 0.5
_THREADS_MAX = 64
_ASKS = 4

_Answer = TypeVar("_Answer")


class TurnObserver(Protocol):
    """Told on the event loop."""

    def turn_ended(self, outcome: str) -> None:
        """The end of a turn is durable: `completed`, `failed`, `skipped` or `expired`."""
        ...


class TurnWorker:
    """One member of the group; made and used inside one event loop.

    Args: token, host: written into what it claims.
          slots: turns that run at once.
          kept_max: records of each kind that are kept of a partition; others are looked up.
    """

    def __init__(
        self,
        settings: Settings,
        codec: Codec,
        bodies: Bodies,
        *,
        slots: int,
        token: str,
        host: str,
        observer: TurnObserver,
        kept_max: int = KEPT_MAX,
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._token, self._host = token, host
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self.tell: Callable[[], None] = lambda: None
        """Called when other turns run, or in other partitions."""
        self.draining = False
        self._partitions: dict[int, OwnedPartition] = {}
        self._assigned: set[int] = set()
        self._tickets = 0
        # Each partition may have lost one to a call that hangs.
        self._threads = min(settings.agent_turns_partitions, _THREADS_MAX)
        self._pool = ThreadPoolExecutor(2 * self._threads, thread_name_prefix="turns")
        self._hanging = 0
        # What is asked of the broker does not wait for threads that bodies may hold.
        self._asks = ThreadPoolExecutor(_ASKS, thread_name_prefix="turns-asks")
        self._builder = ShelfBuilder(settings)
        self._lookups = ThreadPoolExecutor(1, thread_name_prefix="turns-lookups")
        self._taker = Taker(settings, codec, self._pool, kept_max=kept_max)
        self._arrivals = Arrivals(
            self._taker, self, ask=self._ask, silence_ms=settings.session_timeout_ms
        )
        self._departures = Departures(
            self._taker,
            self,
            ask=self._ask,
            now_ms=self.now_ms,
            every_s=settings.heartbeat_interval_ms / 1_000,
        )
        self._writer: BatchWriter | None = None
        self._turns = Feed(
            settings, name="turns", isolation="read_committed", take=self._read, fail=self.fail
        )
        self._records = Following(
            settings,
            codec,
            self._taker,
            self._partitions,
            ask=self._ask,
            changed=self.changed,
            fail=self.fail,
        )
        self._slots = Slots(slots, self._open, bodies, codec, self.now_ms, self)
        self._membership = Membership(settings, self)
        retention_ms = settings.agent_job_retention_ms
        self._retention = Retention(
            self._partitions, retention_ms, now_ms=self.now_ms, fail=self.fail
        )

    @staticmethod
    def now_ms() -> int:
        """Return the time of this host."""
        return time.time_ns() // 1_000_000

    def doing(self) -> Doing:
        """Return what the worker does now."""
        return Doing(
            frozenset(each.envelope.session_id for each in self._runs()),
            frozenset(self._partitions),
            self.draining,
        )

    async def start(self) -> None:
        """Join the group.  Raises BrokerError when the broker does not answer, or refuses."""
        choice = await self._ask(chosen, self._settings, GROUP)
        group_metadata = await self._ask(self._taker.group_metadata)
        self._writer = BatchWriter(
            self._codec,
            self._pool,
            group_metadata,
            self._taker.end_of,
            self._settings.transaction_timeout_ms / 1_000 * OVERDUE_FACTOR,
        )
        self._turns.start()
        self._records.start()
        self._membership.start(choice)
        self._retention.start()

    async def stop(self) -> None:
        """Leave the group, and hand over all that is owned within `drain_ms`."""
        self.draining = True
        await self._retention.stop()
        self._assigned.clear()
        self.tell()
        budget_s = self._settings.drain_ms / 1_000
        await self._departures.begin(list(self._partitions.values()), "shutdown", budget_s)
        await self._membership.stop()
        await asyncio.gather(self._arrivals.ended(), self._departures.ended())
        self._slots.stop()
        await asyncio.gather(self._turns.stop(), self._records.stop())
        await self._ask(self._taker.close)
        self._builder.stop()
        for pool in (self._asks, self._lookups):
            pool.shutdown(wait=False)
        self._pool.shutdown(wait=False)

    async def _ask(self, question: Callable[..., _Answer], *args: object) -> _Answer:
        return await self._loop.run_in_executor(self._asks, question, *args)

    def fail(self, error: BaseException) -> None:
        """End the worker with an error."""
        if not self.failed.done():
            self.failed.set_exception(error)

    # ------------------------------------------------------------------ the group's words
    def assigned(self, partitions: Sequence[int]) -> None:
        """Take partitions."""
        self._assigned.update(partitions)
        if not self.draining:
            self._arrivals.take(partitions)

    async def revoked(self, partitions: Sequence[int]) -> None:
        """Hand partitions over; return when other members may be given them."""
        self._assigned.difference_update(partitions)
        reason: TurnReleaseReason = "shutdown" if self.draining else "handover"
        owned = [self._partitions[each] for each in partitions if each in self._partitions]
        budget_s = float(self._settings.turn_handover_s)
        await self._departures.begin(owned, reason, budget_s)
        await self._arrivals.settled()

    def lost(self, partitions: Sequence[int]) -> None:
        """Forget partitions."""
        self._assigned.difference_update(partitions)
        for each in partitions:
            if each in self._partitions:
                self.forget(self._partitions[each])

    # ------------------------------------------------------------------ taking
    def is_wanted(self, partition: int) -> bool:
        """Whether a partition is to be taken."""
        owned = self._partitions.get(partition)
        return partition in self._assigned and (owned is None or owned.owner.lanes.stopped)

    def is_leaving(self, partition: int) -> bool:
        """Whether a partition is being handed over."""
        return partition in self._partitions

    def own(self, number: int, taken: Taken) -> None:
        """Read and run the turns of a partition."""
        assert self._writer is not None, "nothing is taken before the start"
        settings = self._settings
        owner = Owner(
            taken.loaded,
            token=self._token,
            host=self._host,
            max_beyond_prefix=settings.turns_max_beyond_prefix,
        )
        self._tickets += 1
        ticket = self._tickets
        shelf = PartitionShelf(
            self._codec,
            taken.records_from,
            self._builder,
            ask=partial(self._loop.run_in_executor, self._lookups),
            fail=self.fail,
        )
        partition = OwnedPartition(
            owner, taken.producer, self._writer, self, shelf=shelf, ticket=ticket
        )
        self._partitions[number] = partition
        extra = {
            "partition": number,
            "position": taken.loaded.committed,
            "fence": owner.holder.fence,
        }
        _LOG.info("turns_taken", extra=extra)
        self._records.read(taken.records_from, ticket)
        self._turns.read({(TURNS, number): taken.loaded.committed}, ticket)
        self.runs_changed()

    # ------------------------------------------------------------------ reading and running
    def _read(self, found: list[Fetched]) -> None:
        for record in found:
            partition = self._partitions.get(record.partition)
            if partition is not None and partition.ticket == record.ticket:
                partition.fetched(record)
        self.changed()

    def fill(self, partition: OwnedPartition) -> None:
        """Take what was read of a partition, and read more, or no more, of it."""
        partition.absorb()
        if partition.wants_pause != partition.paused:
            partition.paused = not partition.paused
            place = (TURNS, partition.number)
            self._turns.pause(place, partition.ticket, paused=partition.paused)

    def doubt(self, partition: OwnedPartition) -> None:
        """See to it that unsure turns are decided."""
        self._records.doubt(partition)

    def changed(self) -> None:
        """Look for turns to begin."""
        self._slots.look_soon()

    def runs_changed(self) -> None:
        """Say that other turns run, or in other partitions."""
        self.tell()

    def ended(self, outcomes: Sequence[TurnOutcome]) -> None:
        """Count ends that are durable."""
        for outcome in outcomes:
            self._observer.turn_ended(outcome)

    def _open(self) -> Iterable[OwnedPartition]:
        return self._partitions.values()

    def _runs(self) -> Iterable[Running]:
        return (run for each in self._partitions.values() for run in each.runs.values())

    # ------------------------------------------------------------------ giving up
    def read_no_more(self, partition: OwnedPartition) -> None:
        """Read no more turns of a partition."""
        self._turns.drop([(TURNS, partition.number)], partition.ticket)

    def broke(self, partition: OwnedPartition, error: BaseException) -> None:
        """Give up a partition whose transaction failed; take it anew if it is still ours."""
        self.forget(partition)
        self._hanging += isinstance(error, Overdue)
        if not isinstance(error, BrokerError) or self._hanging > self._threads:
            self.fail(error)
            return
        is_fenced = isinstance(error, Fenced)
        extra = {"partition": partition.number, "fenced": is_fenced, "reason": str(error)}
        _LOG.warning("turns_given_up", extra=extra)
        # Who was fenced may be a member no more without knowing: within this time it hears of it.
        wait_s = self._settings.session_timeout_ms / 1_000 if is_fenced else _AGAIN_S
        self._loop.call_later(wait_s, self._take_again, partition.number)

    def _take_again(self, number: int) -> None:
        if number in self._assigned and not self.draining:
            self.assigned([number])

    def forget(self, partition: OwnedPartition) -> None:
        """Write nothing more of a partition; end its bodies."""
        if self._partitions.get(partition.number) is not partition:
            return
        del self._partitions[partition.number]
        runs = list(partition.runs.values())
        partition.close()
        for each in runs:
            self._loop.call_later(END_S, each.cancel)
        self.read_no_more(partition)
        self._records.drop(partition)
        self.runs_changed()
