"""The worker of turns on a real broker: order, ends, hand-overs, owners that fence each other."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from streams.agents.transaction import TransactionalProducer
from streams.core.turn.partition_key import partition_of_session
from streams.core.turn.words import CLAIMS, DEAD_LETTERS, JOBS, SESSIONS, TURNS
from streams.core.wire import AgentGoal, GoalIteration
from streams.edge.turns.agent_bodies import AgentBodies
from streams.edge.turns.agents import Agent, Agents, agent_function
from streams.edge.turns.body import Claimed, Ending
from streams.edge.turns.kafka.presence import FLEET
from streams.edge.turns.kafka.serve import serve
from streams.edge.turns.kafka.taking import transactional_id
from streams.settings import Settings
from tests.support.broker import Kafka
from tests.support.kafka_turns import (
    CODEC,
    Api,
    Ran,
    ServedWorker,
    enqueuer,
    now_ms,
    provision_turns,
    read_topic,
    turn_settings,
    until,
    worker,
)

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
def settings(kafka: Kafka) -> Settings:
    provision_turns(kafka.settings)
    return turn_settings(kafka.settings, turn_handover_s=20, drain_ms=5_000)


@pytest.fixture
def run() -> str:
    """Begins the names of one test: tests share topics and group."""
    return uuid.uuid4().hex[:8]


def of_run(settings: Settings, topic: str, run: str) -> list[Any]:
    """The records of one test, by the session that they are about."""
    found = read_topic(settings, topic)
    return [each for each in found if str(each.value.get("session_id", "")).startswith(run)]


def words_about(settings: Settings, run: str) -> dict[str, list[tuple[str, str]]]:
    """Kinds and outcomes that the claims have of each job, in order."""
    said: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for each in of_run(settings, CLAIMS, run):
        said[each.value["job_id"]].append((each.kind, each.value.get("outcome", "")))
    return said


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
    settings: Settings, run: str
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
    api.flush()
    async with worker(settings) as served:
        await until(lambda: len(served.ran.outcomes) >= 5, served)
    assert served.ran.started[:1] == [f"{run}-once"]
    assert len(served.ran.started) == 2, "what is JSON ran, nothing twice"
    assert served.ran.outcomes == ["expired", "completed", "skipped", "skipped", "completed"]
    letters = [
        each for each in read_topic(settings, DEAD_LETTERS) if each.value["job_id"] == "poison"
    ]
    assert "session_id is missing" in letters[-1].value["error"]
    assert letters[-1].value["raw"] == b'{"job_id": "poison"}'
    jobs = {each.value["job_id"]: each.value for each in of_run(settings, JOBS, run)}
    assert jobs[f"{run}-late"]["status"] == "failed"
    assert "deadline" in jobs[f"{run}-late"]["error"]


async def test_8_16_a_goal_is_claimed_run_and_written_back(settings: Settings, run: str) -> None:
    agents = Agents(
        {"default": Agent("default", agent_function(lambda turn: f"did {turn.iteration}"))}
    )
    allowed = replace(settings, agent_validation_commands="on")
    bodies = AgentBodies(allowed, agents, slots=2)
    async with enqueuer(settings) as asked:
        body = bodies.body_for("goal_loop", "")
        async with worker(settings, body) as served:
            asking = {"objective": "win", "validation_cmd": "true", "session_id": f"{run}-s"}
            created = await asked.create_goal(asking)
            await until(lambda: served.ran.outcomes == ["completed"], served)
    await bodies.close()
    goal = of_run(settings, JOBS, run)[-1].value
    assert goal["goal_id"] == created["goal_id"]
    assert (goal["status"], goal["iteration_count"], goal["result"]) == ("completed", 1, "did 1")
    assert goal["executed_by"] == goal["owner_host"] == "w"
    session = of_run(settings, SESSIONS, run)[-1].value
    assert session["status"] == "completed"
    assert [(each["role"], each["content"]) for each in session["said"]] == [("assistant", "did 1")]


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


def waiting(release: asyncio.Event) -> Any:
    """A body whose first turns of sessions wait to be released, or give themselves back."""

    async def body(claimed: Claimed) -> Ending:
        if claimed.envelope.job_id.endswith("-first"):
            ways = [asyncio.ensure_future(each.wait()) for each in (release, claimed.cancelled)]
            _, others = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for each in others:
                each.cancel()
            if claimed.cancelled.is_set():
                raise asyncio.CancelledError
        return Ending("completed")

    return body


def sessions_everywhere(run: str, settings: Settings) -> dict[int, str]:
    """One session in each partition, by its number."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < settings.agent_turns_partitions:
        session = f"{run}-s{number}"
        found.setdefault(partition_of_session(session, settings.agent_turns_partitions), session)
        number += 1
    return found


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


