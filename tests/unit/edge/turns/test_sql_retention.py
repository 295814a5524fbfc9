"""What ended long ago leaves a database, batch by batch, while others work and when it was away."""

from __future__ import annotations

import asyncio
import threading

import pytest

from streams.edge.turns.sql_retention import SqlRetention
from streams.edge.turns.turn_store import Session, Status, TurnRecord
from streams.errors import TaskQueueUnavailable
from tests.support.eventually import eventually
from tests.support.sql_turns import Place

DAY_MS = 86_400_000


class Store:
    """Answers what it is told to, and counts how often it was asked."""

    def __init__(self, *answers: int | TaskQueueUnavailable) -> None:
        self._answers = list(answers)
        self.asked: list[int] = []

    def forget(self, unchanged_ms: int, /) -> int:
        self.asked.append(unchanged_ms)
        answer = self._answers.pop(0) if self._answers else 0
        if isinstance(answer, TaskQueueUnavailable):
            raise answer
        return answer


def away(*, retryable: bool) -> TaskQueueUnavailable:
    return TaskQueueUnavailable("postgres", "gone", retryable=retryable)


async def test_an_old_end_and_its_session_are_gone_and_a_younger_one_stays(place: Place) -> None:
    store = place.open().store
    for name in ("old", "young"):
        store.create_session(Session(session_id=name))
        store.create(TurnRecord(record_id=name, kind="goal_loop", session_id=name))
        store.move(name, from_={Status.PENDING}, to=Status.FAILED)
        if name == "old":
            place.pass_time(DAY_MS + 1_000)
    retention = SqlRetention(place.open("other").store, DAY_MS)
    retention.start()
    await eventually(lambda: store.read_session("old") is None, "the old session is forgotten")
    await retention.stop()

    assert store.read("old") is None
    assert [each.record_id for each in store.records()] == ["young"]
    assert [each.session_id for each in store.sessions()] == ["young"]


async def test_it_goes_on_until_nothing_is_left_and_looks_again_after_an_outage() -> None:
    store = Store(1_000, away(retryable=True), 5)
    retention = SqlRetention(store, DAY_MS, look_every_s=0.01)
    retention.start()
    await eventually(lambda: len(store.asked) >= 5, "five looks")
    await retention.stop()
    await retention.stop()

    assert set(store.asked) == {DAY_MS}
    assert not retention.failed.done()


async def test_what_is_kept_for_ever_is_never_looked_at() -> None:
    store = Store()
    retention = SqlRetention(store, 0, look_every_s=0.01)
    retention.start()
    await asyncio.sleep(0)
    await retention.stop()

    assert store.asked == []


async def test_a_database_that_is_unusable_is_told() -> None:
    retention = SqlRetention(Store(away(retryable=False)), DAY_MS)
    retention.start()

    with pytest.raises(TaskQueueUnavailable):
        await retention.failed
    await retention.stop()


async def test_a_stop_waits_for_the_batch_that_is_under_way() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    class Slow:
        def forget(self, _unchanged_ms: int, /) -> int:
            begun.set()
            may_end.wait(30)
            ended.set()
            return 0

    retention = SqlRetention(Slow(), DAY_MS)
    retention.start()
    await asyncio.to_thread(begun.wait, 30)
    stopping = asyncio.ensure_future(retention.stop())
    await asyncio.sleep(0)
    may_end.set()
    await stopping

    assert ended.is_set()
