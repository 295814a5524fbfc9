"""The file of a host: what can be wrong with it is told, and what was answered is in it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from streams.core.turn.claim import Run, Wait
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.edge.turns.database import Transaction
from streams.edge.turns.sql_queue import SqlTaskQueue
from streams.edge.turns.sql_turns import SqlTurnStore, open_sqlite_turns
from streams.edge.turns.sqlite_file import SqliteFile
from streams.edge.turns.turn_store import Claimant, FleetWorker, TurnRecord
from streams.errors import TaskQueueUnavailable


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SqliteFile]:
    with closing(SqliteFile(tmp_path / "state" / "t.db", busy_ms=50)) as found:
        yield found


def refused(file: SqliteFile) -> TaskQueueUnavailable:
    with pytest.raises(TaskQueueUnavailable) as caught:
        file.run(lambda transaction: transaction.execute("CREATE TABLE t (x)"))
    file.close()
    return caught.value


def test_a_damaged_file_is_told_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    path.write_bytes(b"these are no tables " * 500)

    error = refused(SqliteFile(path))

    assert str(error) == (
        f"the task queue sqlite:{path} is unavailable: "
        "the file is damaged, or is no SQLite database"
    )
    assert not error.retryable
    assert error.remedy
    assert "move it away" in error.remedy
    assert path.read_bytes().startswith(b"these are no tables")


def test_pages_that_were_overwritten_are_told(tmp_path: Path) -> None:
    turns = open_sqlite_turns(tmp_path, consumer="w")
    turns.close()
    path = tmp_path / "agent_dispatch_queue.db"
    content = bytearray(path.read_bytes())
    content[4_096:] = os.urandom(1) * (len(content) - 4_096)
    path.write_bytes(content)

    with pytest.raises(TaskQueueUnavailable, match="damaged"):
        open_sqlite_turns(tmp_path, consumer="w")


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")

    error = refused(SqliteFile(tmp_path / "state" / "t.db"))

    assert "its folder cannot be made" in str(error)
    assert "HARN_STATE_DIR" in (error.remedy or "")


def test_a_path_that_is_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.db").mkdir()

    assert "may not write the file, or not its folder" in str(
        refused(SqliteFile(tmp_path / "t.db"))
    )


@contextmanager
def unprivileged() -> Iterator[None]:
    """Be somebody whom permissions stop: for root there are none."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_without_the_right_to_write_is_told(there: bool) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        if there:
            open_sqlite_turns(folder, consumer="w").close()
            (folder / "agent_dispatch_queue.db").chmod(0o444)
        folder.chmod(0o555)
        with unprivileged():
            error = refused(SqliteFile(folder / "agent_dispatch_queue.db"))
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)

    assert "this user may not write the file, or not its folder" in str(error)
    assert not error.retryable


