"""Records of goals and tasks in a table; see `TurnStore`.

What decides over a claim is read and written in one transaction that holds the row, by the
database's clock: of several who claim at once the first one to come has it.

Source: SEMANTICS 8.5 and 8.6.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from streams.core.turn.claim import (
    CLAIM_TTL_MS,
    Claimable,
    Decision,
    Expire,
    Run,
    Skip,
    Wait,
    decide,
)
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.edge.turns.database import Database, Row, Transaction, Value
from streams.edge.turns.sql_sessions import said_in
from streams.edge.turns.sql_words import checked_id, checked_page, cut, json_text, text_of
from streams.edge.turns.turn_store import (
    ClaimAnswer,
    Claimant,
    Progress,
    Status,
    TurnRecord,
)

__all__ = ["SqlRecords"]

_TABLE = (
    """CREATE TABLE agent_turn_records (
        record_id TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        session_id TEXT NOT NULL,
        spec TEXT NOT NULL,
        status TEXT NOT NULL,
        iterations INTEGER NOT NULL,
        progress TEXT NOT NULL,
        fence INTEGER NOT NULL,
        claimed_by TEXT NOT NULL,
        claimed_at BIGINT,
        renewed_at BIGINT,
        dispatch_host TEXT NOT NULL,
        executed_by TEXT NOT NULL,
        result TEXT,
        error TEXT,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL
    )""",
    "CREATE INDEX agent_turn_records_changed ON agent_turn_records (updated_at, record_id)",
    """CREATE INDEX agent_turn_records_sessions
        ON agent_turn_records (session_id, updated_at, record_id)""",
)
_COLUMNS = """record_id, kind, session_id, spec, status, iterations, progress, fence, claimed_by,
    claimed_at, renewed_at, dispatch_host, executed_by, result, error, created_at, updated_at"""
_READ = f"SELECT {_COLUMNS} FROM agent_turn_records WHERE record_id = ? "
_LIST = f"SELECT {_COLUMNS} FROM agent_turn_records"
_CREATE = """INSERT INTO agent_turn_records (record_id, kind, session_id, spec, status, iterations,
    progress, fence, claimed_by, dispatch_host, executed_by, result, error, created_at, updated_at)
    VALUES (?, ?, ?, ?, ?, 0, '[]', 0, ?, '', '', ?, ?, {now}, {now})
    ON CONFLICT (record_id) DO NOTHING"""
_CLAIM = """UPDATE agent_turn_records SET status = 'running', fence = fence + 1, claimed_by = ?,
    dispatch_host = ?, claimed_at = {now}, renewed_at = {now}, updated_at = {now}
    WHERE record_id = ?"""
_EXPIRE = """UPDATE agent_turn_records SET status = 'failed', error = ?, updated_at = {now}
    WHERE record_id = ?"""
_CANCEL = """UPDATE agent_turn_records SET status = 'cancelled', error = ?, updated_at = {now}
    WHERE record_id = ?"""
_STATUS = "SELECT status FROM agent_turn_records WHERE record_id = ?"
_HELD = "WHERE record_id = ? AND fence = ? AND status = 'running'"
_RENEW = "UPDATE agent_turn_records SET renewed_at = {now}, updated_at = {now} " + _HELD
_ITERATE = (
    """UPDATE agent_turn_records SET renewed_at = {now}, updated_at = {now}, iterations = ?,
    progress = ?, result = ? """
    + _HELD
)
_RELEASE = (
    """UPDATE agent_turn_records SET status = 'pending', claimed_by = '', claimed_at = NULL,
    renewed_at = NULL, updated_at = {now} """
    + _HELD
)
_FINISH = (
    """UPDATE agent_turn_records SET status = ?, result = ?, error = ?, updated_at = {now},
    executed_by = claimed_by, iterations = COALESCE(?, iterations),
    progress = COALESCE(?, progress) """
    + _HELD
)
# A session says how its turn stands, by the same transaction.  Its own turn is in the queue until
# it is acked, as the head; while others are enqueued the session waits.
_OF_RECORD = "session_id = (SELECT session_id FROM agent_turn_records WHERE record_id = ?)"
_WHOSE = "SELECT session_id FROM agent_turn_records WHERE record_id = ?"
_SESSION_IS = "UPDATE agent_sessions SET status = ?, updated_at = {now} WHERE " + _OF_RECORD
_SESSION_ENDS = (
    """UPDATE agent_sessions SET updated_at = {now}, status = CASE WHEN EXISTS (
    SELECT 1 FROM agent_dispatch_queue
    WHERE session_key = 'session:' || agent_sessions.session_id AND is_head = 0)
    THEN 'queued' ELSE ? END WHERE """
    + _OF_RECORD
)
_MOVE = """UPDATE agent_turn_records SET status = ?, error = COALESCE(?, error),
    updated_at = {now} WHERE record_id = ? AND status IN """

_TERMINAL = {Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.PAUSED}


class SqlRecords:
    """The part of a store that knows goals and tasks.

    Args: claim_ttl_ms: how long after its holder was last heard of a claim can be taken over.
    """

    def __init__(self, database: Database, *, claim_ttl_ms: int = CLAIM_TTL_MS) -> None:
        self._database = database
        self._claim_ttl_ms = claim_ttl_ms
        database.make("agent_turn_records", _TABLE)
        database.run(lambda transaction: transaction.execute(_READ, ("",)))

    def create(self, record: TurnRecord, /) -> bool:
        """Write a new record; see `TurnStore.create`."""
        values = (
            checked_id("record_id", record.record_id),
            record.kind,
            checked_id("session_id", record.session_id),
            json_text("spec", record.spec),
            record.status.value,
            text_of(record.claimed_by),
            cut(record.result),
            cut(record.error),
        )
        return self._changed(_CREATE, values)

    def read(self, record_id: str, /) -> TurnRecord | None:
        """Return a record; see `TurnStore.read`."""
        key = checked_id("record_id", record_id)
        rows = self._database.run(lambda transaction: transaction.execute(_READ, (key,)))
        return _record(rows[0]) if rows else None

    def decision(self, transaction: Transaction, envelope: AgentTurnEnvelope) -> Decision:
        """Return what a worker would do with a turn now; its record stays as it is meanwhile."""
        decision, _, _ = self._decided(transaction, envelope)
        return decision

    def status(self, transaction: Transaction, record_id: str) -> str | None:
        """Return the status of a record; None when there is none."""
        rows = transaction.execute(_STATUS, (record_id,)) if record_id == text_of(record_id) else ()
        return rows[0][0] if rows else None

    def claim(self, envelope: AgentTurnEnvelope, by: Claimant, /) -> ClaimAnswer:
        """Take the record that an envelope refers to; see `TurnStore.claim`."""
        key = envelope.payload_ref

        def work(transaction: Transaction) -> ClaimAnswer:
            decision, found, now_ms = self._decided(transaction, envelope)
            match decision:
                case Run():
                    transaction.change(_CLAIM, (text_of(by.token), text_of(by.host), key))
                    transaction.change(_SESSION_IS, ("running", key))
                case Expire(error):
                    transaction.change(_EXPIRE, (cut(error), key))
                    transaction.change(_SESSION_ENDS, (Status.FAILED.value, key))
                case Wait() | Skip():
                    return self._left(decision, found, now_ms)
            return ClaimAnswer(decision, _record(transaction.execute(_READ, (key,))[0]))

        return self._database.run(work)

    def cancel(self, envelope: AgentTurnEnvelope, error: str, /) -> ClaimAnswer:
        """End the record of a turn that is not to run; see `TurnStore.cancel`."""
        key = envelope.payload_ref

        def work(transaction: Transaction) -> ClaimAnswer:
            decision, found, now_ms = self._decided(transaction, envelope)
            if isinstance(decision, Wait | Skip):
                return self._left(decision, found, now_ms)
            transaction.change(_CANCEL, (cut(error), key))
            transaction.change(_SESSION_ENDS, (Status.CANCELLED.value, key))
            return ClaimAnswer(decision, _record(transaction.execute(_READ, (key,))[0]))

        return self._database.run(work)

    def _decided(
        self, transaction: Transaction, envelope: AgentTurnEnvelope
    ) -> tuple[Decision, TurnRecord | None, int]:
        """Decide over a turn's record, which stays as it is until the transaction ends."""
        key = envelope.payload_ref
        if key != text_of(key):
            return Skip("unknown_record"), None, 0
        rows = transaction.execute(_READ + "{for_update}", (key,))
        found = _record(rows[0]) if rows else None
        ((now_ms,),) = transaction.execute("SELECT {now}")
        record = None if found is None else _claimable(found)
        decision = decide(envelope, record, now_ms=now_ms, ttl_ms=self._claim_ttl_ms)
        return decision, found, now_ms

    def _left(self, decision: Wait | Skip, found: TurnRecord | None, now_ms: int) -> ClaimAnswer:
        """Return the answer over a record that is left as it is."""
        if isinstance(decision, Skip):
            return ClaimAnswer(decision, found)
        wait_ms = self._claim_ttl_ms if decision.until_ms is None else decision.until_ms - now_ms
        return ClaimAnswer(decision, found, wait_ms)

    def renew(self, record_id: str, fence: int, /) -> bool:
        """Say that the holder lives; see `TurnStore.renew`."""
        return self._changed(_RENEW, (checked_id("record_id", record_id), fence))

    def iterate(self, record_id: str, fence: int, progress: Progress, /) -> bool:
        """Write how far a claimed goal is; see `TurnStore.iterate`."""
        iterations, newest, result = progress
        key = checked_id("record_id", record_id)
        return self._changed(_ITERATE, (iterations, _newest(newest), cut(result), key, fence))

    def release(self, record_id: str, fence: int, /) -> bool:
        """Give a claim back; see `TurnStore.release`."""
        key = checked_id("record_id", record_id)

        def work(transaction: Transaction) -> bool:
            if not transaction.change(_RELEASE, (key, fence)):
                return False
            transaction.change(_SESSION_IS, ("queued", key))
            return True

        return self._database.run(work)

    def finish(
        self,
        record_id: str,
        fence: int,
        status: Status,
        /,
        *,
        result: str | None = None,
        error: str | None = None,
        progress: Progress | None = None,
        says: bool = False,
    ) -> bool:
        """Write the end of a claimed record; see `TurnStore.finish`."""
        if status not in _TERMINAL:
            raise ValueError(f"status is {status.value}, expected an end: {_names(_TERMINAL)}")
        key = checked_id("record_id", record_id)
        iterations = None if progress is None else progress.iterations
        newest = None if progress is None else _newest(progress.newest)
        values = (status.value, cut(result), cut(error), iterations, newest, key, fence)

        def work(transaction: Transaction) -> bool:
            if not transaction.change(_FINISH, values):
                return False
            if says:
                _say(transaction, key, result)
            transaction.change(_SESSION_ENDS, (status.value, key))
            return True

        return self._database.run(work)

    def move(
        self,
        record_id: str,
        /,
        *,
        from_: Collection[Status],
        to: Status,
        error: str | None = None,
    ) -> bool:
        """Change the status of a record that nobody runs; see `TurnStore.move`."""
        if not from_ or Status.RUNNING in {*from_, to}:
            raise ValueError("a record that runs is its holder's: use claim, release and finish")
        names = sorted(each.value for each in from_)
        sql = _MOVE + f"({', '.join('?' * len(names))})"
        key = checked_id("record_id", record_id)
        return self._changed(sql, (to.value, cut(error), key, *names))

    def records(
        self,
        *,
        kind: str | None = None,
        session_id: str | None = None,
        status: Status | None = None,
        limit: int = 200,
        offset: int = 0,
    ) -> list[TurnRecord]:
        """Return records, the last changed first; see `TurnStore.records`."""
        wanted = {"kind": kind, "session_id": session_id, "status": status and status.value}
        given = {column: value for column, value in wanted.items() if value is not None}
        where = " AND ".join(f"{column} = ?" for column in given)
        sql = f"{_LIST} {'WHERE ' + where if given else ''} {_NEWEST_FIRST}"
        page = (*given.values(), *checked_page(limit, offset))
        rows = self._database.run(lambda transaction: transaction.execute(sql, page))
        return [_record(row) for row in rows]

    def _changed(self, sql: str, values: tuple[Value, ...]) -> bool:
        return self._database.run(lambda transaction: transaction.change(sql, values)) == 1


