"""What inline turns on Kafka leave behind is forgotten, and nothing that somebody still wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from streams.codec import Codec
from streams.core.turn.record import desired_key, goal_key, session_record_key
from streams.edge.publisher import Publisher
from streams.edge.topic_reader import ReadRecord, TopicReader
from streams.edge.turns.enqueuer import Enqueuer
from streams.edge.turns.kafka_ledger import KafkaLedger
from streams.edge.turns.kafka_retention import KafkaRetention
from streams.edge.turns.turn_store import Status
from streams.edge.turns.turn_view import TOPICS, TurnView
from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.eventually import eventually
from tests.support.mock_cluster import mock_cluster

CODEC = Codec()
KEPT_MS = 1_000
GOAL = {"objective": "all tests pass", "validation_cmd": "make test"}


class Clock:
    """Ms since the epoch, as the test says."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def settings() -> Iterator[Settings]:
    with mock_cluster() as bootstrap:
        settings = Settings(bootstrap=bootstrap, agent_turns_partitions=4, agent_job_retention="1s")
        producer = make_producer(settings)
        for topic in ("agent_turns", *TOPICS):
            producer.list_topics(topic, timeout=30)  # makes it
        yield settings


class Api(NamedTuple):
    enqueuer: Enqueuer
    ledger: KafkaLedger
    view: TurnView
    retention: KafkaRetention


@asynccontextmanager
async def process(
    settings: Settings, clock: Clock, *, ledger_class: type[KafkaLedger] = KafkaLedger
) -> AsyncIterator[Api]:
    publisher, view = Publisher(settings, name="test"), TurnView(settings, CODEC)
    await publisher.start()
    view.start()
    ledger = ledger_class(settings, publisher, CODEC, view, now_ms=clock, ack_s=5)
    retention = KafkaRetention(ledger, view, CODEC, KEPT_MS)
    try:
        await eventually(lambda: not view.unread, "all topics are read")
        yield Api(Enqueuer(ledger, now_ms=clock), ledger, view, retention)
    finally:
        await view.stop()
        await publisher.stop()


async def ended_goal(api: Api, session_id: str) -> str:
    created = await api.enqueuer.create_goal({**GOAL, "session_id": session_id})
    record = await api.ledger.record(created["goal_id"], "goal_loop")
    assert record is not None
    assert await api.ledger.move(record, to=Status.CANCELLED, error="enough") is not None
    return created["goal_id"]


def words_that_forget(settings: Settings) -> list[ReadRecord]:
    found: list[ReadRecord] = []
    for topic in ("agent.jobs", "agent.sessions"):
        with TopicReader(settings, topic) as reader:
            reader.start_at(dict.fromkeys(range(reader.partitions), 0))
            while not reader.at_end:
                found += [each for each in reader.read(1) if each.value is None]
    return found


async def test_what_has_ended_is_forgotten_after_its_time_and_then_its_session(
    settings: Settings,
) -> None:
    clock = Clock()
    async with process(settings, clock) as api:
        ended = await ended_goal(api, "s1")
        await api.enqueuer.kill("s1")
        running = (await api.enqueuer.create_goal({**GOAL, "session_id": "s2"}))["goal_id"]
        clock.now_ms += KEPT_MS - 1
        assert await api.retention.forget() == 0
        clock.now_ms += 1
        assert await api.retention.forget() == 3, "a goal, its session and what was wanted of it"
        assert await api.retention.forget() == 0
        assert api.view.get("agent_goal", goal_key(ended)) is None
        assert await api.ledger.session("s1") is None
        assert api.view.get("agent_session_desired", desired_key("s1")) is None
        assert await api.ledger.record(running, "goal_loop") is not None
        assert await api.ledger.session("s2") is not None
        words = await asyncio.to_thread(words_that_forget, settings)
        assert {each.key for each in words} == {
            goal_key(ended).encode(),
            session_record_key("s1").encode(),
            desired_key("s1").encode(),
        }
        again = await api.enqueuer.create_goal({**GOAL, "session_id": "s1"})
        assert again["session_id"] == "s1", "a session of that name is a new one"


class Interrupted(KafkaLedger):
    """Lets another process write just before a word that forgets."""

    other: Api

    async def append(
        self, topic: str, kind: str, key: str, value: bytes | None, **rest: Any
    ) -> int:
        if value is None and key == session_record_key("s1"):
            await self.other.enqueuer.create_goal({**GOAL, "session_id": "s1"})
        return await super().append(topic, kind, key, value, **rest)


async def test_a_session_that_another_process_uses_at_that_moment_stays(
    settings: Settings,
) -> None:
    clock = Clock()
    async with (
        process(settings, clock, ledger_class=Interrupted) as api,
        process(settings, clock) as other,
    ):
        assert isinstance(api.ledger, Interrupted)
        api.ledger.other = other
        ended = await ended_goal(api, "s1")
        clock.now_ms += KEPT_MS
        key = session_record_key("s1")
        await eventually(lambda: other.view.get("agent_session", key) is not None, "both know it")

        await api.retention.forget()

        words = await asyncio.to_thread(words_that_forget, settings)
        assert {each.key for each in words} == {goal_key(ended).encode(), key.encode()}
        for one in (api, other):
            await eventually(
                lambda one=one: (
                    (one.view.get("agent_session", key) or {}).get("updated_at_ms") == clock.now_ms
                ),
                "the session is there, as it was used",
            )
            await eventually(
                lambda one=one: len(one.view.newest("agent_goal", session_id="s1", limit=9)) == 1,
                "its new goal is there, and the one that had ended is not",
            )
