"""Everyone who works on the log: owners of stage partitions, invokers, workers, a broadcaster.

Nobody acts by himself: `actions` says what could happen now, and the driver chooses.  Whoever is
lost is replaced, which is an action of its own, so that others go on in between.

Source: DESIGN "Roles", "The stage runtime".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from streams.codec import Codec
from streams.core.record import Position
from streams.core.state import Fold
from streams.engine import BoundStage, FoldFailed
from streams.stages import FOLDS, bind
from streams.testing.broadcaster import MemoryBroadcaster
from streams.testing.canceller import MemoryCanceller
from streams.testing.chance import Chance
from streams.testing.chaos import Chaos
from streams.testing.invoker import INVOCATIONS, Duration, HandlerSource, MemoryInvoker, Run
from streams.testing.memory_kafka import Fenced, MemoryKafka
from streams.testing.owner import Crashed, CrashPoint, Observer, StageOwner
from streams.testing.relay import MemoryRelay
from streams.testing.worker import MemoryWorker, WorkerTerms
from topology import Topology
from topology.model import TICK

Action = Callable[[], object]

_STALLS = (CrashPoint.IN_TRANSACTION, CrashPoint.BEFORE_COMMIT)
_ROOM = 1_000  # records of a batch when nothing is left to chance


class Staff(NamedTuple):
    """Who runs handlers, and how."""

    handlers: HandlerSource
    duration: Duration
    invokers: int
    outstanding_max: int
    lease_ms: int


class Members:
    """The members of every role, over one log."""

    def __init__(
        self,
        kafka: MemoryKafka,
        codec: Codec,
        topology: Topology,
        staff: Staff,
        *,
        chaos: Chaos | None,
        observe: Observer,
        folds: Mapping[str, Fold],
    ) -> None:
        self.runs: list[Run] = []
        self.stages: dict[str, BoundStage] = bind(
            codec, kafka.partitions, topology, {**FOLDS, **folds}
        )
        self.invokers: list[MemoryInvoker] = []
        self.workers: list[MemoryWorker] = []
        self.fenced = 0
        self.crashed = 0
        self._kafka = kafka
        self._codec = codec
        self._staff = staff
        self._chaos = chaos
        self._chance = Chance(0 if chaos is None else chaos.seed)
        self._observe = observe
        self._zombies: list[StageOwner] = []
        self._hired = 0
        self._generation = 0
        self._broadcaster = MemoryBroadcaster(kafka, codec)
        self._canceller = MemoryCanceller(kafka)
        self._topology = topology
        self._relay = MemoryRelay(kafka, codec, topology)
        self._owners: dict[tuple[str, int], StageOwner | None] = {}
        for name, stage in self.stages.items():
            for partition in range(stage.partitions):
                self._owners[name, partition] = None
                self.take(name, partition)
        for _ in range(staff.invokers):
            self._hire()
        self.rebalance()

    # ------------------------------------------------------------------ stage partitions
    def take(self, stage: str, partition: int) -> StageOwner:
        """Give a stage partition a new owner; whoever had it is fenced."""
        owner = StageOwner(self._kafka, self.stages[stage], partition, self._observe)
        self._owners[stage, partition] = owner
        return owner

    def owner(self, stage: str, partition: int) -> StageOwner:
        """Return the owner of a stage partition; one is found if there is none."""
        return self._owners[stage, partition] or self.take(stage, partition)

    def owners(self) -> Iterator[StageOwner]:
        """Yield the owner of every stage partition, in order."""
        for stage, partition in self._owners:
            yield self.owner(stage, partition)

    def halted(self) -> dict[Position, FoldFailed]:
        """Return where a fold raised, and what; those partitions stand still."""
        return {
            owner.halted_at: owner.halted
            for owner in self._owners.values()
            if owner is not None and owner.halted_at is not None and owner.halted is not None
        }

    def _step(self, stage: str, partition: int) -> None:
        owner = self.owner(stage, partition)
        crash, stalls = self._fate()
        try:
            owner.step(self._room(), crash)
        except Crashed:
            self.crashed += 1
            self._owners[stage, partition] = None
            if stalls:
                self._zombies.append(owner)

    def _room(self) -> int:
        if self._chaos is None:
            return _ROOM
        return 1 + self._chance.below(self._chaos.batch_records_max)

    def _fate(self) -> tuple[CrashPoint | None, bool]:
        """Return where the owner's next step ends early, and whether it only stalls there."""
        chaos, chance = self._chaos, self._chance
        if chaos is not None and chance.happens(chaos.crash_per_mille):
            return chance.pick(tuple(CrashPoint)), False
        if chaos is not None and chance.happens(chaos.zombie_per_mille):
            return chance.pick(_STALLS), True
        return None, False

    def _wake(self, zombie: StageOwner) -> None:
        """Let a stalled owner go on where it was: its successor must have fenced it."""
        self._zombies.remove(zombie)
        try:
            zombie.go_on()
        except Fenced:
            self.fenced += 1
        else:
            raise AssertionError(f"{zombie.name}: a replaced owner committed its transaction")

    def _tick(self, owner: StageOwner, due_ms: int) -> None:
        self._kafka.append(
            owner.stage.declaration.source,
            self._codec.encode(TICK, {"due_ms": due_ms}),
            key=b"\0tick",
            headers=[("kind", TICK.encode())],
            partition=owner.partition,
        )

    # ------------------------------------------------------------------ invokers
    def _hire(self) -> None:
        self._hired += 1
        staff = self._staff
        invoker = MemoryInvoker(
            f"invoker-{self._hired}",
            self._kafka,
            self._codec,
            staff.handlers,
            duration=staff.duration,
            lease_ms=staff.lease_ms,
            outstanding_max=staff.outstanding_max,
            runs=self.runs,
        )
        self.invokers.append(invoker)

    def rebalance(self) -> None:
        """Deal the intents' partitions out anew; everyone says first what he still runs."""
        present = [invoker for invoker in self.invokers if not invoker.paused]
        for invoker in present:
            invoker.hand_over()
        self._generation += 1
        shares: list[set[int]] = [set() for _ in present]
        for partition in range(self._kafka.partitions(INVOCATIONS)):
            if present:
                shares[(partition + self._generation) % len(present)].add(partition)
        for invoker, share in zip(present, shares, strict=True):
            invoker.assign(share)

    def lose_invoker(self, invoker: MemoryInvoker) -> None:
        """Lose an invoker with everything that it runs; another one takes its place."""
        self.invokers.remove(invoker)
        self._hire()
        self.rebalance()

    def pause(self, invoker: MemoryInvoker) -> None:
        """Let an invoker sleep, as SIGSTOP does: the others get its partitions."""
        invoker.paused = True
        self.rebalance()

    def wake_invoker(self, invoker: MemoryInvoker) -> None:
        """Let a sleeping invoker go on: what it ran it still runs, its partitions are gone."""
        invoker.paused = False
        invoker.assign(set())
        self.rebalance()

    def _invoke(self, invoker: MemoryInvoker) -> None:
        chaos = self._chaos
        if chaos is not None and self._chance.happens(chaos.lose_invoker_per_mille):
            self.lose_invoker(invoker)
            return
        if chaos is not None and self._chance.happens(chaos.rebalance_per_mille):
            self.rebalance()
            return
        invoker.work()

    # ------------------------------------------------------------------ workers
    def employ(self, terms: WorkerTerms) -> MemoryWorker:
        """Start a worker; one of the same name is no more, and this is its next incarnation."""
        self.workers = [each for each in self.workers if each.terms.consumer_id != terms[0]]
        self._hired += 1
        worker = MemoryWorker(
            terms, self._hired, self._kafka, self._codec, self._topology, self.runs
        )
        self.workers.append(worker)
        return worker

    def _do_jobs(self, worker: MemoryWorker) -> None:
        chaos = self._chaos
        if chaos is not None and self._chance.happens(chaos.lose_invoker_per_mille):
            self.employ(worker.terms)
        else:
            worker.work()

    # ------------------------------------------------------------------ the broadcaster
    def _broadcast(self) -> None:
        self._broadcaster.work()
        chaos = self._chaos
        if chaos is not None and self._chance.happens(chaos.lose_broadcaster_per_mille):
            self._broadcaster = MemoryBroadcaster(self._kafka, self._codec)

    def _cancel(self) -> None:
        self._canceller.work()
        chaos = self._chaos
        if chaos is not None and self._chance.happens(chaos.lose_broadcaster_per_mille):
            self._canceller = MemoryCanceller(self._kafka)

    def _tell_of_jobs(self) -> None:
        self._relay.work()
        chaos = self._chaos
        if chaos is not None and self._chance.happens(chaos.lose_broadcaster_per_mille):
            self._relay = MemoryRelay(self._kafka, self._codec, self._topology)

    # ------------------------------------------------------------------ what could happen
    def actions(self) -> Iterator[Action]:
        """Yield what could happen now."""
        now_ms = self._kafka.clock.now_ms
        for (stage, partition), owner in self._owners.items():
            if owner is None:
                yield partial(self.take, stage, partition)
            elif owner.has_work():
                yield partial(self._step, stage, partition)
            elif (due_ms := owner.next_tick_ms) is not None and due_ms <= now_ms:
                yield partial(self._tick, owner, due_ms)
        if self._broadcaster.has_work():
            yield self._broadcast
        yield from self._others()

    def _others(self) -> Iterator[Action]:
        if self._canceller.has_work():
            yield self._cancel
        if self._relay.has_work():
            yield self._tell_of_jobs
        for invoker in self.invokers:
            if invoker.has_work():
                yield partial(self._invoke, invoker)
        for worker in self.workers:
            if worker.has_work():
                yield partial(self._do_jobs, worker)
        for zombie in self._zombies:
            if self._owners[zombie.name, zombie.partition] is not None:
                yield partial(self._wake, zombie)

    def next_due_ms(self) -> int | None:
        """Return when something happens that only waits for time; None when nothing does."""
        due = [owner.next_tick_ms for owner in self.owners()]
        due += [member.next_due_ms() for member in (*self.invokers, *self.workers)]
        return min((each for each in due if each is not None), default=None)
