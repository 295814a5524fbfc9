"""A worker on a database: goals and tasks from the queue to their end, heartbeats, and its stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from streams.agent_api import Turn
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.edge.turns.delivery import RENEW_EVERY_S
from streams.edge.turns.enqueuer import Enqueuer
from streams.edge.turns.sql_ledger import SqlLedger
from streams.edge.turns.sql_turns import SqlTurns
from streams.edge.turns.sql_worker import SqlWorker
from streams.edge.turns.turn_store import Status, TurnRecord
from streams.errors import TaskQueueUnavailable
from tests.support.eventually import eventually
from tests.support.sql_turns import Place
from tests.support.turn_agents import Outcomes, Work, bodies_of


class Rig:
    """A worker, and the seam that enqueues for it."""

    def __init__(
        self,
        place: Place,
        slots: int,
        token: str,
        renew_every_s: float = RENEW_EVERY_S,
        **agents: Work,
    ) -> None:
        self.turns: SqlTurns = place.open(token)
        self.enqueuer = Enqueuer(SqlLedger(self.turns))
        self.outcomes = Outcomes()
        self.until = self.outcomes.until
        self.bodies = bodies_of(slots, agents)
        self.worker = SqlWorker(
            self.turns,
            self.bodies,
            slots=slots,
            worker_id=token,
            observer=self.outcomes,
            renew_every_s=renew_every_s,
        )

    def read(self, record_id: str) -> TurnRecord:
        found = self.turns.store.read(record_id)
        assert found is not None
        return found


@asynccontextmanager
async def working(
    place: Place, slots: int = 2, token: str = "w1", **options: Any
) -> AsyncIterator[Rig]:
    rig = Rig(place, slots, token, **options)
    await rig.worker.start(30)
    try:
        yield rig
    finally:
        await rig.worker.stop(30)
        await rig.bodies.close()


async def test_8_16_a_goal_is_claimed_run_and_written_back(place: Place) -> None:
    async with working(place, default=lambda turn: f"did {turn.iteration}") as rig:
        created = await rig.enqueuer.create_goal(
            {"objective": "win", "validation_cmd": "true", "tenant": "acme"}
        )
        assert await rig.until(1) == ["completed"]

        goal = rig.read(created["goal_id"])
        assert (goal.status, goal.iterations, goal.result) == (Status.COMPLETED, 1, "did 1")
        assert goal.executed_by
        assert goal.executed_by == goal.claimed_by
        (done,) = goal.progress
        assert (done["summary"], done["validated"], done["exit_code"]) == ("did 1", True, 0)
        said = rig.turns.store.said(created["session_id"])
        assert [(each.role, each.content) for each in said] == [("assistant", "did 1")]
        session = rig.turns.store.read_session(created["session_id"])
        assert session is not None
        assert session.status == "completed"


async def test_8_14_a_task_is_done_by_the_agent_that_it_names(place: Place) -> None:
    seen: list[Turn] = []
    async with working(place, reviewer=lambda turn: seen.append(turn) or "fine") as rig:
        handle = await rig.enqueuer.dispatch(
            {"description": "review", "agent_name": "reviewer", "tenant": "acme"}
        )
        await rig.until(1)

        job = rig.read(handle["job_id"])
        assert (job.status, job.result) == (Status.COMPLETED, "fine")
        assert (seen[0].objective, seen[0].tenant) == ("review", "acme")
        said = rig.turns.store.said(handle["session_id"])
        assert [each.content for each in said] == ["fine"]


async def test_a_goal_names_its_agent_also_when_it_is_resumed(place: Place) -> None:
    ran: list[str] = []
    paused = asyncio.Event()

    async def work(turn: Turn) -> str:
        ran.append(turn.agent_name)
        await paused.wait()
        return "done"

    async with working(place, fixer=work) as rig:
        created = await rig.enqueuer.create_goal({"objective": "win", "agent_name": "fixer"})
        await eventually(lambda: bool(ran), "the first iteration")
        await rig.enqueuer.pause(created["session_id"])
        paused.set()
        await rig.until(1)
        goal = rig.read(created["goal_id"])
        assert (goal.status, goal.iterations) == (Status.PAUSED, 1)

        assert await rig.enqueuer.resume(created["session_id"])
        assert await rig.until(2) == ["completed", "completed"]
        goal = rig.read(created["goal_id"])
        assert (goal.status, goal.iterations) == (Status.COMPLETED, 3)
        assert [each["number"] for each in goal.progress] == [1, 2, 3]
        said = rig.turns.store.said(created["session_id"])
        assert len(said) == 2  # what each turn of it came to
    assert ran == ["fixer"] * 3


async def test_a_killed_goal_is_cancelled_between_its_iterations(place: Place) -> None:
    async with working(place, default=lambda _turn: "so far") as rig:
        created = await rig.enqueuer.create_goal({"objective": "win"})
        await eventually(lambda: rig.read(created["goal_id"]).iterations == 1, "an iteration")
        await rig.enqueuer.kill(created["session_id"])
        await rig.until(1)

        goal = rig.read(created["goal_id"])
        assert (goal.status, goal.error) == (Status.CANCELLED, "killed on request")


async def test_a_turn_whose_agent_is_not_known_fails_and_says_which_are(place: Place) -> None:
    async with working(place, reviewer=lambda _turn: None) as rig:
        handle = await rig.enqueuer.dispatch({"description": "x", "agent_name": "nobody"})
        assert await rig.until(1) == ["failed"]

        assert rig.read(handle["job_id"]).error == (
            "there is no agent 'nobody'; known are reviewer"
        )


async def test_a_record_that_holds_no_goal_fails(place: Place) -> None:
    async with working(place, default=lambda _turn: None) as rig:
        rig.turns.store.create(TurnRecord(record_id="g", kind="goal_loop", session_id="s"))
        turn = AgentTurnEnvelope(job_id="j", session_id="s", payload_ref="g", enqueued_at_ms=0)
        rig.turns.queue.put(turn.json_fields())

        assert await rig.until(1) == ["failed"]
        error = rig.read("g").error
        assert error is not None
        assert "objective is missing" in error


async def test_turns_of_sessions_run_side_by_side_and_those_of_one_in_order(place: Place) -> None:
    both = threading.Barrier(2, timeout=60)
    order: list[str] = []

    def work(turn: Turn) -> None:
        if turn.objective == "first":
            both.wait()
        order.append(f"{turn.session_id}:{turn.objective}")

    async with working(place, slots=2, default=work) as rig:
        for session in ("a", "b"):
            for text in ("first", "second", "third"):
                await rig.enqueuer.dispatch({"description": text, "session_id": session})
        await rig.until(6)
    for session in ("a", "b"):
        own = [each for each in order if each.startswith(session)]
        assert own == [f"{session}:first", f"{session}:second", f"{session}:third"]


async def test_8_26_a_worker_tells_what_it_runs(place: Place) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def work(_turn: Turn) -> None:
        begun.set()
        await release.wait()

    rig = Rig(place, 3, "w1", default=work)
    await rig.worker.start(0.02)
    try:
        await rig.enqueuer.dispatch({"description": "x", "session_id": "sess-9"})
        await begun.wait()

        def told() -> bool:
            (worker,) = rig.turns.store.workers()
            assert (worker.worker_id, worker.capacity) == ("w1", 3)
            return worker.active_sessions == ("sess-9",)

        await eventually(told, "a heartbeat during the turn")
    finally:
        release.set()
        await rig.worker.stop(30)
        await rig.bodies.close()
    assert rig.turns.store.workers() == [], "it has ended in order"


async def test_a_stop_lets_what_runs_end(place: Place) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def work(_turn: Turn) -> str:
        begun.set()
        await release.wait()
        return "in time"

    async with working(place, default=work) as rig:
        handle = await rig.enqueuer.dispatch({"description": "x"})
        await begun.wait()
        stopping = asyncio.ensure_future(rig.worker.stop(30))
        release.set()
        await stopping

        assert rig.read(handle["job_id"]).result == "in time"
        assert rig.turns.queue.get_queue_size() == 0


async def test_what_does_not_end_in_the_drain_time_is_given_back_and_run_by_another(
    place: Place,
) -> None:
    begun = asyncio.Event()

    async def work(turn: Turn) -> str:
        begun.set()
        await turn.cancelled
        return "too late"

    async with working(place, default=work) as rig:
        handle = await rig.enqueuer.dispatch({"description": "x"})
        await begun.wait()
        await rig.worker.stop(0)

        job = rig.read(handle["job_id"])
        assert (job.status, job.claimed_by) == (Status.PENDING, "")
        assert rig.outcomes.seen == ["waiting"]

    async with working(place, token="w2", default=lambda _turn: "done") as other:
        assert await other.until(1) == ["completed"]
        assert other.read(handle["job_id"]).result == "done"


async def test_a_turn_whose_claim_is_lost_is_cut_off(place: Place) -> None:
    begun, cut = asyncio.Event(), asyncio.Event()

    async def work(_turn: Turn) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cut.set()

    async with working(place, renew_every_s=0.05, default=work) as rig:
        handle = await rig.enqueuer.dispatch({"description": "x"})
        await begun.wait()
        # At once, as of a claim that was dead: this worker's would be renewed meanwhile.
        taken = "UPDATE agent_turn_records SET fence = fence + 1, claimed_by = 'w2'"
        rig.turns.database.run(lambda transaction: transaction.change(taken))

        await cut.wait()
        await rig.until(1)
        job = rig.read(handle["job_id"])
        assert (job.claimed_by, job.status, job.result) == ("w2", Status.RUNNING, None)


async def test_a_turn_that_is_interrupted_is_cut_off_and_cancelled(place: Place) -> None:
    begun, cut = asyncio.Event(), asyncio.Event()

    async def work(turn: Turn) -> str:
        if turn.objective == "second":
            return "done"
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cut.set()
        return "never"

    async with working(place, renew_every_s=0.05, default=work) as rig:
        first = await rig.enqueuer.dispatch({"description": "first", "session_id": "s"})
        await begun.wait()
        second = await rig.enqueuer.dispatch(
            {"description": "second", "session_id": "s", "when_busy": "interrupt"}
        )
        assert await rig.until(2) == ["interrupted", "completed"]
        assert cut.is_set()
        assert rig.read(first["job_id"]).status is Status.CANCELLED
        assert rig.read(second["job_id"]).result == "done"


async def test_a_database_that_cannot_be_used_ends_the_worker(place: Place) -> None:
    async with working(place, default=lambda _turn: None) as rig:
        rig.turns.database.run(
            lambda transaction: transaction.change("DROP TABLE agent_dispatch_queue")
        )
        with pytest.raises(TaskQueueUnavailable):
            await asyncio.wait_for(asyncio.shield(rig.worker.failed), 60)


async def test_a_second_worker_of_one_name_says_so(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with working(place, token="w1"), working(place, token="w2"):
        assert "turn_worker_id_taken" not in caplog.messages
        async with working(place, token="w1"):
            assert caplog.messages.count("turn_worker_id_taken") == 1
