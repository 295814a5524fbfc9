"""A worker of turns while its broker is killed and comes back: none is lost, none ends twice."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from streams.core.turn.words import CLAIMS
from streams.edge.turns.body import Claimed, Ending
from streams.settings import Settings
from tests.support.broker import PrivateBroker
from tests.support.kafka_turns import (
    Api,
    provision_turns,
    read_topic,
    turn_settings,
    until,
    worker,
)

pytestmark = [pytest.mark.broker, pytest.mark.chaos]

SESSIONS, TURNS = 20, 15


async def test_the_broker_is_killed_while_turns_run(private_broker: PrivateBroker) -> None:
    kafka = await asyncio.to_thread(private_broker.start)
    await asyncio.to_thread(provision_turns, kafka.settings)
    settings = turn_settings(kafka.settings, transaction_timeout_ms=4_000)
    api = Api(settings)
    jobs = {f"s{each}": [f"s{each}-j{turn}" for turn in range(TURNS)] for each in range(SESSIONS)}
    for session, of_session in jobs.items():
        for job in of_session:
            api.enqueue(job, session)
    api.flush()

    async def body(_claimed: Claimed) -> Ending:
        await asyncio.sleep(0.02)
        return Ending("completed")

    async with worker(settings, body, slots=4) as served:
        for share in (0.2, 0.5):
            reached = int(share * SESSIONS * TURNS)
            await until(lambda least=reached: len(served.ran.outcomes) >= least, served)
            await asyncio.to_thread(private_broker.kill)
            # Longer than a transaction may last: what was under way fails.
            await asyncio.sleep(5)
            await asyncio.to_thread(private_broker.start)
        total = SESSIONS * TURNS
        await until(
            lambda: sum(len(each) for each in ended(settings).values()) >= total,
            served,
        )
    assert ended(settings) == jobs


def ended(settings: Settings) -> dict[str, list[str]]:
    """The jobs that have ended, by session, in the order of their ends."""
    done: dict[str, list[str]] = defaultdict(list)
    for each in read_topic(settings, CLAIMS):
        if each.kind == "turn_finished":
            done[each.value["session_id"]].append(each.value["job_id"])
    return done