async def test_a_goal_is_paused_resumed_and_killed_while_its_worker_owns_it(
    settings: Settings, run: str
) -> None:
    async def body(claimed: Claimed) -> Ending:
        goal = claimed.goal
        assert goal is not None
        while True:
            wanted = await claimed.desired()
            if wanted.kill_requested:
                return Ending("cancelled", error="killed", goal=goal)
            if wanted.pause_requested:
                return Ending("paused", goal=goal)
            number = goal["iteration_count"] + 1
            done: GoalIteration = {
                "number": number,
                "summary": f"did {number}",
                "validated": None,
                "exit_code": None,
                "output": "",
                "started_at_ms": now_ms(),
                "ended_at_ms": now_ms(),
            }
            after: AgentGoal = {**goal, "iteration_count": number, "iterations": [done]}
            assert await claimed.write(after)
            goal = after
            await asyncio.sleep(0.02)

    async with enqueuer(settings) as asked, worker(settings, body) as served:
        created = await asked.create_goal({"objective": "go on", "session_id": f"{run}-s"})
        await until(lambda: bool(iterations(settings, run)), served)
        assert await asked.pause(f"{run}-s")
        await until(lambda: len(served.ran.outcomes) == 1, served)
        reached = iterations(settings, run)
        resumed = await asked.resume(f"{run}-s")
        while not resumed:  # the API has not read yet what the worker has written
            await until(lambda: True, served)
            resumed = await asked.resume(f"{run}-s")
        assert resumed[0]["session_id"] == f"{run}-s"
        await until(lambda: iterations(settings, run) > reached, served)
        assert await asked.kill(f"{run}-s")
        await until(lambda: len(served.ran.outcomes) == 2, served)
    last = of_run(settings, JOBS, run)[-1].value
    assert last["goal_id"] == created["goal_id"]
    assert (last["status"], last["error"]) == ("cancelled", "killed")
    sessions = [each for each in of_run(settings, SESSIONS, run) if each.kind == "agent_session"]
    assert sessions[-1].value["status"] == "cancelled"
    outcomes = [
        each.value["record_status"]
        for each in of_run(settings, CLAIMS, run)
        if each.kind == "turn_finished"
    ]
    assert outcomes == ["paused", "cancelled"]


def iterations(settings: Settings, run: str) -> int:
    """How far the goal of a test is."""
    found = [each.value.get("iteration_count", 0) for each in of_run(settings, JOBS, run)]
    return max(found, default=0)


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

    def beats() -> list[Any]:
        return [
            each.value for each in read_topic(settings, FLEET) if each.value["worker_id"] == run
        ]

    while not any(each["active_sessions"] == [session] for each in await asyncio.to_thread(beats)):
        assert not serving.done()
    release.set()
    stop.set()
    await serving
    last = beats()[-1]
    assert (last["active_sessions"], last["partitions"], last["draining"]) == ([], [], True)
    assert (last["capacity"], last["queue_backend"]) == (3, "kafka")
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


@contextmanager
def processes(settings: Settings, folder: Path, count: int) -> Iterator[list[Popen[bytes]]]:
    """Workers in processes of their own; whatever is left of them is killed."""
    environment = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": str(settings.bootstrap),
        "AGENT_TURNS_PARTITIONS": str(settings.agent_turns_partitions),
        "HARN_SESSION_TIMEOUT_MS": "1500",
        "HARN_STATE_DIR": str(folder),
        "PYTHONPATH": str(ROOT),
    }
    program = [sys.executable, str(ROOT / "tests/support/kafka_turn_worker.py")]
    with (folder / "stderr").open("ab") as log:
        started = [
            Popen([*program, str(folder / "log")], env=environment, stderr=log)
            for _ in range(count)
        ]
    try:
        yield started
    finally:
        for each in started:
            each.kill()
            each.wait()


def ended(settings: Settings, run: str) -> dict[str, list[str]]:
    """The jobs that have ended, by session, in the order of their ends."""
    done: dict[str, list[str]] = defaultdict(list)
    for each in of_run(settings, CLAIMS, run):
        if each.kind == "turn_finished":
            done[each.value["session_id"]].append(each.value["job_id"])
    return done


async def until_all_run(api: Api, run: str, workers: list[Popen[bytes]], folder: Path) -> None:
    """Enqueue turns of other sessions until each worker has run one."""
    waited = {f"{each.pid}" for each in workers}
    while waited:
        assert not [each for each in workers if each.poll() is not None], said_by(folder)
        session = f"{run}-warm{uuid.uuid4().hex[:6]}"
        api.enqueue(f"{session}-j", session)
        api.flush()
        await asyncio.sleep(0.05)  # the rate of the load
        waited -= {line.split()[2] for line in (folder / "log").read_text().splitlines()}


def said_by(folder: Path) -> str:
    return (folder / "stderr").read_text()[-2_000:]


async def test_one_worker_is_killed_and_another_stands_still_and_each_turn_ends_once(
    settings: Settings, run: str, tmp_path: Path
) -> None:
    api = Api(settings)
    sessions = [f"{run}-s{number}" for number in range(24)]
    jobs = {each: [f"{each}-j{number}" for number in range(6)] for each in sessions}
    (tmp_path / "log").touch()
    with processes(settings, tmp_path, 3) as workers:
        await until_all_run(api, run, workers, tmp_path)
        for number in range(6):
            for each in sessions:
                api.enqueue(jobs[each][number], each)
        api.flush()
        killed, stands, stays = workers
        killed.kill()
        stands.send_signal(signal.SIGSTOP)
        while {each: ended(settings, run)[each] for each in sessions} != jobs:
            assert stays.poll() is None, said_by(tmp_path)
        stands.send_signal(signal.SIGCONT)
        for each in (stands, stays):
            each.terminate()
        assert [each.wait(20) for each in (stands, stays)] == [0, 0], said_by(tmp_path)
    assert {each: ended(settings, run)[each] for each in sessions} == jobs
    told = words_about(settings, run).values()
    assert {said[-1] for said in told} == {("turn_finished", "completed")}
    assert {[kind for kind, _ in said].count("turn_finished") for said in told} == {1}
