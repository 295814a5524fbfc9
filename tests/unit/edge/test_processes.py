"""Handlers in processes of their own: what they do to their process, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from streams.edge.executors import on_processes
from streams.edge.executors.call import Call
from streams.edge.executors.on_processes import ProcessExecutor
from streams.edge.executors.outcome import Outcome
from streams.edge.executors.process_frames import FrameError, Frames, Logged, frame
from streams.handler_api import Context
from tests.support.eventually import eventually
from tests.support.invoker_edge import intent_value
from tests.support.odd_handlers import in_process, missing


class Pool:
    """A process executor, and what calls came to, in the order in which they ended."""

    def __init__(self, processes_max: int, memory_bytes_max: int) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.order: list[str] = []
        self.began: list[str] = []
        self._changed = asyncio.Event()
        self.executor = ProcessExecutor(
            processes_max=processes_max,
            memory_bytes_max=memory_bytes_max,
            result_bytes_max=3_000,
            log_level=logging.WARNING,
            on_began=self._on_began,
            on_end=self._on_end,
        )

    def start(self, name: str, dispatch_id: str = "d1", trigger: str = "t", **payload: Any) -> Call:
        event = intent_value("h", dispatch_id)["event"]
        event |= {"provider_payload": json.dumps(payload), "batch": None}
        call = Call(
            handler=missing() if name == "missing" else in_process(name),
            event=event,
            context=Context(
                attempt=1,
                attempt_id=f"{dispatch_id}.1",
                dispatch_id=dispatch_id,
                trigger_id=trigger,
                binding_key=f"{trigger}@v1",
                event_id=event["id"],
            ),
            purpose="handler",
            timeout_ms=None,
            ended=lambda _: None,
        )
        self.executor.start(call)
        return call

    async def run(self, name: str, dispatch_id: str = "d1", **payload: Any) -> Outcome:
        self.start(name, dispatch_id, **payload)
        return await self.outcome(dispatch_id)

    async def outcome(self, dispatch_id: str) -> Outcome:
        await self._until(lambda: dispatch_id in self.outcomes)
        return self.outcomes[dispatch_id]

    async def has_begun(self, dispatch_id: str) -> None:
        await self._until(lambda: dispatch_id in self.began)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 30)

    def _on_began(self, call: Call) -> None:
        self.began.append(call.context.dispatch_id)
        self._changed.set()

    def _on_end(self, call: Call, outcome: Outcome) -> None:
        self.order.append(call.context.dispatch_id)
        self.outcomes[call.context.dispatch_id] = outcome
        self._changed.set()


MakePool = Callable[..., Pool]


@pytest_asyncio.fixture
async def make_pool() -> AsyncIterator[MakePool]:
    """Make pools that are closed when the test ends; no process outlives them."""
    pools: list[Pool] = []

    def make(processes_max: int = 1, memory_bytes_max: int = 0) -> Pool:
        pools.append(Pool(processes_max, memory_bytes_max))
        return pools[-1]

    yield make
    for pool in pools:
        pids = pool.executor.pids
        await pool.executor.close()
        assert pool.executor.pids == []
        assert not [pid for pid in pids if is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ---------------------------------------------------------------------- its life
async def test_a_process_is_used_again(make_pool: MakePool) -> None:
    pool = make_pool()
    first = await pool.run("where", "d1")
    second = await pool.run("where", "d2")
    assert first == second
    assert json.loads(first.result or "")[0] == pool.executor.pids[0] != os.getpid()


async def test_async_functions_run_there_too(make_pool: MakePool) -> None:
    pool = make_pool()
    outcome = await pool.run("answer_async", action="opened")
    assert outcome.result == '{"action":"opened","attempt":"d1.1"}'


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("exit_now", "the handler's process ended with exit code 3"),
        ("kill_itself", "the handler's process ended by SIGKILL"),
        ("abort", "the handler's process ended by SIGABRT"),
        ("close_everything", "the handler's process ended with exit code 1"),
        ("write_garbage", "the handler's process ended by SIGKILL"),
    ],
)
async def test_a_handler_that_ends_its_process_fails_and_the_next_gets_another(
    make_pool: MakePool, name: str, error: str
) -> None:
    pool = make_pool()
    outcome = await pool.run(name, "d1")
    assert (outcome.outcome, outcome.error_class) == ("failed", "handler_panic")
    assert outcome.error == error
    assert (await pool.run("where", "d2")).outcome == "success"


async def test_a_process_that_dies_takes_no_other_call_with_it(make_pool: MakePool) -> None:
    pool = make_pool(processes_max=2)
    call = pool.start("wait_for_token", "d1")
    await pool.has_begun("d1")
    assert (await pool.run("kill_itself", "d2")).outcome == "failed"
    call.context.cancelled.flip("cancelled")
    pool.executor.interrupt(call)
    assert (await pool.outcome("d1")).result == '"seen"'


async def test_an_idle_process_that_is_killed_is_replaced(make_pool: MakePool) -> None:
    pool = make_pool()
    await pool.run("where", "d1")
    (pid,) = pool.executor.pids
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not pool.executor.pids, "its end is noticed")
    assert (await pool.run("where", "d2")).outcome == "success"
    assert pool.executor.pids != [pid]


async def test_a_module_that_is_gone_is_a_failure_that_names_it(make_pool: MakePool) -> None:
    outcome = await make_pool().run("missing")
    assert (outcome.outcome, outcome.error_class) == ("failed", "handler_error")
    assert "No module named 'tests.support.no_such_module'" in (outcome.error or "")


async def test_without_a_process_an_intent_is_given_back(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_pool()
    monkeypatch.setattr("sys.executable", "/no/such/python")
    outcome = await pool.run("where", "d1")
    assert outcome.outcome == "unresolved"
    assert (outcome.error or "").startswith("no process can be started: ")
    monkeypatch.setattr("sys.executable", "/bin/false")
    outcome = await pool.run("where", "d2")
    assert outcome.outcome == "unresolved"
    assert outcome.error == "its process ended before it began, exit code 1"


# ---------------------------------------------------------------------- ending it
async def test_a_function_is_told_to_end(make_pool: MakePool) -> None:
    pool = make_pool()
    for name in ("wait_for_token", "wait_for_token_async"):
        call = pool.start(name, name)
        await pool.has_begun(name)
        call.context.cancelled.flip("cancelled")
        pool.executor.interrupt(call)
        outcome = await pool.outcome(name)
        # The coroutine was cancelled where it waits, besides.
        expected = "success" if name == "wait_for_token" else "failed"
        assert outcome.outcome == expected
    assert len(pool.executor.pids) == 1


async def test_a_function_that_was_told_before_it_began_sees_it(make_pool: MakePool) -> None:
    pool = make_pool()
    call = pool.start("wait_for_token")
    call.context.cancelled.flip("cancelled")
    pool.executor.interrupt(call)
    assert (await pool.outcome("d1")).result == '"seen"'


async def test_a_function_that_does_not_end_is_killed_with_what_it_started(
    make_pool: MakePool, tmp_path: Path
) -> None:
    pool = make_pool()
    pids = tmp_path / "pids"
    call = pool.start("never_with_children", pid_file=str(pids))
    await eventually(lambda: pids.exists() and " " in pids.read_text(), "it has a child")
    pool.executor.abandon(call)
    assert (await pool.outcome("d1")).error == "the handler's process ended by SIGKILL"
    own, child = (int(each) for each in pids.read_text().split())
    await eventually(lambda: not is_running(child), "its child is killed")
    assert not is_running(own)


def is_running(pid: int) -> bool:
    """Whether a process runs: one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_what_waits_for_a_process_is_withdrawn_at_once(make_pool: MakePool) -> None:
    pool = make_pool()
    running = pool.start("never", "d1")
    waiting = pool.start("where", "d2")
    await pool.has_begun("d1")
    pool.executor.interrupt(waiting)
    assert (await pool.outcome("d2")).outcome == "interrupted"
    pool.executor.abandon(running)
    await pool.outcome("d1")
    assert pool.order == ["d2", "d1"]


