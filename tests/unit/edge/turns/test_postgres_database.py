"""A server that goes away and comes back, refuses, or is none: what was answered holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from streams.edge.turns.database import Transaction
from streams.edge.turns.postgres_database import PostgresDatabase
from streams.edge.turns.postgres_link import PostgresLink
from streams.edge.turns.postgres_turns import open_postgres_turns
from streams.errors import ConfigError, TaskQueueUnavailable
from tests.support.eventually import eventually
from tests.support.postgres import Postgres


@pytest.fixture
def address(postgres: Postgres) -> Iterator[str]:
    with postgres.database() as found:
        yield found


def end_connections(address: str) -> int:
    """Have the server end every connection but this one, as a failover or an operator does."""
    sql = """SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
        WHERE application_name = 'harn-streams'"""
    with psycopg.connect(address) as connection:
        row = connection.execute(sql).fetchone()
        assert row is not None
        return row[0]


def test_an_idle_connection_that_ended_is_made_anew_unnoticed(address: str) -> None:
    with closing(open_postgres_turns(address, consumer="w")) as turns:
        turns.queue.put({"session_id": "a"})
        assert end_connections(address) == 1

        assert turns.queue.get() is not None
        assert turns.queue.get_queue_size() == 1


def test_what_was_lost_before_its_commit_is_done_once(address: str) -> None:
    calls: list[int] = []

    def work(transaction: Transaction) -> None:
        calls.append(transaction.change("INSERT INTO t VALUES (1)"))
        if len(calls) == 1:
            end_connections(address)
            transaction.execute("SELECT 1")

    with closing(PostgresDatabase(PostgresLink(address))) as database:
        database.make("t", ["CREATE TABLE t (x INTEGER)"])
        database.run(work)

        assert calls == [1, 1]
        assert database.run(lambda transaction: transaction.execute("SELECT x FROM t")) == [(1,)]


def test_a_connection_that_breaks_again_and_again_is_an_outage(address: str) -> None:
    def work(transaction: Transaction) -> None:
        end_connections(address)
        transaction.execute("SELECT 1")

    with closing(PostgresDatabase(PostgresLink(address))) as database:
        with pytest.raises(TaskQueueUnavailable) as caught:
            database.run(work)

        assert caught.value.retryable
        assert database.run(lambda transaction: transaction.execute("SELECT 1")) == [(1,)]


def test_who_breaks_during_the_commit_is_told_that_it_may_have_taken_effect(address: str) -> None:
    # A deferred check runs in the commit, and here it ends the connection in the middle of it.
    statements = [
        "CREATE TABLE t (x INTEGER)",
        """CREATE FUNCTION fall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10); RETURN NULL;
            END $$""",
        """CREATE CONSTRAINT TRIGGER falls AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION fall()""",
    ]
    with closing(PostgresDatabase(PostgresLink(address))) as database:
        database.make("t", statements)
        calls: list[int] = []

        def work(transaction: Transaction) -> None:
            calls.append(transaction.change("INSERT INTO t VALUES (1)"))

        with pytest.raises(TaskQueueUnavailable, match="it may have taken effect"):
            database.run(work)

        assert calls == [1]
        assert database.run(lambda transaction: transaction.execute("SELECT x FROM t")) == []


def test_a_server_that_stops_is_told_and_used_again_when_it_is_back(postgres: Postgres) -> None:
    with (
        postgres.database() as address,
        closing(open_postgres_turns(address, consumer="w")) as turns,
    ):
        turns.queue.put({"session_id": "a"})
        postgres.stop()
        try:
            with pytest.raises(TaskQueueUnavailable) as caught:
                turns.queue.get()
        finally:
            postgres.start()

        assert caught.value.retryable
        assert f"harn@127.0.0.1:{postgres.port}/postgres" in str(caught.value)
        assert turns.queue.get() is not None


def test_a_wrong_password_is_told_without_it(postgres: Postgres) -> None:
    wrong = postgres.address().replace("s3cret", "hunter2")
    with (
        closing(PostgresDatabase(PostgresLink(wrong))) as database,
        pytest.raises(TaskQueueUnavailable, match="password authentication failed") as caught,
    ):
        database.run(lambda transaction: transaction.execute("SELECT 1"))

    told = f"{caught.value!r} {caught.value} {caught.value.remedy} {caught.value.endpoint}"
    assert "hunter2" not in told
    assert "STATE_DB_URI" in told


@pytest.mark.parametrize(
    "address",
    [
        "",
        "sqlite:///x",
        "host=db password=hunter2",
        "postgresql://me:hunter2@db/turns?nonsense=1",
        "postgresql://me:hunter2@[db/turns",
        "postgresql://me:hunter2%zz@db/turns",
    ],
)
def test_what_is_no_address_is_refused_without_being_shown(address: str) -> None:
    with pytest.raises(ConfigError, match="STATE_DB_URI names no PostgreSQL database") as caught:
        PostgresLink(address)

    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("postgresql://me:pw@db:1/turns", "postgresql://me@db:1/turns"),
        ("postgres://db/turns", "postgresql://db/turns"),
        ("postgresql://me@a:1,b:2/turns", "postgresql://me@a:1,b:2/turns"),
        ("postgresql://me@a,b/turns", "postgresql://me@a,b/turns"),
        ("postgresql://me@/turns?host=/run/pg&password=pw", "postgresql://me@/run/pg/turns"),
    ],
)
def test_an_endpoint_says_where_without_a_password(address: str, endpoint: str) -> None:
    assert PostgresLink(address).endpoint == endpoint


def test_who_may_not_make_tables_uses_those_that_are_there(
    postgres: Postgres, address: str
) -> None:
    open_postgres_turns(address, consumer="owner").close()
    grants = [
        "DROP ROLE IF EXISTS worker",
        "CREATE ROLE worker LOGIN PASSWORD 'pw'",
        "GRANT USAGE ON SCHEMA public TO worker",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO worker",
    ]
    with psycopg.connect(address, autocommit=True) as connection:
        for grant in grants:
            connection.execute(grant.encode())
    worker = f"postgresql://worker:pw@127.0.0.1:{postgres.port}/postgres"
    try:
        with closing(open_postgres_turns(worker, consumer="w")) as turns:
            turns.queue.put({"session_id": "a"})
            found = turns.queue.get()
            assert found is not None
            assert turns.queue.bury(found[0], "x")
    finally:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("DROP OWNED BY worker")
            connection.execute("DROP ROLE worker")


@pytest.mark.parametrize(
    ("grant", "told"),
    [
        ("GRANT USAGE ON SCHEMA public TO guest", "permission denied for schema public"),
        ("SELECT 1", "no schema has been selected"),
    ],
)
def test_who_may_not_make_tables_that_are_missing_is_told(
    postgres: Postgres, address: str, grant: str, told: str
) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE ROLE guest LOGIN PASSWORD 'pw'")
        connection.execute(grant.encode())
    guest = f"postgresql://guest:pw@127.0.0.1:{postgres.port}/postgres"
    try:
        with pytest.raises(TaskQueueUnavailable, match=told) as caught:
            open_postgres_turns(guest, consumer="w")
    finally:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("DROP OWNED BY guest")
            connection.execute("DROP ROLE guest")

    assert not caught.value.retryable
    assert "docs/turns.md" in (caught.value.remedy or "")


def test_the_clock_stands_still_throughout_a_statement(address: str) -> None:
    sql = "SELECT {now}, pg_sleep(0.01) IS NULL, {now}"
    with closing(PostgresDatabase(PostgresLink(address))) as database:
        ((one, _, other),) = database.run(lambda transaction: transaction.execute(sql))
        ((later,),) = database.run(lambda transaction: transaction.execute("SELECT {now}"))

    assert one == other < later


async def test_a_server_that_takes_no_writes_is_told_until_it_takes_them_again(
    address: str,
) -> None:
    def put() -> str:
        try:
            turns.queue.put({"session_id": "a"})
        except TaskQueueUnavailable as error:
            return f"{error} {error.retryable=}"
        return ""

    def said_to_the_server(*statements: bytes) -> None:
        with psycopg.connect(address, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    with closing(open_postgres_turns(address, consumer="w")) as turns:
        said_to_the_server(
            b"ALTER SYSTEM SET default_transaction_read_only = on", b"SELECT pg_reload_conf()"
        )
        try:
            await eventually(
                lambda: "read-only" in put() and "retryable=True" in put(), "a refusal"
            )
        finally:
            said_to_the_server(
                b"ALTER SYSTEM RESET default_transaction_read_only", b"SELECT pg_reload_conf()"
            )
        await eventually(lambda: not put(), "a turn that is taken")
