"""Inline turns on each carrier of records, for tests that must hold on all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from streams.codec import Codec
from streams.edge.publisher import Publisher
from streams.edge.turns.enqueuer import Enqueuer
from streams.edge.turns.inline import InlineTurns, inline_token
from streams.edge.turns.inline_kafka import KafkaInlineRecords
from streams.edge.turns.inline_records import InlineRecords
from streams.edge.turns.inline_sql import SqlInlineRecords
from streams.edge.turns.kafka_ledger import KafkaLedger
from streams.edge.turns.sql_ledger import SqlLedger
from streams.edge.turns.turn_ledger import TurnLedger
from streams.edge.turns.turn_store import TurnRecord
from streams.edge.turns.turn_view import TOPICS, TurnView
from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.eventually import eventually
from tests.support.mock_cluster import mock_cluster
from tests.support.sql_turns import Place
from tests.support.turn_agents import Outcomes, Work, bodies_of

PARTITIONS = 4  # of every topic of the cluster in memory
CODEC = Codec()

MakeRecords = Callable[[str, int], InlineRecords]


@dataclass
class Carrier:
    """Where records are, seen by one process; `records` is given a token and a capacity."""

    ledger: TurnLedger
    records: MakeRecords


class InlineProcess:
    """A process that runs turns inline, by the agents that it is given: work, or work and check."""

    def __init__(
        self,
        carrier: Carrier,
        *,
        turns_max: int = 8,
        token: str | None = None,
        **agents: Work,
    ) -> None:
        token = inline_token() if token is None else token
        self.outcomes = Outcomes()
        self.until = self.outcomes.until
        self.ledger = carrier.ledger
        self.bodies = bodies_of(turns_max, agents)
        self.inline = InlineTurns(
            carrier.ledger,
            carrier.records(token, turns_max),
            self.bodies,
            token=token,
            turns_max=turns_max,
            observer=self.outcomes,
        )
        self.enqueuer = Enqueuer(carrier.ledger, inline=self.inline)

    async def goal(self, goal_id: str) -> TurnRecord:
        found = await self.ledger.record(goal_id, "goal_loop")
        assert found is not None
        return found

    async def job(self, job_id: str) -> TurnRecord:
        found = await self.ledger.record(job_id, "orchestrator_task")
        assert found is not None
        return found


@asynccontextmanager
async def running(carrier: Carrier, **options: Any) -> AsyncIterator[InlineProcess]:
    made = InlineProcess(carrier, **options)
    try:
        yield made
    finally:
        await made.inline.stop(30)
        await made.bodies.close()


@asynccontextmanager
async def sql_carrier(place: Place) -> AsyncIterator[Carrier]:
    turns = place.open("api")
    yield Carrier(
        SqlLedger(turns),
        lambda token, turns_max: SqlInlineRecords(turns, token=token, turns_max=turns_max),
    )


@asynccontextmanager
async def kafka_carrier() -> AsyncIterator[Carrier]:
    with mock_cluster() as bootstrap:
        settings = Settings(bootstrap=bootstrap, agent_turns_partitions=PARTITIONS)
        producer = make_producer(settings)
        for topic in TOPICS:
            producer.list_topics(topic, timeout=30)  # makes it
        publisher, view = Publisher(settings, name="test"), TurnView(settings, CODEC)
        await publisher.start()
        view.start()
        ledger = KafkaLedger(settings, publisher, CODEC, view, ack_s=5)
        try:
            await eventually(lambda: not view.unread, "all topics are read")
            yield Carrier(
                ledger,
                lambda token, turns_max: KafkaInlineRecords(
                    ledger, token=token, turns_max=turns_max
                ),
            )
        finally:
            await view.stop()
            await publisher.stop()
