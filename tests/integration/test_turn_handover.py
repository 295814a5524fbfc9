"""Partitions of turns that move between workers, and owners that fence each other."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from streams.agents.transaction import TransactionalProducer
from streams.core.turn.partition_key import partition_of_session
from streams.core.turn.words import CLAIMS, SESSIONS
from streams.edge.turns.kafka.taking import transactional_id
from streams.settings import Settings
from tests.support.broker import Kafka
from tests.support.kafka_turns import (
    Api,
    ServedWorker,
    provision_turns,
    turn_settings,
    until,
    worker,
)
from tests.support.turn_runs import of_run, sessions_everywhere, waiting, words_about

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
def settings(kafka: Kafka) -> Settings:
    provision_turns(kafka.settings)
    return turn_settings(kafka.settings, turn_handover_s=20, drain_ms=5_000)


def stopped(one: ServedWorker) -> set[int]:
    """The partitions that are being handed over."""
    owned = one.worker._partitions.values()
    return {each.number for each in owned if each.owner.lanes.stopped}


async def test_a_partition_that_is_handed_over_lets_its_turn_end_and_holds_up_no_other(
    settings: Settings, run: str
) -> None:
    api, release = Api(settings), asyncio.Event()
    sessions = sessions_everywhere(run, settings)
    for each in sessions.values():
        api.enqueue(f"{each}-first", each)
        api.enqueue(f"{each}-second", each)
    api.flush()
    async with worker(settings, waiting(release), name="a") as a:
        await until(lambda: len(a.ran.started) == len(sessions), a)
        async with worker(settings, waiting(release), name="b") as b:
            await until(lambda: bool(stopped(a)), a)
            handed = stopped(a)
            assert b.worker.doing().partitions == set()
            kept = next(each for each in sessions if each not in handed)
            other = next(
                name
                for name in (f"{run}-other{number}" for number in range(1_000))
                if partition_of_session(name, settings.agent_turns_partitions) == kept
            )
            api.enqueue(f"{other}-quick", other)
            api.flush()
            await until(lambda: f"{other}-quick" in a.ran.ended, a)
            assert len(a.ran.started) == len(sessions) + 1, "no second turn while the first runs"
            release.set()
            total = 2 * len(sessions) + 1
            await until(lambda: len(a.ran.outcomes) + len(b.ran.outcomes) == total, b)
            assert b.worker.doing().partitions == handed
    for number, each in sessions.items():
        assert f"{each}-first" in a.ran.started
        assert (f"{each}-second" in b.ran.started) == (number in handed)
    ends = [("turn_claimed", ""), ("turn_finished", "completed")]
    assert set(map(tuple, words_about(settings, run).values())) == {tuple(ends)}


async def test_what_does_not_end_in_time_is_given_back_and_begun_by_the_next_owner(
    settings: Settings, run: str
) -> None:
    api, release = Api(settings), asyncio.Event()
    session = f"{run}-s"
    api.session(session)
    api.enqueue(f"{session}-first", session)
    api.flush()
    short = replace(settings, drain_ms=100)
    async with worker(short, waiting(release)) as a:
        await until(lambda: len(a.ran.started) == 1, a)
    release.set()
    async with worker(settings, waiting(release)) as b:
        await until(lambda: len(b.ran.outcomes) == 1, b)
    said = of_run(settings, CLAIMS, run)
    assert [each.kind for each in said] == [
        "turn_claimed",
        "turn_claim_released",
        "turn_claimed",
        "turn_finished",
    ]
    assert said[1].value["reason"] == "shutdown"
    assert [said[0].value["attempt"], said[2].value["attempt"]] == [1, 2]
    assert said[2].value["fence"] > said[0].value["fence"]
    statuses = [each.value["status"] for each in of_run(settings, SESSIONS, run)]
    assert statuses == ["queued", "running", "queued", "running", "completed"]


async def test_who_was_fenced_writes_nothing_more_and_goes_on_when_it_is_its_own(
    settings: Settings, run: str
) -> None:
    quick = replace(settings, session_timeout_ms=1_000, heartbeat_interval_ms=300)
    api, release = Api(quick), asyncio.Event()
    session = f"{run}-s"
    api.enqueue(f"{session}-first", session)
    api.flush()
    async with worker(quick, waiting(release)) as a:
        await until(lambda: len(a.ran.started) == 1, a)
        at = partition_of_session(session, quick.agent_turns_partitions)
        other = TransactionalProducer(quick, transactional_id(at))
        await asyncio.to_thread(other.fence)
        # Its next word is refused: that the session's next turn is to be begun does not count.
        api.enqueue(f"{run}-x", f"{session}")
        neighbour = next(
            name
            for name in (f"{run}-n{number}" for number in range(1_000))
            if partition_of_session(name, quick.agent_turns_partitions) == at
        )
        api.enqueue(f"{neighbour}-quick", neighbour)
        api.flush()
        await until(lambda: a.ran.started.count(f"{session}-first") == 2, a)
        release.set()
        await until(lambda: len(a.ran.outcomes) == 3, a)
    said = words_about(settings, run)
    again = [("turn_claimed", ""), ("turn_claimed", ""), ("turn_finished", "completed")]
    once = [("turn_claimed", ""), ("turn_finished", "completed")]
    assert said == {f"{session}-first": again, f"{run}-x": once, f"{neighbour}-quick": once}
