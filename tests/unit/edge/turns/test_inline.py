"""Turns that run in the process that takes them, with records on any carrier."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from streams.agent_api import Turn
from streams.edge.turns.enqueuer import SessionBusy, SessionKilled
from streams.edge.turns.inline import inline_token, is_dead
from streams.edge.turns.inline_records import InlineRecords
from streams.edge.turns.turn_store import Status
from streams.errors import TaskQueueFull, TaskQueueUnavailable
from tests.support.eventually import eventually_async
from tests.support.inline_turns import (
    Carrier,
    InlineProcess,
    kafka_carrier,
    running,
    sql_carrier,
)
from tests.support.sql_turns import postgres_place, sqlite_place


@pytest_asyncio.fixture(params=["sqlite", "postgres", "kafka"])
async def carrier(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Carrier]:
    async with AsyncExitStack() as stack:
        if request.param == "kafka":
            yield await stack.enter_async_context(kafka_carrier())
            return
        if request.param == "sqlite":
            place = stack.enter_context(sqlite_place(tmp_path))
        else:
            postgres: Any = request.getfixturevalue("postgres")
            place = stack.enter_context(postgres_place(postgres))
        yield await stack.enter_async_context(sql_carrier(place))


async def session_status(process: InlineProcess, session_id: str) -> str:
    session = await process.ledger.session(session_id)
    assert session is not None
    return session.status


async def test_8_16_a_goal_starts_at_once_and_is_written_back(carrier: Carrier) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def work(turn: Turn) -> str:
        begun.set()
        await release.wait()
        return f"did {turn.iteration}"

    async with running(carrier, default=work) as process:
        created = await process.enqueuer.create_goal({"objective": "win", "validation_cmd": "true"})
        assert "dispatch" not in created
        await begun.wait()
        goal = await process.goal(created["goal_id"])
        assert (goal.status, goal.claimed_by) == (Status.RUNNING, process.inline.token)
        assert await session_status(process, created["session_id"]) == "running"
        assert process.inline.depth == 1

        release.set()
        assert await process.until(1) == ["completed"]
        goal = await process.goal(created["goal_id"])
        assert (goal.status, goal.result, goal.iterations) == (Status.COMPLETED, "did 1", 1)
        assert goal.executed_by == process.inline.token
        assert [each["validated"] for each in goal.progress] == [True]
        assert await session_status(process, created["session_id"]) == "completed"
        assert process.inline.depth == 0


async def test_8_14_a_task_runs_here_and_says_so(carrier: Carrier) -> None:
    async with running(carrier, reviewer=lambda turn: f"read {turn.objective}") as process:
        handle = await process.enqueuer.dispatch(
            {"description": "it", "agent_name": "reviewer", "tenant": "acme"}
        )
        assert handle["job_id"].startswith("orch-")
        assert handle["dispatch"] == "inline"
        assert handle["status_url"].endswith(f"/job/{handle['job_id']}")
        await process.until(1)
        job = await process.job(handle["job_id"])
        assert (job.status, job.result) == (Status.COMPLETED, "read it")


async def test_turns_of_a_session_run_one_after_another_and_sessions_side_by_side(
    carrier: Carrier,
) -> None:
    both = threading.Barrier(2, timeout=60)
    order: list[str] = []

    def work(turn: Turn) -> None:
        if turn.objective == "1":
            both.wait()
        order.append(f"{turn.session_id}{turn.objective}")

    async with running(carrier, default=work) as process:
        for text in ("1", "2", "3"):
            for session in ("a", "b"):
                await process.enqueuer.dispatch({"description": text, "session_id": session})
        await process.until(6)
    for session in ("a", "b"):
        assert [each for each in order if each[0] == session] == [
            f"{session}{text}" for text in "123"
        ]


async def test_a_goal_is_paused_resumed_and_killed(carrier: Carrier) -> None:
    gates = [asyncio.Event() for _ in range(3)]

    async def work(turn: Turn) -> str:
        await gates[min(turn.iteration, 3) - 1].wait()
        return f"did {turn.iteration}"

    async with running(carrier, fixer=work) as process:
        created = await process.enqueuer.create_goal({"objective": "win", "agent_name": "fixer"})
        goal_id, session_id = created["goal_id"], created["session_id"]
        await process.enqueuer.pause(session_id)
        gates[0].set()
        await process.until(1)
        goal = await process.goal(goal_id)
        # The pause may have come before the first iteration.
        assert goal.status is Status.PAUSED

        handles = await process.enqueuer.resume(session_id)
        assert handles is not None
        assert [each["dispatch"] for each in handles] == ["inline"]
        await process.enqueuer.kill(session_id)
        for gate in gates:
            gate.set()
        await process.until(2)
        goal = await process.goal(goal_id)
        assert (goal.status, goal.error) == (Status.CANCELLED, "killed on request")
        with pytest.raises(SessionKilled):
            await process.enqueuer.dispatch({"description": "x", "session_id": session_id})


async def test_more_than_fit_are_refused_and_their_records_have_failed(carrier: Carrier) -> None:
    release = asyncio.Event()

    async def work(_turn: Turn) -> None:
        await release.wait()

    async with running(carrier, turns_max=2, default=work) as process:
        for _ in range(2):
            await process.enqueuer.dispatch({"description": "x", "session_id": "s"})
        with pytest.raises(TaskQueueFull):
            await process.enqueuer.dispatch({"description": "one too many"})
        (failed,) = await process.ledger.records(
            kind="orchestrator_task", status=Status.FAILED, limit=10
        )
        assert failed.error is not None
        assert "2 turns run or wait here, 2 at most" in failed.error
        release.set()
        assert await process.until(2) == ["completed"] * 2
        await process.enqueuer.dispatch({"description": "there is room again"})
        await process.until(3)


async def test_8_20_a_turn_whose_deadline_passed_while_it_waited_fails(carrier: Carrier) -> None:
    release = asyncio.Event()

    async def work(_turn: Turn) -> None:
        await release.wait()

    async with running(carrier, default=work) as process:
        await process.enqueuer.dispatch({"description": "first", "session_id": "s"})
        late = await process.enqueuer.dispatch(
            {"description": "late", "session_id": "s", "deadline_unix": 1.0}
        )
        release.set()
        assert await process.until(2) == ["completed", "expired"]
        job = await process.job(late["job_id"])
        assert job.status is Status.FAILED
        assert job.error is not None
        assert "deadline" in job.error


async def test_a_busy_session_rejects_or_is_interrupted_as_its_turn_says(carrier: Carrier) -> None:
    begun, cut = asyncio.Event(), asyncio.Event()

    async def work(turn: Turn) -> str:
        if turn.objective == "last":
            return "done"
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cut.set()
        return "never"

    async with running(carrier, default=work) as process:
        asked = {"session_id": "s"}
        first = await process.enqueuer.dispatch({"description": "first", **asked})
        waiting = await process.enqueuer.dispatch({"description": "waits", **asked})
        await begun.wait()
        with pytest.raises(SessionBusy):
            await process.enqueuer.dispatch(
                {"description": "not now", "when_busy": "reject", **asked}
            )
        last = await process.enqueuer.dispatch(
            {"description": "last", "when_busy": "interrupt", **asked}
        )
        assert await process.until(3) == ["interrupted", "interrupted", "completed"]
        assert cut.is_set()
        for handle in (first, waiting):
            job = await process.job(handle["job_id"])
            assert (job.status, job.error) == (
                Status.CANCELLED,
                f"interrupted by {last['job_id']}",
            )


async def test_what_does_not_end_with_the_process_has_failed_and_says_why(carrier: Carrier) -> None:
    begun = asyncio.Event()

    async def work(turn: Turn) -> str:
        begun.set()
        await turn.cancelled
        return "too late"

    async with running(carrier, default=work) as process:
        runs = await process.enqueuer.dispatch({"description": "runs", "session_id": "s"})
        waits = await process.enqueuer.dispatch({"description": "waits", "session_id": "s"})
        await begun.wait()
        await process.inline.stop(0)
        assert process.outcomes.seen == ["failed", "failed"]
        for handle in (runs, waits):
            job = await process.job(handle["job_id"])
            assert job.status is Status.FAILED
            assert job.error is not None
            assert "has stopped" in job.error
        with pytest.raises(TaskQueueFull):
            await process.enqueuer.dispatch({"description": "x"})


class AwayAtFirst:
    """Records whose carrier is away when an iteration is written, and when a turn ends."""

    def __init__(self, records: InlineRecords) -> None:
        self._records = records
        self._away = {"iterate", "end"}

    def __getattr__(self, name: str) -> Any:
        if name in self._away:
            self._away.discard(name)
            raise TaskQueueUnavailable("here", "it restarts", retryable=True)
        return getattr(self._records, name)


async def test_an_outage_is_no_failure_of_a_turn(carrier: Carrier) -> None:
    def records(token: str, turns_max: int) -> Any:
        return AwayAtFirst(carrier.records(token, turns_max))

    async def work(turn: Turn) -> str:
        return f"did {turn.iteration}"

    async def is_reached(turn: Turn) -> bool:
        return turn.iteration == 2

    away = Carrier(carrier.ledger, records)
    async with running(away, default=(work, is_reached)) as process:
        created = await process.enqueuer.create_goal({"objective": "win"})
        assert await process.until(1) == ["completed"]
        goal = await process.goal(created["goal_id"])
        assert (goal.status, goal.iterations) == (Status.COMPLETED, 2)
        assert [each["number"] for each in goal.progress] == [1, 2]


def token_of_the_dead() -> str:
    """A token of a process of this host that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return f"{socket.gethostname()}:{ended.pid}:0badcafe:inline"


