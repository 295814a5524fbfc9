"""Partitions of turns are added on a real broker: refused, cut off, gone on with, and worked on."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streams.agents.transaction import AFTER_COMMIT, BEFORE_OFFSETS
from streams.audit.kafka_log import KafkaLog
from streams.audit.turn_invariants import judge_turns
from streams.core.turn.partition_key import partition_of_session
from streams.core.turn.record import job_key, session_record_key
from streams.core.turn.words import CLAIMS, JOBS, SESSIONS, TURNS
from streams.edge.topic_reader import TopicReader
from streams.edge.turns.kafka.growth import Growth
from streams.edge.turns.kafka.layout import counts_of
from streams.edge.turns.kafka.serve import serve
from streams.edge.turns.turn_view import TurnView
from streams.errors import TopologyError
from streams.settings import Settings
from tests.support.app_cluster import cli
from tests.support.broker import PrivateBroker
from tests.support.eventually import PATIENCE_S
from tests.support.kafka_turns import (
    CODEC,
    PARTITIONS,
    Api,
    Ran,
    done,
    provision_turns,
    turn_settings,
    until,
    worker,
)

pytestmark = [pytest.mark.broker]

MORE = 7
SESSIONS_OF_TEST = [f"s{number}" for number in range(12)]
MOVING = [
    each
    for each in SESSIONS_OF_TEST
    if partition_of_session(each, PARTITIONS) != partition_of_session(each, MORE)
]


class CutOff(Exception):  # noqa: N818 - what a test ends a growth with
    """The growth ends here, as by kill -9."""


def cut_off(_seconds: float) -> None:
    raise CutOff


def cut_off_at(point: str, count: int) -> Callable[[str], None]:
    """Cut a growth off when a transaction is at a point for the `count`-th time."""
    left = [count]

    def fault(reached: str) -> None:
        left[0] -= reached == point
        if not left[0]:
            raise CutOff

    return fault


def growth(settings: Settings, **options: Any) -> Growth:
    known: dict[str, Any] = {"notice_s": 0.0}
    return Growth(settings, CODEC, **(known | options))


def grow_turns(settings: Settings) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return cli(settings, "topology", "grow-turns")


def wrong_in(settings: Settings) -> list[str]:
    """What the auditor finds wrong with all turns."""
    with KafkaLog(settings) as log:
        return [wrong.what for each in judge_turns(log, CODEC) for wrong in each.violations]


async def run_all(settings: Settings, turns: int) -> list[str]:
    """Run a worker until so many turns have ended; return how they ended."""
    async with worker(settings) as served:
        await until(lambda: len(served.ran.outcomes) >= turns, served)
    return served.ran.outcomes


def places(settings: Settings, topic: str) -> dict[str, list[int]]:
    """Where the last record of each key stands that says something."""
    last: dict[tuple[str, int], bool] = {}
    with TopicReader(settings, topic) as reader:
        reader.start_at(dict.fromkeys(range(reader.partitions), 0))
        while not reader.at_end:
            for each in reader.read(1.0):
                assert each.key is not None
                last[each.key.decode(), each.partition] = each.value is not None
    found: dict[str, list[int]] = {}
    for (key, partition), is_there in last.items():
        if is_there:
            found.setdefault(key, []).append(partition)
    return found


async def view_of(settings: Settings, keys: list[tuple[str, str]]) -> list[str]:
    """What the API tells of the status of records."""
    view = TurnView(settings, CODEC)
    view.start()
    await asyncio.wait_for(view.caught_up.wait(), PATIENCE_S)
    found = [view.get(kind, key) for kind, key in keys]
    await view.stop()
    assert view.misfit is None
    return ["" if each is None else each["status"] for each in found]


async def work_goes_on(settings: Settings) -> None:
    """A turn for each session, and one that came too late; then sessions that are busy."""
    api = Api(settings)
    for each in SESSIONS_OF_TEST:
        api.enqueue(f"{each}-second", each)
    api.flush()
    outcomes = await run_all(settings, len(SESSIONS_OF_TEST) + 1)
    assert sorted(outcomes) == ["completed"] * len(SESSIONS_OF_TEST) + ["skipped"]
    wanted = [("agent_session", session_record_key(each)) for each in SESSIONS_OF_TEST]
    wanted += [("agent_job", job_key(f"{each}-second")) for each in SESSIONS_OF_TEST]
    assert set(await view_of(settings, wanted)) == {"completed"}
    for when_busy in ("enqueue", "enqueue", "reject", "interrupt"):
        for each in SESSIONS_OF_TEST:
            api.enqueue(f"{each}-{uuid.uuid4().hex}", each, when_busy=when_busy)
    api.flush()
    outcomes = await run_all(settings, 4 * len(SESSIONS_OF_TEST))
    assert "interrupted" in outcomes
    assert set(outcomes) <= {"interrupted", "rejected", "completed"}


async def test_partitions_are_added_when_nothing_is_in_flight_and_every_record_is_found(
    private_broker: PrivateBroker,
) -> None:
    base = await asyncio.to_thread(private_broker.start)
    settings = turn_settings(base.settings)
    await asyncio.to_thread(provision_turns, settings)
    more = replace(settings, agent_turns_partitions=MORE)
    api = Api(settings)
    for each in SESSIONS_OF_TEST:
        api.session(each)
        api.enqueue(f"{each}-first", each)
    api.flush()

    # In flight: refused, and nothing is changed.
    refused = await asyncio.to_thread(grow_turns, more)
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert "turns that have not ended" in refused.stderr
    assert "stop whatever enqueues" in refused.stderr
    assert set(counts_of(settings).values()) == {PARTITIONS}
    await run_all(settings, len(SESSIONS_OF_TEST))

    # Cut off: nobody starts, neither as before nor as after.
    with pytest.raises(CutOff):
        await asyncio.to_thread(growth(more, wait=cut_off).run)
    assert counts_of(settings) == {
        TURNS: PARTITIONS,
        **dict.fromkeys((CLAIMS, JOBS, SESSIONS, "agent.turns.dlq"), MORE),
    }
    for each in (settings, more):
        ran, stop = Ran(done), asyncio.Event()
        with pytest.raises(TopologyError, match="partitions, expected"):
            await serve(each, CODEC, ran, slots=1, worker_id="w", stop=stop, observer=ran)
    # Somebody who had not noticed.
    late = MOVING[0]
    api.enqueue(f"{late}-late", late)
    api.flush()

    # Cut off while records move, each in a transaction of its own.
    for point, count in ((AFTER_COMMIT, 3), (BEFORE_OFFSETS, 2)):
        fault = cut_off_at(point, count)
        with pytest.raises(CutOff):
            await asyncio.to_thread(growth(more, batch=1, faults=fault).run)
    assert counts_of(settings)[TURNS] == PARTITIONS

    grown = await asyncio.to_thread(growth(more).run)

    assert grown is not None
    assert (grown.before, grown.after, grown.sessions) == (PARTITIONS, MORE, len(MOVING) - 4)
    assert (grown.jobs, grown.failed, grown.unreadable) == (len(MOVING) + 1, 1, 0)
    assert set(counts_of(settings).values()) == {MORE}
    again = await asyncio.to_thread(grow_turns, more)
    assert (again.returncode, again.stdout) == (0, f"{MORE} partitions: nothing to do\n")
    homes = {each: [partition_of_session(each, MORE)] for each in SESSIONS_OF_TEST}
    sessions, jobs = places(more, SESSIONS), places(more, JOBS)
    assert sessions == {session_record_key(each): homes[each] for each in SESSIONS_OF_TEST}
    first = {job_key(f"{each}-first"): homes[each] for each in SESSIONS_OF_TEST}
    assert jobs == first | {job_key(f"{late}-late"): homes[late]}

    # Work goes on where sessions live now; what came too late has failed.
    await work_goes_on(more)
    assert await view_of(more, [("agent_job", job_key(f"{late}-late"))]) == ["failed"]
    assert await asyncio.to_thread(wrong_in, more) == []