def test_a_full_file_is_told_and_what_was_in_it_stays(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    roomy = SqliteFile(path)
    roomy.make("t", ["CREATE TABLE t (x)"])
    roomy.run(lambda transaction: transaction.change("INSERT INTO t VALUES ('a')"))
    roomy.close()
    full = SqliteFile(path, bytes_max=16_384)

    def fill(transaction: Transaction) -> None:
        for _ in range(10):
            transaction.change("INSERT INTO t VALUES (?)", ("x" * 4_000,))

    with pytest.raises(TaskQueueUnavailable, match="disk is full, or the file has reached 16384"):
        full.run(fill)
    assert full.run(lambda transaction: transaction.execute("SELECT x FROM t")) == [("a",)]
    full.close()


def test_a_writer_that_stands_still_is_waited_for_so_long_and_told(
    tmp_path: Path, file: SqliteFile
) -> None:
    file.make("t", ["CREATE TABLE t (x)"])
    with closing(sqlite3.connect(tmp_path / "state" / "t.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TaskQueueUnavailable, match=r"has held the file for 0\.05 s") as caught:
            file.run(lambda transaction: transaction.change("INSERT INTO t VALUES (1)"))
        other.execute("ROLLBACK")

    assert caught.value.retryable
    assert file.run(lambda transaction: transaction.change("INSERT INTO t VALUES (1)")) == 1


def test_a_file_that_was_replaced_is_told_once_and_the_new_one_used_then(
    tmp_path: Path, file: SqliteFile
) -> None:
    file.make("t", ["CREATE TABLE t (x)"])
    shutil.rmtree(tmp_path / "state")

    with pytest.raises(TaskQueueUnavailable, match="removed or replaced while it was in use"):
        file.run(lambda transaction: transaction.change("INSERT INTO t VALUES (1)"))

    file.make("t", ["CREATE TABLE t (x)"])
    assert file.run(lambda transaction: transaction.change("INSERT INTO t VALUES (1)")) == 1


def test_what_raises_leaves_nothing_behind(file: SqliteFile) -> None:
    file.make("t", ["CREATE TABLE t (x)"])

    def work(transaction: Transaction) -> None:
        transaction.change("INSERT INTO t VALUES (1)")
        raise KeyError("x")

    with pytest.raises(KeyError):
        file.run(work)

    assert file.run(lambda transaction: transaction.execute("SELECT * FROM t")) == []


def test_many_who_make_a_file_at_once_all_have_it(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def opened(_: int) -> int:
        start.wait()
        with closing(open_sqlite_turns(tmp_path, consumer="w")) as turns:
            return turns.queue.get_queue_size()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(opened, range(8))) == [0] * 8


@pytest.mark.parametrize(("passed_ms", "visible"), [(600_000, False), (600_001, True)])
def test_a_claim_is_too_old_after_more_than_ten_minutes(
    tmp_path: Path, passed_ms: int, visible: bool
) -> None:
    now = [1_000_000]
    with closing(SqliteFile(tmp_path / "t.db", clock=lambda: now[0])) as file:
        queue = SqlTaskQueue(file, consumer="w")
        queue.put({"session_id": "a"})
        queue.get()
        now[0] += passed_ms

        assert (queue.get() is not None) is visible


def test_the_clock_stands_still_throughout_a_statement(tmp_path: Path) -> None:
    ticks = iter(range(1_000))
    with closing(SqliteFile(tmp_path / "t.db", clock=lambda: next(ticks))) as file:
        ((one, other),) = file.run(lambda transaction: transaction.execute("SELECT {now}, {now}"))
        ((later,),) = file.run(lambda transaction: transaction.execute("SELECT {now}"))

    assert one == other < later


@pytest.mark.parametrize(("passed_ms", "decision"), [(3_599_999, Wait), (3_600_000, Run)])
def test_a_record_s_claim_is_dead_at_its_age_limit(
    tmp_path: Path, passed_ms: int, decision: type
) -> None:
    now = [1_000_000]
    turn = AgentTurnEnvelope(job_id="j", session_id="s", payload_ref="g", enqueued_at_ms=0)
    with closing(SqliteFile(tmp_path / "t.db", clock=lambda: now[0])) as file:
        store = SqlTurnStore(file)
        store.create(TurnRecord(record_id="g", kind="goal_loop", session_id="s"))
        store.claim(turn, Claimant("w1", "h"))
        now[0] += passed_ms

        answer = store.claim(turn, Claimant("w2", "h"))

    assert isinstance(answer.decision, decision)
    assert answer.retry_after_ms == 3_600_000 - passed_ms


@pytest.mark.parametrize(("passed_ms", "listed"), [(90_000, 1), (90_001, 0)])
def test_a_worker_is_listed_up_to_ninety_seconds_after_it_was_heard_of(
    tmp_path: Path, passed_ms: int, listed: int
) -> None:
    now = [1_000_000]
    with closing(SqliteFile(tmp_path / "t.db", clock=lambda: now[0])) as file:
        store = SqlTurnStore(file)
        store.beat(
            FleetWorker(
                worker_id="w", host="h", capacity=1, active_sessions=(), queue_backend="sqlite"
            )
        )
        now[0] += passed_ms

        assert len(store.workers()) == listed