async def test_closing_ends_processes_whatever_they_do(make_pool: MakePool) -> None:
    pool = make_pool(processes_max=2)
    pool.start("never", "d1")
    pool.start("never_async", "d2")
    await pool.has_begun("d1")
    await pool.has_begun("d2")
    await pool.executor.close()
    assert pool.executor.pids == []


# ---------------------------------------------------------------------- bounds
async def test_no_more_processes_run_than_allowed_and_one_trigger_does_not_fill_them(
    make_pool: MakePool,
) -> None:
    pool = make_pool(processes_max=4)
    await pool.run("nothing", "seen", trigger="fast")
    slow = [pool.start("never", f"s{n}", trigger="slow") for n in range(6)]
    for n in range(3):
        await pool.has_begun(f"s{n}")
    assert (await pool.run("where", "f1", trigger="fast")).outcome == "success"
    assert len(pool.executor.pids) <= 4
    assert {each for each in pool.began if each.startswith("s")} == {"seen", "s0", "s1", "s2"}
    for call in slow[3:]:
        pool.executor.interrupt(call)
    for call in slow[:3]:
        pool.executor.abandon(call)
    for n in range(6):
        await pool.outcome(f"s{n}")


async def test_memory_beyond_the_bound_is_refused_to_the_handler(make_pool: MakePool) -> None:
    pool = make_pool(memory_bytes_max=400_000_000)
    outcome = await pool.run("hoard", "d1")
    assert (outcome.outcome, outcome.error) == ("failed", "MemoryError")
    assert (await pool.run("where", "d2")).outcome == "success"


