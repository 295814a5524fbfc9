"""The toy stage on the real runtime and a real broker: topics of its own, members in this process.

Members are apps of one consumer group in one event loop, as the roles of a process are.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import TopicPartition
from prometheus_client import CollectorRegistry

from streams.agents.app import StageApp, group_of
from streams.agents.group import StageGroup
from streams.agents.transaction import Faults, no_faults
from streams.core.state import Fold
from streams.edge.topic_reader import ReadRecord, TopicReader
from streams.engine import BoundStage
from streams.kafka import make_consumer, make_producer
from streams.observe.stage_metrics import StageCollectors, StageMetrics
from streams.provision import provision_topics
from streams.settings import Settings
from tests.support import toy
from tests.support.eventually import PATIENCE_S
from tests.support.fleet import wait_until
from topology import TOPOLOGY, Topology
from topology.model import Cleanup, RetentionRule, Topic, TopicRole
from topology.topics import LIFECYCLE

JOURNAL = "audit.journal"
PARTITIONS = 4
_READ_S = 1.0


@dataclass
class Member:
    """One running app of the toy stage, and its metrics."""

    app: StageApp
    group: StageGroup
    registry: CollectorRegistry

    async def crashed(self) -> BaseException:
        return await asyncio.wait_for(self.group.crashed(), PATIENCE_S)

    def halted(self, partition: int = 0) -> bool:
        """Whether a partition waits for an operator."""
        labels = {"stage": self.app.live.name, "partition": str(partition)}
        return self.registry.get_sample_value("harn_stage_partition_halted", labels) == 1


@dataclass
class LiveToy:
    """A toy stage with a name that nothing on the cluster has yet."""

    settings: Settings
    name: str = field(default_factory=lambda: f"toy{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.settings = replace(
            self.settings, partitions=PARTITIONS, replication_factor=1, min_insync_replicas=1
        )
        self.codec = toy.toy_codec()
        self.topology = self._topology()
        provision_topics(self.settings, declared=self.topology)

    @property
    def mailbox(self) -> str:
        return f"{self.name}.in"

    @property
    def outputs(self) -> str:
        return f"{self.name}.out"

    @property
    def quarantine(self) -> str:
        return f"{self.name}.dlq"

    def _topology(self) -> Topology:
        stage = replace(
            toy.STAGE,
            name=self.name,
            role=self.name,
            source=self.mailbox,
            sinks=(self.outputs,),
            quarantine=self.quarantine,
        )
        names = {toy.SOURCE: self.mailbox, toy.SINK: self.outputs, toy.DLQ: self.quarantine}
        topics = [replace(topic, name=names[topic.name]) for topic in toy.TOPOLOGY.topics]
        changelog = Topic(
            name=stage.changelog,
            role=TopicRole.CHANGELOG,
            key="row key",
            doc="Rows.",
            cleanup=Cleanup.COMPACT,
            retention=RetentionRule.FOREVER,
            co_partitioned_with=self.mailbox,
        )
        ours = (*topics, changelog)
        shared = (TOPOLOGY.topic(name) for name in (JOURNAL, "audit.checkpoints", LIFECYCLE))
        return Topology(topics=(*ours, *shared), stages=(stage,))

    def bound(self, fold: Fold | None = None) -> BoundStage:
        stage = self.topology.stage(self.name)
        return BoundStage(stage, fold or self.fold(), self.topology, self.codec, PARTITIONS)

    def fold(self, on_command: Callable[[dict[str, Any]], None] = lambda _: None) -> Fold:
        """The toy's fold with outputs into our own topic; `on_command` sees each command first."""
        plain = toy.FOLD

        def ours(outputs: Any) -> Any:
            return [output._replace(topic=self.outputs) for output in outputs]

        def on_record(state: Any, record: Any, /) -> Any:
            on_command(record.value)
            answer = plain.on_record(state, record)
            return answer if hasattr(answer, "code") else ours(answer)

        def on_due(state: Any, key: str, row: Any, record: Any, /) -> Any:
            return ours(plain.on_due(state, key, row, record))

        return Fold(on_record=on_record, on_due=on_due, build_index=plain.build_index)

    def app(
        self,
        fold: Fold | None = None,
        *,
        faults: Faults = no_faults,
        registry: CollectorRegistry | None = None,
        **changes: Any,
    ) -> StageApp:
        """An app that is not started."""
        return StageApp(
            self.bound(fold),
            replace(self.settings, **changes),
            journal_partitions=PARTITIONS,
            metrics=StageMetrics(StageCollectors(registry or CollectorRegistry()), self.name),
            faults=faults,
        )

    @asynccontextmanager
    async def member(
        self, fold: Fold | None = None, *, faults: Faults = no_faults, **changes: Any
    ) -> AsyncIterator[Member]:
        """A member for as long as the block lasts, ready when it begins."""
        registry = CollectorRegistry()
        app = self.app(fold, faults=faults, registry=registry, **changes)
        group = StageGroup([app])
        await group.start()
        try:
            await asyncio.wait_for(group.ready(), PATIENCE_S)
            yield Member(app, group, registry)
        finally:
            await group.stop()

    def append(self, *commands: dict[str, Any], partition: int = 0) -> None:
        """Append commands to one partition; returns once the broker has them."""
        encode = self.codec.encoder("toy_command")
        self._append("command", [encode(value) for value in commands], partition)

    def tell(self, kind: str, *, partition: int = 0, **word: Any) -> None:
        """Append an operator's word."""
        value = {"stage": self.name, "partition": partition, "requested_by": "test", **word}
        self._append(kind, [self.codec.encode(kind, value)], partition)

    def _append(self, kind: str, values: list[bytes], partition: int) -> None:
        producer = make_producer(self.settings)
        for value in values:
            producer.produce(
                self.mailbox, value, b"k", partition, headers=[("kind", kind.encode())]
            )
            producer.poll(0)
        assert producer.flush(60) == 0

    def read(self, topic: str) -> list[ReadRecord]:
        """Every committed record of a topic."""
        found: list[ReadRecord] = []
        with TopicReader(self.settings, topic) as reader:
            reader.start_at(dict.fromkeys(range(reader.partitions), 0))
            while not reader.at_end:
                found += reader.read(_READ_S)
        return found

    def values(self, topic: str) -> list[dict[str, Any]]:
        """Every committed record of a topic, decoded."""
        return [self.codec.decode(record.value or b"")[1] for record in self.read(topic)]

    def texts(self) -> list[str]:
        """What the stage has said, partition by partition."""
        return [value["text"] for value in self.values(self.outputs)]

    def journal(self) -> list[dict[str, Any]]:
        """The stage's transactions, partition by partition."""
        return [entry for entry in self.values(JOURNAL) if entry["stage"] == self.name]

    def ends(self) -> dict[int, int]:
        """Where each partition of the mailbox ends."""
        with TopicReader(self.settings, self.mailbox) as reader:
            return {p: reader.watermarks(p)[1] for p in range(PARTITIONS)}

    async def everything_folded(self) -> None:
        """Return once the stage stands at the end of its mailbox."""
        wanted = {p: end for p, end in (await asyncio.to_thread(self.ends)).items() if end}
        places = [TopicPartition(self.mailbox, partition) for partition in wanted]
        consumer = make_consumer(self.settings, group_id=group_of(self.name))

        def done() -> bool:
            found = consumer.committed(places, timeout=30)
            return {place.partition: place.offset for place in found} == wanted

        try:
            await asyncio.to_thread(wait_until, f"offsets {wanted} are committed", done)
        finally:
            consumer.close()

    def assert_every_record_was_folded_once(self) -> None:
        """Nothing but this test writes to the mailbox, so offsets have no gaps of their own."""
        ends: dict[int, int] = {}
        for entry in self.journal():
            partition = entry["partition"]
            expected = ends.get(partition, 0)
            assert entry["first_offset"] == expected, (
                f"partition {partition}, transaction {entry['seq']}: offsets {expected} to "
                f"{entry['first_offset']} were passed over"
            )
            ends[partition] = entry["next_offset"]
        assert ends == {p: end for p, end in self.ends().items() if end}
