"""A worker of turns on a database, to be killed: `python turn_worker.py ADDRESS FOLDER LOG`.

Claims are short, so that what a killed worker held comes again soon.  The first to run the turn
`STANDSTILL` stops in it until somebody lets it go on.  Each line of the log is appended whole: who
did what to which turn.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from streams.edge.turns.advisory_guard import AdvisoryGuard
from streams.edge.turns.delivery import Deliveries, Ended, Lease
from streams.edge.turns.file_guard import FileGuard
from streams.edge.turns.postgres_database import PostgresDatabase
from streams.edge.turns.postgres_link import PostgresLink
from streams.edge.turns.sql_queue import SqlTaskQueue
from streams.edge.turns.sql_turns import SqlTurns, SqlTurnStore
from streams.edge.turns.sqlite_file import SqliteFile
from streams.edge.turns.turn_store import Claimant, Status, TurnRecord

STANDSTILL = "s0-1"
TTL_MS = 1_500
_TURN_S = 0.005
_IDLE_S = 0.02


def open_short_lived(address: str, folder: Path) -> SqlTurns:
    """Open PostgreSQL at `address`, or SQLite in `folder` when that is empty."""
    if address:
        link = PostgresLink(address)
        database, guard = PostgresDatabase(link), AdvisoryGuard(link)
    else:
        database, guard = SqliteFile(folder / "t.db"), FileGuard(folder / "locks")
    return SqlTurns(
        queue=SqlTaskQueue(database, consumer=f"{os.getpid()}", visibility_ms=TTL_MS),
        guard=guard,
        store=SqlTurnStore(database, claim_ttl_ms=TTL_MS),
        database=database,
    )


def append(log: Path, *words: str) -> None:
    """Append a line, whole even when others append at once."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, (" ".join(words) + "\n").encode())
    os.close(descriptor)


def main(address: str, folder: Path, log: Path) -> None:
    """Work until the standard input ends."""
    pid, stop = f"{os.getpid()}", threading.Event()

    def run(record: TurnRecord, _lease: Lease) -> Ended:
        append(log, "start", record.record_id, pid)
        if record.record_id == STANDSTILL and record.fence == 1:
            append(log, "stands", record.record_id, pid)
            os.kill(os.getpid(), signal.SIGSTOP)
        stop.wait(_TURN_S)
        append(log, "end", record.record_id, pid)
        return Ended(Status.COMPLETED, result=pid)

    turns = open_short_lived(address, folder)
    deliveries = Deliveries(
        turns, Claimant(pid, "here"), run, renew_every_s=TTL_MS / 5_000, guard_within_s=0.1
    )
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    while not stop.is_set():
        if deliveries.next() is None:
            stop.wait(_IDLE_S)
    turns.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
