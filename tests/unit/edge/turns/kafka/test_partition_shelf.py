"""What a partition has of goals and sessions: read in the background, and kept up with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest

from streams.codec import Codec
from streams.core.turn.record import desired_key, job_key, new_job, session_record_key
from streams.core.turn.session import asked, new_session
from streams.core.turn.words import JOBS, SESSIONS
from streams.edge.turns.kafka.partition_shelf import PartitionShelf, row_of
from streams.edge.turns.kafka.shelf_builder import ShelfBuilder
from streams.edge.turns.record_shelf import Gone, Shelved
from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.mock_cluster import mock_cluster

CODEC = Codec()
HERE, ELSEWHERE = 2, 3


@pytest.fixture
def settings() -> Iterator[Settings]:
    with mock_cluster() as bootstrap:
        settings = Settings(bootstrap=bootstrap)
        producer = make_producer(settings)
        for topic in (JOBS, SESSIONS):
            producer.list_topics(topic, timeout=30)  # makes it
        yield settings


def job(name: str, status: str = "pending", now_ms: int = 10) -> dict[str, Any]:
    return {**new_job(name, "s1", "", now_ms=now_ms), "status": status}


def row(name: str, status: str = "pending", now_ms: int = 10) -> Shelved:
    value = job(name, status, now_ms)
    return row_of("agent_job", job_key(name), value, CODEC.encode("agent_job", value))


def write(settings: Settings, topic: str, kind: str, key: str, value: Any, at: int = HERE) -> None:
    producer = make_producer(settings)
    encoded = None if value is None else CODEC.encode(kind, value)
    producer.produce(topic, encoded, key.encode(), at)
    assert producer.flush(30) == 0


def write_job(settings: Settings, name: str, status: str, at: int = HERE) -> None:
    write(settings, JOBS, "agent_job", job_key(name), job(name, status), at)


@asynccontextmanager
async def shelf_of(
    settings: Settings, ends: Mapping[str, int], fail: Callable[[BaseException], None]
) -> AsyncIterator[PartitionShelf]:
    builder, pool = ShelfBuilder(settings), ThreadPoolExecutor(1)

    async def ask(question: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, question, *args)

    places = {(topic, HERE): end for topic, end in ends.items()}
    shelf = PartitionShelf(CODEC, places, builder, ask=ask, fail=fail)
    try:
        yield shelf
    finally:
        shelf.close()
        builder.stop()
        pool.shutdown()


def raising(error: BaseException) -> None:
    raise error


async def statuses(shelf: PartitionShelf, *names: str) -> dict[str, str]:
    found = await shelf.find(JOBS, [job_key(name) for name in names])
    return {key: status for _, key, status, _ in found}


async def due(shelf: PartitionShelf, before_ms: int, *, ended: bool = True) -> set[str]:
    return {each.key for each in await shelf.due(before_ms, limit=9, offset=0, ended=ended)}


async def test_what_was_there_before_is_found_and_what_is_elsewhere_or_later_is_not(
    settings: Settings,
) -> None:
    for name, status in (("a", "pending"), ("a", "completed"), ("b", "pending"), ("c", "failed")):
        write_job(settings, name, status)
    write_job(settings, "d", "pending", ELSEWHERE)
    write(settings, JOBS, "agent_job", job_key("c"), None)
    write_job(settings, "late", "pending")
    wish = asked("s1", None, kill=True, now_ms=5)
    write(settings, SESSIONS, "agent_session_desired", desired_key("s1"), wish)

    async with shelf_of(settings, {JOBS: 5, SESSIONS: 1}, raising) as shelf:
        found = await statuses(shelf, "a", "b", "c", "d", "late")
        assert found == {job_key("a"): "completed", job_key("b"): "pending"}
        ((_, _, _, ended),) = await shelf.find(JOBS, [job_key("a")])
        assert ended == b"", "of an end the key alone is kept"
        ((kind, _, _, value),) = await shelf.find(SESSIONS, [desired_key("s1")])
        assert CODEC.decode(value) == (kind, wish)


async def test_what_is_noted_is_newer_than_all_that_was_there(settings: Settings) -> None:
    for name in ("a", "b", "c"):
        write_job(settings, name, "pending")
    async with shelf_of(settings, {JOBS: 3, SESSIONS: 0}, raising) as shelf:
        shelf.note([row("a", "completed"), Gone(job_key("b"), 0, 0), row("new")])
        expected = {job_key("a"): "completed", job_key("c"): "pending", job_key("new"): "pending"}
        assert await statuses(shelf, "a", "b", "c", "new") == expected


async def test_ends_are_due_in_their_time_and_sessions_once_they_have_nothing_left(
    settings: Settings,
) -> None:
    session, wish = new_session("s1", now_ms=10), asked("s1", None, kill=True, now_ms=30)
    write(settings, SESSIONS, "agent_session", session_record_key("s1"), session)
    write(settings, SESSIONS, "agent_session_desired", desired_key("s1"), wish)
    async with shelf_of(settings, {JOBS: 0, SESSIONS: 2}, raising) as shelf:
        shelf.note([row("a", "completed", 20), row("b", "paused", 5)])
        assert await due(shelf, 19) == set()
        assert await due(shelf, 20) == {job_key("a")}
        shelf.note([Gone(job_key("a"), 0, 0)])
        assert await due(shelf, 99, ended=False) == set(), "the paused one is there"
        shelf.note([Gone(job_key("b"), 0, 0)])
        assert await due(shelf, 29, ended=False) == set(), "the wish is younger"
        assert await due(shelf, 30, ended=False) == {session_record_key("s1"), desired_key("s1")}


async def test_many_are_put_there_without_being_asked_for(settings: Settings) -> None:
    async with shelf_of(settings, {JOBS: 0, SESSIONS: 0}, raising) as shelf:
        for number in range(5_000):
            shelf.note([row(f"j{number}", "completed")])
        found = await shelf.due(10, limit=9_999, offset=1_000, ended=True)
        assert len(found) == 4_000


async def test_once_closed_it_answers_nothing_and_fails_nobody(settings: Settings) -> None:
    failures: list[BaseException] = []
    write_job(settings, "a", "completed")
    async with shelf_of(settings, {JOBS: 1_000, SESSIONS: 0}, failures.append) as shelf:
        asking = asyncio.ensure_future(statuses(shelf, "a"))
        await asyncio.sleep(0)
        shelf.close()
        assert await asking == {}
        assert await due(shelf, 99) == set()
    assert failures == []


class Sessions:
    """Takes sessions of a partition; the reader is held up until it is told to go on."""

    def __init__(self) -> None:
        self.come = threading.Event()
        self.go_on = threading.Event()

    def take(self, _records: object) -> None:
        self.come.set()
        assert self.go_on.wait(30)


async def test_goals_are_read_once_no_sessions_are(settings: Settings) -> None:
    write_job(settings, "a", "completed")
    session = new_session("s1", now_ms=10)
    write(settings, SESSIONS, "agent_session", session_record_key("s1"), session)
    builder, closed = ShelfBuilder(settings), threading.Event()
    sessions, goals_come = Sessions(), threading.Event()
    read_sessions = asyncio.ensure_future(
        builder.read(SESSIONS, HERE, 1, sessions.take, closed=closed)
    )
    assert await asyncio.to_thread(sessions.come.wait, 30)
    read_goals = asyncio.ensure_future(
        builder.read(JOBS, HERE, 1, lambda _: goals_come.set(), closed=closed)
    )
    assert not await asyncio.to_thread(goals_come.wait, 0.5), "both would share a core"
    sessions.go_on.set()
    await asyncio.wait_for(asyncio.gather(read_sessions, read_goals), 30)
    assert goals_come.is_set()
    builder.stop()


async def test_goals_that_wait_for_sessions_are_let_go_of(settings: Settings) -> None:
    write_job(settings, "a", "completed")
    session = new_session("s1", now_ms=10)
    write(settings, SESSIONS, "agent_session", session_record_key("s1"), session)
    builder, closed, sessions = ShelfBuilder(settings), threading.Event(), Sessions()
    read_sessions = asyncio.ensure_future(
        builder.read(SESSIONS, HERE, 1, sessions.take, closed=threading.Event())
    )
    assert await asyncio.to_thread(sessions.come.wait, 30)
    read_goals = asyncio.ensure_future(builder.read(JOBS, HERE, 1, raising_take, closed=closed))
    closed.set()
    await asyncio.wait_for(read_goals, 30)
    sessions.go_on.set()
    await asyncio.wait_for(read_sessions, 30)
    builder.stop()


def raising_take(_records: object) -> None:
    raise AssertionError("nothing was to be read")