_NEWEST_FIRST = "ORDER BY updated_at DESC, record_id DESC LIMIT ? OFFSET ?"


def _say(transaction: Transaction, record_id: str, result: str | None) -> None:
    """Write into a session what a turn of it came to."""
    if result:
        for (session_id,) in transaction.execute(_WHOSE, (record_id,)):
            said_in(transaction, session_id, "assistant", result)


def _newest(iterations: Sequence[Mapping[str, Any]]) -> str:
    return text_of(json.dumps(list(iterations), ensure_ascii=False, separators=(",", ":")))


def _record(row: Row) -> TurnRecord:
    return TurnRecord(
        record_id=row[0],
        kind=row[1],
        session_id=row[2],
        spec=json.loads(row[3]),
        status=Status(row[4]),
        iterations=row[5],
        progress=json.loads(row[6]),
        fence=row[7],
        claimed_by=row[8],
        claimed_at_ms=row[9],
        renewed_at_ms=row[10],
        dispatch_host=row[11],
        executed_by=row[12],
        result=row[13],
        error=row[14],
        created_at_ms=row[15],
        updated_at_ms=row[16],
    )


def _claimable(record: TurnRecord) -> Claimable:
    return Claimable(
        status=record.status.value,
        claimed_by=record.claimed_by,
        alive_at_ms=record.renewed_at_ms,
        attempt=record.fence,
    )


def _names(statuses: Collection[Status]) -> str:
    return ", ".join(sorted(each.value for each in statuses))
