"""Which carrier is used: what is named, never another one in its place."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from streams.edge.turns.sql_queue import SqlTaskQueue
from streams.edge.turns.sqlite_file import SqliteFile
from streams.edge.turns.task_queue import Backend, ClaimedQueue, TaskQueue, choose_backend
from streams.errors import ConfigError


@pytest.mark.parametrize(
    ("named", "former", "chosen"),
    [
        (None, None, Backend("kafka", None)),
        ("auto", None, Backend("kafka", None)),
        (" ", "", Backend("kafka", None)),
        ("sqlite", None, Backend("sqlite", "TASK_QUEUE_BACKEND")),
        (" Postgres ", None, Backend("postgres", "TASK_QUEUE_BACKEND")),
        ("kafka", "sqlite", Backend("kafka", "TASK_QUEUE_BACKEND")),
        ("auto", "postgres", Backend("postgres", "QUEUE_BACKEND")),
        (None, "sqlite", Backend("sqlite", "QUEUE_BACKEND")),
    ],
)
def test_the_carrier_is_the_one_that_is_named_and_kafka_when_none_is(
    named: str | None, former: str | None, chosen: Backend
) -> None:
    assert choose_backend(named, former) == chosen


def test_every_wrong_name_is_told_with_what_was_expected() -> None:
    with pytest.raises(ConfigError) as caught:
        choose_backend("redis", "Rabbit")

    assert caught.value.problems == (
        "TASK_QUEUE_BACKEND is 'redis', expected one of auto, kafka, postgres, sqlite",
        "QUEUE_BACKEND is 'Rabbit', expected one of auto, kafka, postgres, sqlite",
    )


@pytest.mark.parametrize(("named", "heeded"), [(None, True), ("kafka", False)])
def test_the_deprecated_variable_is_told_whether_or_not_it_is_heeded(
    named: str | None, heeded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        choose_backend(named, "postgres")

    (line,) = caplog.records
    assert (line.message, line.__dict__["heeded"]) == ("queue_backend_deprecated", heeded)


def test_queues_of_databases_are_task_queues_with_claims(tmp_path: Path) -> None:
    queue = SqlTaskQueue(SqliteFile(tmp_path / "queue.db"), consumer="w")

    assert isinstance(queue, TaskQueue)
    assert isinstance(queue, ClaimedQueue)
    queue.close()
