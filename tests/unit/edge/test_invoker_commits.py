"""Commits that the group refuses: told once, and tried again on the event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence

import pytest
from confluent_kafka import KafkaError, TopicPartition

from streams.edge.invoker.intake import TOPIC, FetchedIntent, KafkaIntake
from streams.settings import Settings


class Sink:
    """Notes which partitions shall be committed again, and on which thread it was told."""

    def __init__(self) -> None:
        self.again: list[tuple[Sequence[int], int]] = []
        self.told = asyncio.Event()

    def take(self, intents: Sequence[FetchedIntent]) -> None:
        raise AssertionError(intents)

    async def settle(self, partitions: Sequence[int], timeout_s: float) -> Mapping[int, int]:
        raise AssertionError(partitions, timeout_s)

    def lose(self, partitions: Sequence[int]) -> None:
        raise AssertionError(partitions)

    def fail(self, error: BaseException) -> None:
        raise AssertionError(error)

    def commit_failed(self, partitions: Sequence[int]) -> None:
        self.again.append((partitions, threading.get_ident()))
        self.told.set()


REFUSED = KafkaError(KafkaError.ILLEGAL_GENERATION)


def answered(*partitions: int) -> list[TopicPartition]:
    return [TopicPartition(TOPIC, each, 7) for each in partitions]


async def test_refused_commits_are_told_once_and_tried_again_on_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    intake, sink = KafkaIntake(Settings()), Sink()
    intake._sink = sink

    def answers() -> None:
        for _ in range(8):  # all that were under way when the group rebalanced
            intake._on_commit(REFUSED, answered(2, 3))
        intake._on_commit(None, answered(2, 3))
        intake._on_commit(REFUSED, answered(3))

    await asyncio.to_thread(answers)
    await sink.told.wait()
    assert sink.again == [([2, 3], threading.get_ident())] * 8 + [([3], threading.get_ident())]
    said = [record for record in caplog.records if record.msg == "invoker_commit_delayed"]
    assert [record.__dict__["partitions"] for record in said] == [[2, 3], [3]]