async def test_a_process_that_has_held_much_memory_is_replaced(make_pool: MakePool) -> None:
    pool = make_pool(memory_bytes_max=300_000_000)
    large = (await pool.run("hold_some", "d1")).result
    after = json.loads((await pool.run("where", "d2")).result or "")[0]
    assert large is not None
    assert int(large) != after


async def test_a_process_that_has_served_often_is_replaced(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_processes, "RUNS_MAX", 2)
    pool = make_pool()
    pids = [json.loads((await pool.run("where", f"d{n}")).result or "")[0] for n in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


async def test_a_process_without_work_ends_after_a_while(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_processes, "IDLE_S", 0.05)
    pool = make_pool()
    await pool.run("where", "d1")
    await eventually(lambda: not pool.executor.pids, "it ends")
    assert (await pool.run("where", "d2")).outcome == "success"


# ---------------------------------------------------------------------- what it says
async def test_what_a_handler_logs_is_logged_here(
    make_pool: MakePool, caplog: pytest.LogCaptureFixture
) -> None:
    pool = make_pool()
    await pool.run("log_a_line", "d1")
    await pool.run("raise_error", "d2")
    line, failed = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert (line.name, line.getMessage()) == ("harn.handler", "a_line_of_the_users")
    assert line.__dict__["dispatch_id"] == "d1"
    assert failed.getMessage() == "handler_failed"
    assert 'raise ValueError("boom")' in failed.__dict__["traceback"]


def test_frames_arrive_whole_however_they_are_cut() -> None:
    said = [Logged("a", 30, f"event {n}", {"n": "x" * n}) for n in range(50)]
    stream = b"".join(frame(each) for each in said)
    for size in (1, 2, 3, 5, 7, 64, len(stream)):
        frames = Frames()
        cuts = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [each for cut in cuts for each in frames.feed(cut)] == said


@pytest.mark.parametrize("stream", [b"\xff\xff\xff\xff", b"\0\0\0\x02hi", b"\0\0\0\x01\x80"])
def test_what_is_no_frame_is_refused(stream: bytes) -> None:
    with pytest.raises(FrameError):
        list(Frames().feed(stream))
