"""Asking for the names of topics beside the relaying of jobs."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator

import pytest

from streams.edge.relay.topic_names import TopicNames

WAIT_S = 10.0


class Cluster:
    """Answers when the test lets it: one question, one answer."""

    def __init__(self) -> None:
        self.answer: Collection[str] | Exception = ()
        self._asked, self._answers = threading.Semaphore(0), threading.Semaphore(0)

    def ask(self) -> Collection[str]:
        self._asked.release()
        assert self._answers.acquire(timeout=WAIT_S)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def wait_asked(self) -> None:
        assert self._asked.acquire(timeout=WAIT_S)

    def tell(self, answer: Collection[str] | Exception) -> None:
        """Answer the question that was put, and wait for the next one."""
        self.answer = answer
        self._answers.release()
        self.wait_asked()

    def let_go(self) -> None:
        self.answer = ()
        self._answers.release(1_000_000)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def names(cluster: Cluster) -> Iterator[TopicNames]:
    found = TopicNames(cluster.ask, 0.0)
    found.start()
    cluster.wait_asked()
    yield found
    cluster.let_go()
    found.stop()


def test_nothing_is_taken_while_an_answer_is_on_its_way(names: TopicNames) -> None:
    assert names.take() is None


def test_an_answer_is_taken_once(cluster: Cluster, names: TopicNames) -> None:
    cluster.tell({"worker.a"})
    assert names.take() == ("worker.a",)
    assert names.take() is None


def test_only_the_last_answer_counts(cluster: Cluster, names: TopicNames) -> None:
    cluster.tell({"worker.a"})
    cluster.tell(RuntimeError("away"))
    cluster.tell({"worker.b"})
    assert names.take() == ("worker.b",)
    assert names.take() is None


def test_what_is_raised_reaches_who_takes_it_and_asking_goes_on(
    cluster: Cluster, names: TopicNames
) -> None:
    cluster.tell(RuntimeError("away"))
    with pytest.raises(RuntimeError, match="away"):
        names.take()
    cluster.tell({"worker.a"})
    assert names.take() == ("worker.a",)


def test_one_that_was_never_started_stops(cluster: Cluster) -> None:
    TopicNames(cluster.ask, 0.0).stop()
