"""Jobs that wait in a worker: keys take turns, jobs of a key keep their order."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from streams.edge.worker.line import MISSED_MAX, FairLine
from streams.errors import BrokerError
from tests.support.virtual_time import virtual_time
from tests.support.worker_edge import body_of
from tests.support.worker_handlers import TTL_S, rig

KEYS = st.sampled_from("abc")


class SlowLine:
    """All jobs in one list, who waits in the order of turns, and whose jobs have begun."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, int]] = []
        self.turns: list[str] = []
        self.owed: dict[str, int] = {}
        self.begun: list[str] = []
        self.left: dict[str, int] = {}

    def append(self, key: str, job: int) -> None:
        if key not in [each for each, _ in self.jobs]:
            begun_since = self.begun[self.left.pop(key, len(self.begun)) :]
            missed = len(begun_since) // (1 + len(self.turns))
            if missed and len(begun_since) < MISSED_MAX:
                self.owed[key] = missed
                self.turns.insert(0, key)
            else:
                self.turns.append(key)
        self.jobs.append((key, job))

    def take(self, key: str, job: int) -> None:
        self.jobs.remove((key, job))
        if key not in [each for each, _ in self.jobs]:
            self.turns.remove(key)
            self.owed.pop(key, None)

    def popleft(self) -> int:
        key = self.turns[0]
        job = next(number for each, number in self.jobs if each == key)
        self.take(key, job)
        self.begun.append(key)
        if key not in self.turns:
            self.left[key] = len(self.begun)
        elif self.owed.get(key):
            self.owed[key] -= 1
        else:
            self.turns.append(self.turns.pop(0))
        return job


STEPS = st.sampled_from(["append", "append", "pop", "pop", "remove", "clear"])


@given(st.lists(st.tuples(STEPS, KEYS), max_size=200))
def test_a_line_answers_as_a_list_of_all_that_waits_does(steps: list[tuple[str, str]]) -> None:
    line, slow = FairLine[int](), SlowLine()
    for number, (step, key) in enumerate(steps):
        if step == "append":
            line.append(key, number)
            slow.append(key, number)
        elif step == "pop" and slow.jobs:
            assert line.popleft() == slow.popleft()
        elif step == "remove" and slow.jobs:
            of, job = slow.jobs[number % len(slow.jobs)]
            line.remove(of, job)
            slow.take(of, job)
        elif step == "clear" and number % 5 == 0:
            line.clear()
            slow = SlowLine()
        assert len(line) == len(slow.jobs)
        assert bool(line) == bool(slow.jobs)
        assert sorted(line) == sorted(job for _, job in slow.jobs)


def test_a_key_whose_grant_came_late_makes_up_for_the_turns_that_it_has_missed() -> None:
    line = FairLine[str]()
    for key in ("a", "b"):
        line.append(key, key)
    assert [line.popleft(), line.popleft()] == ["a", "b"]
    for _ in range(20):
        line.append("a", "a")
    assert [line.popleft() for _ in range(6)] == ["a"] * 6
    for _ in range(5):
        line.append("b", "b")
    # Of six that have begun since, half would have been its own; then they take turns.
    assert [line.popleft() for _ in range(7)] == ["b", "b", "b", "b", "a", "b", "a"]


def test_who_was_away_for_long_is_owed_nothing() -> None:
    line = FairLine[str]()
    line.append("b", "b")
    line.popleft()
    for _ in range(MISSED_MAX + 1):
        line.append("a", "a")
    for _ in range(MISSED_MAX):
        line.popleft()
    line.append("b", "b")
    assert [line.popleft(), line.popleft()] == ["a", "b"]


@given(st.lists(KEYS, max_size=30), st.lists(KEYS, min_size=1, max_size=5))
def test_a_key_that_comes_waits_for_one_job_of_each_other_key_at_most(
    waiting: list[str], new: list[str]
) -> None:
    line = FairLine[str]()
    for key in waiting:
        line.append(key, key)
    for number, _ in enumerate(new):
        line.append("new", f"new-{number}")
    begun = [line.popleft() for _ in range(len(line))]
    places = [place for place, job in enumerate(begun) if job.startswith("new")]
    assert [begun[place] for place in places] == [f"new-{number}" for number in range(len(new))]
    others = len(set(waiting))
    assert all(place <= (number + 1) * others + number for number, place in enumerate(places))


@virtual_time
async def test_a_tenant_that_comes_does_not_wait_for_what_was_asked_ahead() -> None:
    worker = await rig("sleep_an_hour", concurrency=1).start()
    body = body_of("sleep_an_hour", 1)
    worker.grant(*((number, body) for number in (1, 2, 3)), fairness_key="tenant-a")
    worker.grant((4, body), (5, body), fairness_key="tenant-b")
    await asyncio.sleep(6 * 3_600)
    assert worker.acked == ["1.1", "2.1", "4.1", "3.1", "5.1"]


@virtual_time
async def test_jobs_that_take_no_turns_run_in_the_order_of_their_granting() -> None:
    worker = await rig("sleep_an_hour", concurrency=1).start()
    body = body_of("sleep_an_hour", 1)
    worker.grant((3, body), (1, body))
    worker.grant((2, body))
    await asyncio.sleep(4 * 3_600)
    assert worker.acked == ["3.1", "1.1", "2.1"]


@virtual_time
async def test_what_runs_out_while_it_waits_leaves_its_line() -> None:
    worker = await rig("never", "answer", concurrency=1).start()
    worker.grant((1, body_of("never", 1)), fairness_key="tenant-a")
    worker.log.failures = [BrokerError("away", retryable=True)] * 200  # nothing is renewed
    await asyncio.sleep(TTL_S / 2)
    worker.grant((2, body_of("answer", 2)), (3, body_of("answer", 3)), fairness_key="tenant-b")
    assert worker.worker.held.waiting == 2
    await asyncio.sleep(TTL_S + 2)
    assert worker.worker.held.waiting == 0
