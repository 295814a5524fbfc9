"""One turn of a session at a time: across threads, guards, processes; never longer than its holder
lives."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from streams.edge.turns.advisory_guard import AdvisoryGuard
from streams.edge.turns.file_guard import FileGuard
from streams.edge.turns.postgres_link import PostgresLink
from streams.edge.turns.session_guard import GuardClosed, SessionGuard
from streams.errors import TaskQueueUnavailable
from tests.support.postgres import Postgres

_FILE = """
import sys
from pathlib import Path
from streams.edge.turns.file_guard import FileGuard
guard = FileGuard(Path(sys.argv[1]))
"""
_ADVISORY = """
import sys
from streams.edge.turns.advisory_guard import AdvisoryGuard
from streams.edge.turns.postgres_link import PostgresLink
guard = AdvisoryGuard(PostgresLink(sys.argv[1]))
"""
_HOLD = """
with guard.hold("s"):
    print("held", flush=True)
    sys.stdin.read()
"""


class Guards:
    """Guards of one place, each as in a process of its own."""

    def __init__(self, program: str, place: str, make: Any) -> None:
        self._program = program + _HOLD
        self._place = place
        self._make = make
        self.opened = ExitStack()

    def open(self) -> SessionGuard:
        guard = self._make()
        self.opened.callback(guard.close)
        return guard

    @contextmanager
    def process(self) -> Iterator[subprocess.Popen[str]]:
        """Run a process that holds the session `s`."""
        command = [sys.executable, "-c", self._program, self._place]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process


@pytest.fixture(params=["sqlite", "postgres"])
def guards(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guards]:
    if request.param == "sqlite":
        found = Guards(_FILE, str(tmp_path), lambda: FileGuard(tmp_path))
    else:
        address = request.getfixturevalue("postgres").address()
        found = Guards(_ADVISORY, address, lambda: AdvisoryGuard(PostgresLink(address)))
    with found.opened:
        yield found


def test_of_two_guards_one_holds_a_session_and_the_other_one_waits(guards: Guards) -> None:
    one, other = guards.open(), guards.open()
    with one.hold("s") as hold:
        with (
            pytest.raises(GuardClosed, match="'s' is held by another turn"),
            other.hold("s", within_s=0.1),
        ):
            pass
        with other.hold("t", within_s=0):
            assert not hold.lost()

    with other.hold("s", within_s=0):
        pass


def test_threads_of_one_guard_exclude_each_other_too(guards: Guards) -> None:
    guard = guards.open()
    with guard.hold("s"), ThreadPoolExecutor(1) as pool:

        def wait() -> None:
            with guard.hold("s", within_s=0.05):
                pass

        with pytest.raises(GuardClosed):
            pool.submit(wait).result()


def test_never_are_two_inside_however_many_come(guards: Guards) -> None:
    inside: list[int] = []
    crowds: list[int] = []
    turns: list[int] = []

    def work(number: int) -> None:
        guard = guards.open()
        for _ in range(10):
            with guard.hold("s"):
                inside.append(number)
                crowds.append(len(inside))
                turns.append(number)
                inside.remove(number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))

    assert set(crowds) == {1}
    assert sorted(turns) == sorted(list(range(4)) * 10)


def test_a_session_is_free_when_its_turn_raised(guards: Guards) -> None:
    guard = guards.open()
    with pytest.raises(KeyError), guard.hold("s"):
        raise KeyError("x")

    with guard.hold("s", within_s=0):
        pass


def test_another_process_is_waited_for_and_its_death_frees_the_session(guards: Guards) -> None:
    guard = guards.open()
    with guards.process() as process:
        with pytest.raises(GuardClosed), guard.hold("s", within_s=0.1):
            pass
        process.kill()
        process.wait()

        with guard.hold("s", within_s=30):
            pass


def test_another_process_that_is_done_hands_the_session_on(guards: Guards) -> None:
    guard = guards.open()
    entered = threading.Event()

    def wait() -> None:
        with guard.hold("s"):
            entered.set()

    with guards.process() as process, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        assert not entered.is_set()
        assert process.stdin is not None
        process.stdin.close()
        waiting.result(timeout=30)

    assert entered.is_set()


def test_closing_ends_a_wait_but_not_a_hold(guards: Guards) -> None:
    one, other = guards.open(), guards.open()
    with one.hold("s") as hold, ThreadPoolExecutor(2) as pool:

        def wait(guard: SessionGuard) -> None:
            with guard.hold("s"):
                pass

        waits = [pool.submit(wait, guard) for guard in (one, other)]
        one.close()
        other.close()
        for each in waits:
            with pytest.raises(GuardClosed, match="the guard was closed"):
                each.result(timeout=30)
        assert not hold.lost()

    with guards.open().hold("s", within_s=0):
        pass


@pytest.mark.parametrize("session", ["", "a\0b", "\ud800"])
def test_what_cannot_be_a_name_harms_no_other_hold(guards: Guards, session: str) -> None:
    guard = guards.open()
    with guard.hold("s") as hold:
        with pytest.raises(ValueError, match="locked by its id"), guard.hold(session):
            pass
        assert not hold.lost()


def test_files_of_sessions_do_not_pile_up(tmp_path: Path) -> None:
    guard = FileGuard(tmp_path)
    for number in range(20):
        with guard.hold(f"s{number}"):
            assert len(list(tmp_path.iterdir())) == 1

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(TaskQueueUnavailable, match="cannot be locked"),
        FileGuard(tmp_path / "file").hold("s"),
    ):
        pass


def test_a_broken_connection_is_told_to_its_holds_and_the_next_one_is_as_good(
    postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    guard = AdvisoryGuard(PostgresLink(postgres.address()))
    with guard.hold("s") as s, guard.hold("t") as t:
        assert not s.lost()
        sql = """SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
            WHERE application_name = 'harn-streams'"""
        with psycopg.connect(postgres.address()) as connection:
            connection.execute(sql.encode())
        assert s.lost()
        assert t.lost()
        other = AdvisoryGuard(PostgresLink(postgres.address()))
        with closing(other), other.hold("s", within_s=0):
            pass
        with guard.hold("u", within_s=0) as u:
            assert not u.lost()

    assert [line.message for line in caplog.records] == ["session_guard_lost"] * 2
    with guard.hold("s", within_s=0):
        pass
    guard.close()


def test_anybody_finds_a_session_s_lock_by_its_name(postgres: Postgres) -> None:
    guard = AdvisoryGuard(PostgresLink(postgres.address()))
    sql = "SELECT pg_try_advisory_lock(hashtextextended('agent-session:s', 0))"
    with guard.hold("s"), psycopg.connect(postgres.address()) as connection:
        assert connection.execute(sql).fetchone() == (False,)
    guard.close()
