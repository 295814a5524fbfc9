"""The worker of turns on a real broker: order, ends, the fleet."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from streams.core.turn.fleet import Presence
from streams.core.turn.partition_key import partition_of_session
from streams.core.turn.words import DEAD_LETTERS, JOBS, SESSIONS, TURNS
from streams.edge.turns.body import Claimed, Ending
from streams.edge.turns.fleet_report import fleet_report
from streams.edge.turns.kafka.presence import FLEET, namesakes
from streams.edge.turns.kafka.serve import serve
from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.kafka_turns import (
    CODEC,
    Api,
    Ran,
    ServedWorker,
    now_ms,
    read_topic,
    until,
    worker,
)
from tests.support.turn_runs import of_run, waiting, words_about

pytestmark = [pytest.mark.broker]


async def test_turns_of_a_session_run_in_their_order_and_once_each(
    settings: Settings, run: str
) -> None:
    api = Api(settings)
    sessions = [f"{run}-s{number}" for number in range(8)]
    jobs = {each: [f"{each}-j{number}" for number in range(12)] for each in sessions}
    for each in sessions:
        api.session(each)
    for number in range(12):
        for each in sessions:
            api.enqueue(jobs[each][number], each)
    api.flush()

    async def body(claimed: Claimed) -> Ending:
        await asyncio.sleep(0)
        return Ending("completed", result=claimed.envelope.job_id)

    async with worker(settings, body, slots=8) as served:
        await until(lambda: len(served.ran.outcomes) >= 96, served)
    for each in sessions:
        assert [job for job in served.ran.started if job.startswith(f"{each}-")] == jobs[each]
    ends = [("turn_claimed", ""), ("turn_finished", "completed")]
    assert words_about(settings, run) == {
        job: ends for of_session in jobs.values() for job in of_session
    }
    last = {each.value["session_id"]: each.value for each in of_run(settings, SESSIONS, run)}
    for each in sessions:
        assert last[each]["status"] == "completed"
        assert [said["content"] for said in last[each]["said"]] == jobs[each]
    records = {each.value["job_id"]: each.value for each in of_run(settings, JOBS, run)}
    assert {each["status"] for each in records.values()} == {"completed"}
    assert {each["dispatch_host"] != "" for each in records.values()} == {True}
    assert {each["executed_by"] for each in records.values()} == {
        each["claimed_by"] for each in records.values()
    }


async def test_8_17_8_20_8_21_what_is_not_to_be_run_ends_or_is_kept_and_the_rest_goes_on(
    settings: Settings, run: str, caplog: pytest.LogCaptureFixture
) -> None:
    api = Api(settings)
    session = f"{run}-s"
    api.append(TURNS, "agent_turn", "session:x", b'{"job_id": "poison"}', session)
    api.enqueue(f"{run}-late", session, deadline_ms=now_ms() - 10_000)
    api.enqueue(f"{run}-once", session)
    api.turn(f"{run}-once", session)
    api.turn(f"{run}-nothing", session)
    json_turn = (
        f'{{"session_id": "{session}", "kind": "orchestrator_task", "payload_ref": "{run}-json"}}'
    )
    api.task(f"{run}-json", session)
    api.append(TURNS, "agent_turn", f"session:{session}", json_turn.encode(), session)
    stray, home = session_elsewhere(settings, session)
    api.append(TURNS, "agent_turn", "k", f'{{"session_id": "{stray}"}}'.encode(), session)
    api.flush()
    async with worker(settings) as served:
        await until(lambda: len(served.ran.outcomes) >= 6, served)
    assert served.ran.started[:1] == [f"{run}-once"]
    assert len(served.ran.started) == 2, "what is JSON ran, nothing twice"
    assert served.ran.outcomes.count("skipped") == 3
    assert [each for each in served.ran.outcomes if each != "skipped"] == [
        *("expired", "completed", "completed")
    ]
    told: dict[str, Any] = {
        line.__dict__["record"]: line.__dict__["reason"]
        for line in caplog.records
        if line.message == "turn_without_record"
    }
    assert told[f"{run}-nothing"] == "its goal or task is not there"
    assert told[""].startswith(f"its session lives in partition {home}: ")
    letters = [
        each for each in read_topic(settings, DEAD_LETTERS) if each.value["job_id"] == "poison"
    ]
    assert "session_id is missing" in letters[-1].value["error"]
    assert letters[-1].value["raw"] == b'{"job_id": "poison"}'
    jobs = {each.value["job_id"]: each.value for each in of_run(settings, JOBS, run)}
    assert jobs[f"{run}-late"]["status"] == "failed"
    assert "deadline" in jobs[f"{run}-late"]["error"]


def session_elsewhere(settings: Settings, session: str) -> tuple[str, int]:
    """Return another session, and its partition, which is not that of the first one."""
    count = settings.agent_turns_partitions
    homes = {
        f"{session}{each}": partition_of_session(f"{session}{each}", count) for each in "abcdefgh"
    }
    at = partition_of_session(session, count)
    return next((name, home) for name, home in homes.items() if home != at)


async def test_8_22_one_turn_in_two_workers_is_run_by_one_and_ends_twice_as_it_was_enqueued(
    settings: Settings, run: str
) -> None:
    api, session = Api(settings), f"{run}-s"
    api.enqueue(f"{run}-j", session)
    api.turn(f"{run}-j", session)
    api.flush()
    async with worker(settings, name="a") as a, worker(settings, name="b") as b:
        await until(lambda: len(a.ran.outcomes) + len(b.ran.outcomes) == 2, a)
    assert [*a.ran.started, *b.ran.started] == [f"{run}-j"]
    assert sorted([*a.ran.outcomes, *b.ran.outcomes]) == ["completed", "skipped"]


async def test_8_24_heartbeats_tell_of_a_worker_and_of_its_end(
    settings: Settings, run: str
) -> None:
    api, release, stop = Api(settings), asyncio.Event(), asyncio.Event()
    session = f"{run}-s"
    api.enqueue(f"{session}-first", session)
    api.flush()
    ran = Ran(waiting(release))
    serving = asyncio.ensure_future(
        serve(settings, CODEC, ran, slots=3, worker_id=run, stop=stop, observer=ran)
    )

    async def told() -> Any:
        """What the fleet says of it now; None when it is not there."""
        report = await fleet_report(settings, CODEC)
        return next((each for each in report.workers if each.worker_id == run), None)

    def beats() -> list[Any]:
        found = read_topic(settings, FLEET)
        return [each.value for each in found if each.value.get("worker_id") == run]

    while (found := await told()) is None or found.active_sessions != (session,):
        assert not serving.done()
    assert (found.capacity, found.queue_backend) == (3, "kafka")
    other = Presence(
        worker_id=run,
        token="elsewhere:1:agent-dispatch",
        host="elsewhere",
        capacity=1,
        queue_backend="kafka",
        started_at_ms=now_ms(),
    )
    producer = make_producer(settings)  # what is no heartbeat is nobody's
    tick = CODEC.encode("tick", {"due_ms": 1})
    producer.produce(FLEET, tick, run.encode(), headers=[("kind", b"fleet_worker")])
    assert producer.flush(30) == 0
    # Whoever has its name hears of it; it does not take itself for another.
    (mine,) = await asyncio.to_thread(namesakes, settings, CODEC, other, now_ms())
    assert mine == beats()[-1]["token"]
    of_mine = replace(other, token=mine)
    assert await asyncio.to_thread(namesakes, settings, CODEC, of_mine, now_ms()) == set()
    later_ms = now_ms() + 90_001 + 60_000
    assert await asyncio.to_thread(namesakes, settings, CODEC, other, later_ms) == set()
    stop.set()
    while not (await asyncio.to_thread(beats))[-1]["draining"]:
        assert not serving.done()
    release.set()
    await serving
    assert await told() is None, "it has ended in order"
    assert await asyncio.to_thread(namesakes, settings, CODEC, other, now_ms()) == set()
    last = beats()[-1]
    assert last["token"].endswith(":agent-dispatch")


async def test_what_memory_has_no_room_for_is_looked_up_in_the_topics(
    settings: Settings, run: str
) -> None:
    api = Api(settings)
    sessions = [f"{run}-s{number}" for number in range(12)]
    for each in sessions:
        api.session(each)
        api.task(f"{each}-j", each)
    for each in sessions:
        api.turn(f"{each}-j", each)
    api.flush()
    async with worker(settings, kept_max=1) as served:
        await until(lambda: len(served.ran.outcomes) >= len(sessions), served)
    assert set(served.ran.outcomes) == {"completed"}
    last = {each.value["session_id"]: each.value for each in of_run(settings, SESSIONS, run)}
    assert {each["status"] for each in last.values()} == {"completed"}
    assert {len(each["said"]) for each in last.values()} == {1}


LONG_S = 200
"""More than three times as long as a member of the group may be away from it at most."""


@pytest.mark.soak
@pytest.mark.timeout(LONG_S + 120)
async def test_a_long_turn_keeps_its_worker_in_the_group_and_holds_up_no_other_session(
    settings: Settings, run: str
) -> None:
    api, long = Api(settings), f"{run}-long"
    at = partition_of_session(long, settings.agent_turns_partitions)
    beside = [
        name
        for name in (f"{run}-n{number}" for number in range(100))
        if partition_of_session(name, settings.agent_turns_partitions) == at
    ]

    async def body(claimed: Claimed) -> Ending:
        if claimed.envelope.session_id == long:
            await asyncio.sleep(LONG_S)
        return Ending("completed")

    def tickets(one: ServedWorker) -> dict[int, int]:
        """Of each partition's assignment: another one, when it was given up meanwhile."""
        return {each.number: each.ticket for each in one.worker._partitions.values()}

    async with worker(settings, body, name="a") as a, worker(settings, body, name="b") as b:
        half = settings.agent_turns_partitions // 2
        await until(lambda: all(len(each.worker.doing().partitions) == half for each in (a, b)), a)
        api.enqueue(f"{long}-j", long)
        api.flush()
        await until(lambda: bool([*a.ran.started, *b.ran.started]), a)
        one = a if a.ran.started else b
        before, count = tickets(one), 0
        while f"{long}-j" not in one.ran.ended:
            job = f"{beside[count % len(beside)]}-j{count}"
            api.enqueue(job, beside[count % len(beside)])
            api.flush()
            await until(lambda job=job: job in one.ran.ended, one)
            count += 1
            await asyncio.sleep(0.2)  # the rate of the load
        await until(lambda: len(one.ran.outcomes) == count + 1, one)
        assert tickets(one) == before
    said = words_about(settings, run)
    ends = (("turn_claimed", ""), ("turn_finished", "completed"))
    assert set(map(tuple, said.values())) == {ends}
    assert len(said) == count + 1 > LONG_S
