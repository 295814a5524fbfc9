"""Partitions of turns that move between workers, and owners that fence each other."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition

from streams.agents.transaction import TransactionalProducer
from streams.core.turn.bookmark import Bookmark
from streams.core.turn.partition_key import partition_of_session
from streams.core.turn.words import CLAIMS, SESSIONS, TURNS
from streams.edge.turns.kafka.taking import Taker, transactional_id
from streams.settings import Settings
from tests.support.kafka_turns import (
    CODEC,
    Api,
    ServedWorker,
    until,
    worker,
)
from tests.support.turn_runs import of_run, sessions_everywhere, waiting, words_about

pytestmark = [pytest.mark.broker]


@pytest.fixture(scope="module", params=["auto", "classic"])
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    """Whatever the group speaks."""
    return replace(settings, agent_group_protocol=request.param)


ONCE = (("turn_claimed", ""), ("turn_finished", "completed"))


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
    assert set(map(tuple, words_about(settings, run).values())) == {ONCE}


async def test_who_stops_ends_what_runs_while_another_has_all_other_partitions(
    settings: Settings, run: str
) -> None:
    api, release = Api(settings), asyncio.Event()
    sessions = sessions_everywhere(run, settings)
    busy, long = next(iter(sessions.items()))
    others = {each: sessions[each] for each in sessions if each != busy}
    api.enqueue(f"{long}-first", long)
    api.flush()
    patient = replace(settings, drain_ms=60_000)
    async with AsyncExitStack() as of_a:
        a = await of_a.enter_async_context(worker(patient, waiting(release), name="a"))
        await until(lambda: a.ran.started == [f"{long}-first"], a)
        async with worker(settings, waiting(release), name="b") as b:
            stopping = asyncio.ensure_future(of_a.aclose())
            await until(lambda: b.worker.doing().partitions == set(others), b)
            for each in sessions.values():
                api.enqueue(f"{each}-second", each)
            api.flush()
            await until(lambda: len(b.ran.outcomes) == len(others), b)
            assert not stopping.done(), "its turn runs"
            release.set()
            await stopping
            await until(lambda: f"{long}-second" in b.ran.ended, b)
            assert b.worker.doing().partitions == set(sessions)
    assert a.ran.outcomes == ["completed"]
    said = words_about(settings, run)
    assert set(map(tuple, said.values())) == {ONCE}
    assert len(said) == len(sessions) + 1


async def test_a_hand_over_keeps_no_other_member_waiting(settings: Settings, run: str) -> None:
    api, release = Api(settings), asyncio.Event()
    sessions = sessions_everywhere(run, settings)
    busy = dict(list(sessions.items())[:-1])
    for each in busy.values():
        api.enqueue(f"{each}-first", each)
    api.flush()
    bodies = waiting(release)
    async with worker(settings, bodies, name="a") as a:
        await until(lambda: len(a.ran.started) == len(busy), a)
        async with worker(settings, bodies, name="b") as b:
            await until(lambda: bool(stopped(a)), a)
            async with worker(settings, bodies, name="c") as c:
                # Each has its share of the group though no turn has ended.
                await until(lambda: bool(b.worker._assigned and c.worker._assigned), c)
                assert a.ran.ended == []
                release.set()
                for each in sessions.values():
                    api.enqueue(f"{each}-second", each)
                api.flush()
                total = len(busy) + len(sessions)
                ran = [each.ran for each in (a, b, c)]
                await until(lambda: sum(len(each.outcomes) for each in ran) == total, c)
    assert set(map(tuple, words_about(settings, run).values())) == {ONCE}


async def test_an_owner_that_died_while_it_handed_over_is_waited_for_until_it_is_silent(
    settings: Settings, run: str
) -> None:
    quick = replace(settings, session_timeout_ms=2_000, heartbeat_interval_ms=500)
    session = f"{run}-s"
    at = partition_of_session(session, quick.agent_turns_partitions)
    api = Api(quick)
    api.enqueue(f"{session}-j", session)
    api.flush()
    with ThreadPoolExecutor(1) as pool:
        taker = Taker(quick, CODEC, pool)
        taken = await asyncio.to_thread(lambda: taker.take([at])[at])
        word = Bookmark(0, taken.loaded.memory.next_fence, yields_ms=3_600_000)
        place = TopicPartition(TURNS, at, taken.loaded.committed, metadata=str(word))
        commit = taken.producer.commit_records
        await asyncio.to_thread(commit, [], place, taker.group_metadata())
        async with worker(quick) as b:
            await until(lambda: b.ran.outcomes == ["completed"], b)
            tickets = {number: each.ticket for number, each in b.worker._partitions.items()}
            assert max(tickets, key=tickets.__getitem__) == at, "others were not waited for"
        after = await asyncio.to_thread(lambda: taker.bookmarks([at])[at])
        taker.close()
    assert after is not None
    assert (after.yields_ms, after.fence) == (None, word.fence + 1)


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
    # A worker that is silent for that long loses its turns once more.
    quick = replace(settings, session_timeout_ms=3_000, heartbeat_interval_ms=500)
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
