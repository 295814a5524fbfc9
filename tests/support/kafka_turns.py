"""Turns on a real Kafka: topics, what an API writes, a worker in this process, and the log."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka.admin import NewTopic

from streams.codec import Codec
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.memory import KEPT_MAX
from streams.core.turn.partition_key import partition_of_session, session_key
from streams.core.turn.record import job_key, new_job, session_record_key
from streams.core.turn.session import new_session
from streams.core.turn.words import CLAIMS, DEAD_LETTERS, JOBS, SESSIONS, TURNS
from streams.edge.publisher import Publisher
from streams.edge.topic_reader import TopicReader
from streams.edge.turns.body import Body, Claimed, Ending
from streams.edge.turns.enqueuer import Enqueuer
from streams.edge.turns.kafka.presence import FLEET
from streams.edge.turns.kafka.worker import TurnWorker
from streams.edge.turns.kafka_ledger import KafkaLedger
from streams.edge.turns.turn_codec import encode_turn
from streams.edge.turns.turn_view import TurnView
from streams.kafka import make_admin, make_producer, wait_until_served
from streams.settings import Settings
from tests.support.app_cluster import Entry
from tests.support.eventually import PATIENCE_S

CODEC = Codec()
PARTITIONS = 4
TOPICS = (TURNS, CLAIMS, JOBS, SESSIONS, DEAD_LETTERS)


def turn_settings(settings: Settings, **changes: Any) -> Settings:
    return replace(settings, agent_turns_partitions=PARTITIONS, **changes)


def provision_turns(settings: Settings) -> None:
    """Create the topics of turns, where they are missing."""
    admin = make_admin(settings)
    there = admin.list_topics(timeout=30).topics
    wanted = {**dict.fromkeys(TOPICS, PARTITIONS), FLEET: 1}
    new = [NewTopic(name, count, 1) for name, count in wanted.items() if name not in there]
    if new:
        for future in admin.create_topics(new).values():
            future.result(timeout=30)
    places = [(name, number) for name, count in wanted.items() for number in range(count)]
    wait_until_served(settings, places, 30)


@dataclass
class Api:
    """Writes sessions, tasks and turns as the API does."""

    settings: Settings
    _producer: Any = field(init=False)

    def __post_init__(self) -> None:
        self._producer = make_producer(self.settings, linger_ms=1)

    def append(self, topic: str, kind: str, key: str, value: bytes, session_id: str) -> None:
        at = partition_of_session(session_id, self.settings.agent_turns_partitions)
        self._producer.produce(topic, value, key.encode(), at, headers=[("kind", kind.encode())])
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(30) == 0

    def task(self, job_id: str, session_id: str, *, description: str = "") -> None:
        job = new_job(job_id, session_id, description, now_ms=now_ms())
        value = CODEC.encode("agent_job", job)
        self.append(JOBS, "agent_job", job_key(job_id), value, session_id)

    def session(self, session_id: str) -> None:
        value = CODEC.encode("agent_session", new_session(session_id, now_ms=now_ms()))
        key = session_record_key(session_id)
        self.append(SESSIONS, "agent_session", key, value, session_id)

    def turn(self, job_id: str, session_id: str, **fields: Any) -> AgentTurnEnvelope:
        known: dict[str, Any] = {
            "kind": "orchestrator_task",
            "payload_ref": job_id,
            "enqueued_at_ms": now_ms(),
        }
        envelope = AgentTurnEnvelope(job_id=job_id, session_id=session_id, **(known | fields))
        key = session_key(session_id)
        self.append(TURNS, "agent_turn", key, encode_turn(CODEC, envelope), session_id)
        return envelope

    def enqueue(self, job_id: str, session_id: str, **fields: Any) -> None:
        self.task(job_id, session_id)
        self.flush()  # a turn whose record is not there yet would be skipped
        self.turn(job_id, session_id, **fields)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Ran:
    """What bodies did, in the order of events; `body` is what each does."""

    body: Body
    started: list[str] = field(default_factory=list[str])
    ended: list[str] = field(default_factory=list[str])
    outcomes: list[str] = field(default_factory=list[str])
    now_running: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def body_for(self, kind: str, agent_name: str, /) -> Body:  # noqa: ARG002 - the seam's
        return self._run

    async def _run(self, claimed: Claimed) -> Ending:
        session = claimed.envelope.session_id
        self.started.append(claimed.envelope.job_id)
        self.now_running[session] += 1
        assert self.now_running[session] == 1, f"two turns of {session} at once"
        try:
            return await self.body(claimed)
        finally:
            self.now_running[session] -= 1
            self.ended.append(claimed.envelope.job_id)

    def turn_ended(self, outcome: str) -> None:
        self.outcomes.append(outcome)


async def done(_claimed: Claimed) -> Ending:
    return Ending("completed", result="done")


@dataclass
class ServedWorker:
    """A worker in this process."""

    worker: TurnWorker
    ran: Ran


@asynccontextmanager
async def worker(
    settings: Settings,
    body: Body = done,
    *,
    slots: int = 16,
    name: str = "w",
    kept_max: int = KEPT_MAX,
) -> AsyncIterator[ServedWorker]:
    """Run a worker for the block."""
    ran = Ran(body)
    made = TurnWorker(
        settings,
        CODEC,
        ran,
        slots=slots,
        token=name,
        host="here",
        observer=ran,
        kept_max=kept_max,
    )
    await made.start()
    try:
        yield ServedWorker(made, ran)
    finally:
        await made.stop()


@asynccontextmanager
async def enqueuer(settings: Settings) -> AsyncIterator[Enqueuer]:
    """What enqueues goals over Kafka, once it has read how they stand."""
    publisher, view = Publisher(settings, name="test"), TurnView(settings, CODEC)
    await publisher.start()
    view.start()
    try:
        await view.caught_up.wait()
        yield Enqueuer(KafkaLedger(settings, publisher, CODEC, view))
    finally:
        await view.stop()
        await publisher.stop()


def read_topic(settings: Settings, topic: str) -> list[Entry]:
    """Read all that is committed."""
    found: list[Entry] = []
    with TopicReader(settings, topic) as reader:
        reader.start_at(dict.fromkeys(range(reader.partitions), 0))
        while True:
            records = reader.read(1.0)
            for each in records:
                value = CODEC.decode(each.value)[1] if each.value is not None else {}
                headers = {name: content.decode() for name, content in each.headers}
                found.append(
                    Entry(
                        topic,
                        each.partition,
                        each.offset,
                        each.timestamp,
                        each.kind,
                        value,
                        headers,
                    )
                )
            if reader.at_end and not records:
                return found


async def until(
    holds: Callable[[], bool], served: ServedWorker, *, within_s: float = PATIENCE_S
) -> None:
    """Wait until `holds`; fail when the worker ends, or it takes too long."""
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, f"not in time: {served.ran}"
        if served.worker.failed.done():
            served.worker.failed.result()
        await asyncio.sleep(0.01)
