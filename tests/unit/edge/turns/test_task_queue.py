"""Which database is opened, and what is said when it cannot be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from streams.edge.turns.opening import open_turns
from streams.edge.turns.task_queue import ClaimedQueue, TaskQueue
from streams.errors import TaskQueueUnavailable
from streams.settings import Settings
from tests.support.postgres import Postgres


def test_sqlite_is_a_file_in_the_state_directory(tmp_path: Path) -> None:
    settings = Settings(task_queue_backend="sqlite", state_dir=tmp_path / "state")

    turns = open_turns(settings, consumer="w")

    assert isinstance(turns.queue, TaskQueue)
    assert isinstance(turns.queue, ClaimedQueue)
    assert turns.queue.backend == "sqlite"
    assert (tmp_path / "state" / "agent_dispatch_queue.db").is_file()
    turns.close()


def test_the_former_name_chooses_as_well(tmp_path: Path) -> None:
    turns = open_turns(Settings(queue_backend="sqlite", state_dir=tmp_path), consumer="w")

    assert turns.queue.backend == "sqlite"
    turns.close()


def test_postgres_is_the_database_of_the_address(postgres: Postgres) -> None:
    with postgres.database() as address:
        settings = Settings(task_queue_backend="postgres", state_db_uri=address)
        turns = open_turns(settings, consumer="w")
        turns.queue.put({"session_id": "a"})

        assert (turns.queue.backend, turns.queue.get_queue_size()) == ("postgres", 1)
        turns.close()


def test_what_was_chosen_and_is_not_there_is_never_replaced(tmp_path: Path) -> None:
    address = "postgresql://me:secret@127.0.0.1:1/db"
    settings = Settings(
        task_queue_backend="postgres", state_db_uri=address, state_dir=tmp_path / "state"
    )

    with pytest.raises(TaskQueueUnavailable) as caught:
        open_turns(settings, consumer="w")

    assert "postgresql://me@127.0.0.1:1/db" in str(caught.value)
    assert "TASK_QUEUE_BACKEND" in (caught.value.remedy or "")
    assert "secret" not in str(caught.value)
    assert not (tmp_path / "state").exists()


def test_without_its_client_postgres_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("streams.edge.turns.postgres")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    settings = Settings(
        task_queue_backend="postgres", state_db_uri="postgresql://me:secret@db/turns"
    )

    with pytest.raises(TaskQueueUnavailable, match="psycopg cannot be loaded") as caught:
        open_turns(settings, consumer="w")

    assert "harn-streams[postgres]" in (caught.value.remedy or "")
    assert "secret" not in str(caught.value)


def test_kafka_is_no_database() -> None:
    with pytest.raises(ValueError, match="kafka"):
        open_turns(Settings(), consumer="w")