async def test_what_a_killed_process_left_behind_fails_when_the_next_one_starts(
    carrier: Carrier,
) -> None:
    begun = asyncio.Event()

    async def work(_turn: Turn) -> None:
        begun.set()
        await asyncio.Event().wait()

    killed = InlineProcess(carrier, token=token_of_the_dead(), default=work)
    created = await killed.enqueuer.create_goal({"objective": "win", "session_id": "s"})
    waits = await killed.enqueuer.dispatch({"description": "waits", "session_id": "s"})
    await begun.wait()
    try:
        async with running(carrier, default=lambda _turn: None) as process:
            await process.inline.start()

            async def both_failed() -> bool:
                goal = await process.goal(created["goal_id"])
                job = await process.job(waits["job_id"])
                return {goal.status, job.status} == {Status.FAILED}

            await eventually_async(both_failed, "both have failed")
            goal = await process.goal(created["goal_id"])
            assert goal.error is not None
            assert "has stopped" in goal.error
    finally:
        for working in list(killed.inline._working):
            working.cancel()
        await killed.bodies.close()


async def test_a_process_that_was_given_up_leaves_the_failure_as_it_is(
    carrier: Carrier, caplog: pytest.LogCaptureFixture
) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def work(_turn: Turn) -> str:
        begun.set()
        await release.wait()
        return "too late"

    async with running(carrier, token="elsewhere:1:0badcafe:inline", default=work) as stopped:
        handle = await stopped.enqueuer.dispatch({"description": "x"})
        await begun.wait()
        async with running(carrier, default=work) as process:
            assert await process.inline.tell_lost() == 1  # nothing was heard of the other one
        release.set()
        await stopped.until(1)
        job = await stopped.job(handle["job_id"])
        assert (job.status, job.result) == (Status.FAILED, None)
    assert [line.message for line in caplog.records][-1] == "turn_claim_lost"


