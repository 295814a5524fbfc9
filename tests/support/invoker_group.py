"""Invokers of one group on a real broker, with topics of their own."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from streams.edge.invoker import Invoker, Seams
from streams.edge.invoker.cancels import KafkaCancels
from streams.edge.invoker.intake import KafkaIntake
from streams.edge.publisher import Publisher
from streams.handler_api import Context, Event, Handler
from streams.kafka import make_consumer, make_producer
from streams.settings import Settings
from tests.support.eventually import eventually
from tests.support.invoker_edge import CODEC, intent_value
from tests.support.topics import new_topic

PARTITIONS = 4


@dataclass
class Functions:
    """Handlers by name, and how often each dispatch was run."""

    by_name: dict[str, Callable[[Event, Context], Any] | Handler]
    runs: Counter[str] = field(default_factory=Counter)
    running: set[str] = field(default_factory=set)
    running_max: int = 0

    def resolve(self, reference: str, _trigger_id: str = "", /) -> Handler | None:
        function = self.by_name.get(reference)
        if function is None or isinstance(function, Handler):
            return function
        if not asyncio.iscoroutinefunction(function):
            return Handler(self._counted(function), is_async=False, takes_context=True)
        return Handler(self._counted_async(function), is_async=True, takes_context=True)

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(event: Event, context: Context) -> Any:
            self.runs[context.dispatch_id] += 1
            return function(event, context)

        return run

    def _counted_async(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def run(event: Event, context: Context) -> Any:
            self.runs[context.dispatch_id] += 1
            self.running.add(context.dispatch_id)
            self.running_max = max(self.running_max, len(self.running))
            try:
                return await function(event, context)
            finally:
                self.running.discard(context.dispatch_id)

        return run


@dataclass
class Member:
    """One invoker with its own publisher and connection."""

    invoker: Invoker
    intake: KafkaIntake
    publisher: Publisher

    async def stop(self) -> None:
        await self.invoker.stop()
        await self.publisher.stop()


def _no_exit(code: int) -> None:
    message = f"an invoker ends its process with {code}"
    raise AssertionError(message)


class InvokerGroup:
    """The topics, the members, and what stands in the log."""

    def __init__(
        self, settings: Settings, **functions: Callable[[Event, Context], Any] | Handler
    ) -> None:
        self.settings = dataclasses.replace(settings, drain_ms=60_000)
        self.functions = Functions(functions)
        self.invocations = new_topic(settings, partitions=PARTITIONS, prefix="invocations")
        self.mailbox = new_topic(settings, partitions=PARTITIONS, prefix="dispatches")
        self.cancels = new_topic(settings, partitions=1, prefix="cancels")
        self.exit_now: Callable[[int], object] = _no_exit
        self.group = self.invocations.replace("invocations", "harn.invoker")
        self.members: list[Member] = []
        self.appended = 0
        self._outcomes: list[dict[str, Any]] = []
        self._words: list[tuple[int, dict[str, Any]]] = []

    async def join(self, **overrides: Any) -> Member:
        """Start another invoker; returns when it owns its share of the partitions."""
        settings = dataclasses.replace(self.settings, **overrides)
        publisher = Publisher(settings, name=f"test-{len(self.members)}")
        await publisher.start()
        intake = KafkaIntake(settings, topic=self.invocations, group=self.group)
        invoker = Invoker(
            settings,
            publisher,
            CODEC,
            self.functions,
            seams=Seams(
                intake=intake,
                cancels=KafkaCancels(settings, CODEC, self.cancels),
                mailbox=self.mailbox,
                exit_now=self.exit_now,
            ),
        )
        await invoker.start()
        member = Member(invoker, intake, publisher)
        self.members.append(member)
        await self.balanced()
        return member

    async def balanced(self) -> None:
        """Return once every partition has one owner and every member its share."""
        share = PARTITIONS // len(self.members)

        def holds() -> bool:
            owned = [len(member.intake.assignment) for member in self.members]
            return sum(owned) == PARTITIONS and min(owned) >= share

        await eventually(holds, f"{len(self.members)} members share {PARTITIONS} partitions")

    async def leave(self, member: Member) -> None:
        self.members.remove(member)
        await member.stop()

    def invoke(self, handler: str, dispatch_ids: Iterable[str]) -> list[str]:
        """Append intents in turn to the partitions, each with the next home partition."""
        producer = make_producer(self.settings, queue_buffering_max_messages=1_000_000)
        ids = list(dispatch_ids)
        for dispatch_id in ids:
            place = self.appended
            self.appended += 1
            value = intent_value(handler, dispatch_id, home=(place + 1) % PARTITIONS)
            producer.produce(
                self.invocations,
                CODEC.encode("invoke", value),
                key=dispatch_id,
                partition=place % PARTITIONS,
                headers=[("kind", b"invoke")],
            )
        assert producer.flush(60) == 0
        return ids

    def cancel(self, dispatch_id: str, fence: int = 1) -> None:
        """Append a cancel of an invocation."""
        said = {
            "dispatch_id": dispatch_id,
            "attempt": 1,
            "fence": fence,
            "home_partition": 0,
            "reason": "cancelled: somebody asked for it",
        }
        self.append(self.cancels, CODEC.encode("cancel_invocation", said))

    def append(self, topic: str, value: bytes) -> None:
        """Append one record to a topic's first partition."""
        producer = make_producer(self.settings)
        producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0

    async def outcomes(self, count: int) -> list[dict[str, Any]]:
        """Return all outcomes in the log, once there are at least `count`."""
        await asyncio.to_thread(self._read, count)
        return self._outcomes

    async def words(self) -> list[tuple[int, dict[str, Any]]]:
        """Return all `running` records in the log as (partition, value)."""
        await asyncio.to_thread(self._read, 0)
        return self._words

    def _read(self, outcomes: int) -> None:
        """Read the mailbox from its start to its end, and on until there are enough outcomes."""
        consumer = make_consumer(self.settings, group_id=None)
        self._outcomes, self._words = [], []
        try:
            left = self._from_the_start(consumer)
            while left > 0 or len(self._outcomes) < outcomes:
                record = consumer.poll(60)
                assert record is not None, f"{len(self._outcomes)} of {outcomes} outcomes came"
                assert record.error() is None, record.error()
                left -= 1
                kind, value = CODEC.decode(record.value() or b"")
                partition = record.partition()
                assert partition is not None
                if kind == "invocation_completed":
                    self._outcomes.append({**value, "partition": partition})
                else:
                    self._words.append((partition, value))
        finally:
            consumer.close()

    def _from_the_start(self, consumer: Consumer) -> int:
        places = [TopicPartition(self.mailbox, each, 0) for each in range(PARTITIONS)]
        ends = [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
        consumer.assign(places)
        return sum(ends)

    def uncommitted(self) -> dict[int, int]:
        """Return by partition how many intents the group would read again."""
        consumer = make_consumer(self.settings, group_id=self.group)
        try:
            places = [TopicPartition(self.invocations, each) for each in range(PARTITIONS)]
            lag: dict[int, int] = {}
            for place in consumer.committed(places, timeout=30):
                end = consumer.get_watermark_offsets(place, timeout=30)[1]
                lag[place.partition] = end - max(0, place.offset)
            return lag
        finally:
            consumer.close()

    async def all_committed(self) -> None:
        """Return once the group would read nothing again."""
        while any((await asyncio.to_thread(self.uncommitted)).values()):
            pass

    async def stop(self) -> None:
        await asyncio.gather(*(member.stop() for member in self.members))
        self.members.clear()