async def test_what_a_live_process_runs_is_its_own(carrier: Carrier) -> None:
    release = asyncio.Event()

    async def work(_turn: Turn) -> None:
        await release.wait()

    elsewhere = "elsewhere:1:0badcafe:inline"
    async with running(carrier, token=elsewhere, default=work) as other:
        await other.inline.start(0.5)
        handle = await other.enqueuer.dispatch({"description": "x"})

        async def is_heard_of() -> bool:
            return elsewhere in {each.worker_id for each in await other.ledger.workers()}

        await eventually_async(is_heard_of, "its heartbeat")
        async with running(carrier, default=work) as process:
            assert await process.inline.tell_lost() == 0
            assert (await process.job(handle["job_id"])).status is not Status.FAILED
        release.set()
        await other.until(1)
        await other.inline.stop(30)

        async def is_gone() -> bool:
            return not await is_heard_of()

        await eventually_async(is_gone, "its end")


def test_a_process_is_known_to_be_dead_only_on_its_own_host() -> None:
    own = inline_token()
    host, pid, _, _ = own.split(":")

    assert is_dead(token_of_the_dead())
    assert is_dead(f"{host}:{pid}:00000000:inline")  # what had this pid before
    assert not is_dead(f"{host}:1:00000000:inline")
    assert not is_dead("elsewhere:999999:00000000:inline")
    assert not is_dead(f"{host}:none:00000000:inline")
