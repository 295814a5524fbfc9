"""Turns in a table of a database.

Of each session only the oldest item, its head, can be claimed; the next one becomes the head when
it is gone.  Whatever changes a session's items names the session first (`Transaction.alone`), so
that ids follow the order of commits within a session, and one head stands for each.  An item's
number of deliveries is the fence of its claim: an ack of an earlier delivery does nothing.

Source: SEMANTICS 8.4; seed queue-driven-agent-dispatch, "Delivery and idempotency guarantees".
"""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from typing import Any

from streams.core.turn.partition_key import partition_key_for
from streams.edge.turns.database import Database, Transaction
from streams.edge.turns.sql_policies import SqlPolicies
from streams.edge.turns.task_queue import (
    DEPTH_MAX,
    ITEM_BYTES_MAX,
    VISIBILITY_MS,
    DeadLetter,
    DeliveryId,
    Item,
    Taken,
)
from streams.errors import TaskQueueFull
from streams.observe import logs

__all__ = ["DEAD_LETTERS_MAX", "SqlTaskQueue", "deliveries_of"]

DEAD_LETTERS_MAX = 10_000
"""The newest dead letters that are kept."""

ERROR_CHARS_MAX = 1_024
KEY_CHARS_MAX = 512

_UNFIT = re.compile(r"[\x00\ud800-\udfff]")
_DELIVERY = re.compile(r"(\d{1,19})\.(\d{1,10})")

# How many puts of ours may pass before others' are counted again: counting reads the whole table.
_COUNT_EVERY = 256

_LOG = logs.logger(__name__)

_QUEUE = (
    """CREATE TABLE agent_dispatch_queue (
        id {serial},
        session_key TEXT NOT NULL,
        data TEXT NOT NULL,
        is_head INTEGER NOT NULL,
        claimed_by TEXT,
        claimed_at BIGINT,
        deliveries INTEGER NOT NULL DEFAULT 0,
        visible_at BIGINT NOT NULL DEFAULT 0,
        interrupted_by TEXT,
        enqueued_at BIGINT NOT NULL
    )""",
    "CREATE INDEX agent_dispatch_queue_heads ON agent_dispatch_queue (id) WHERE is_head = 1",
    "CREATE INDEX agent_dispatch_queue_sessions ON agent_dispatch_queue (session_key, id)",
)
_DEAD_LETTERS = (
    """CREATE TABLE agent_dispatch_dead_letters (
        id {serial},
        data TEXT NOT NULL,
        error TEXT NOT NULL,
        deliveries INTEGER NOT NULL,
        buried_at BIGINT NOT NULL
    )""",
)
_SHAPE = """SELECT id, session_key, data, is_head, claimed_by, claimed_at, deliveries, visible_at,
    interrupted_by, enqueued_at FROM agent_dispatch_queue WHERE id < 0"""

_PUT = """INSERT INTO agent_dispatch_queue (session_key, data, is_head, enqueued_at) VALUES (?, ?,
    CASE WHEN EXISTS (SELECT 1 FROM agent_dispatch_queue WHERE session_key = ?) THEN 0 ELSE 1 END,
    {now})"""
_OLDEST = """SELECT id, data, deliveries, interrupted_by FROM agent_dispatch_queue
    WHERE is_head = 1 AND visible_at < {now} ORDER BY id LIMIT 1 {skip_locked}"""
_CLAIM = """UPDATE agent_dispatch_queue SET claimed_by = ?, claimed_at = {now},
    visible_at = {now} + ?, deliveries = deliveries + 1 WHERE id = ?"""
_HELD = "WHERE id = ? AND deliveries = ? AND claimed_by IS NOT NULL"
_RENEW = "UPDATE agent_dispatch_queue SET visible_at = {now} + ? " + _HELD
_RELEASE = (
    """UPDATE agent_dispatch_queue SET claimed_by = NULL, claimed_at = NULL,
    visible_at = {now} - 1 + ? """
    + _HELD
)
_INTERRUPTED = "SELECT interrupted_by FROM agent_dispatch_queue " + _HELD
_SESSION_OF = "SELECT session_key FROM agent_dispatch_queue " + _HELD
_REMOVE = "DELETE FROM agent_dispatch_queue " + _HELD
_PROMOTE = """UPDATE agent_dispatch_queue SET is_head = 1
    WHERE id = (SELECT MIN(id) FROM agent_dispatch_queue WHERE session_key = ?)"""
_BURY = (
    """INSERT INTO agent_dispatch_dead_letters (data, error, deliveries, buried_at)
    SELECT data, ?, deliveries, {now} FROM agent_dispatch_queue """
    + _HELD
)
_FORGET = """DELETE FROM agent_dispatch_dead_letters WHERE id <=
    (SELECT MAX(id) FROM agent_dispatch_dead_letters) - ?"""
_LETTERS = """SELECT data, error, deliveries, buried_at FROM agent_dispatch_dead_letters
    ORDER BY id DESC LIMIT ?"""


class SqlTaskQueue:
    """A queue in `database`, for any number of threads and processes.

    Args:   consumer: who takes items, as told in `claimed_by`.  visibility_ms: how long a claim
            lasts unless it is renewed.  depth_max: items that the queue holds; when several
            producers fill it at once it may be passed by 256 items of each.  policies: what becomes
            of items whose sessions are busy; without it all are appended.
    Raises: TaskQueueUnavailable, here as from every method.
    """

    def __init__(
        self,
        database: Database,
        *,
        consumer: str,
        visibility_ms: int = VISIBILITY_MS,
        depth_max: int = DEPTH_MAX,
        policies: SqlPolicies | None = None,
    ) -> None:
        self.backend = database.backend
        self._database = database
        self._consumer = consumer
        self._visibility_ms = visibility_ms
        self._depth_max = depth_max
        self._policies = policies
        self._depth_at_most = depth_max
        self._puts_until_count = 0
        database.make("agent_dispatch_queue", _QUEUE)
        database.make("agent_dispatch_dead_letters", _DEAD_LETTERS)
        database.run(lambda transaction: transaction.execute(_SHAPE))

    def put(self, item: Item, /) -> None:
        """Append an item behind those of its session; see `TaskQueue.put`."""
        text, key = _text(item), _session_key(item)
        if self._puts_until_count <= 0 or self._depth_at_most >= self._depth_max:
            self._depth_at_most = self.get_queue_size()
            self._puts_until_count = _COUNT_EVERY
        if self._depth_at_most >= self._depth_max:
            raise TaskQueueFull(
                self._database.endpoint,
                f"it holds {self._depth_at_most} turns, {self._depth_max} at most",
                retryable=True,
                remedy="start more workers, or find out why they take nothing",
            )

        def work(transaction: Transaction) -> None:
            transaction.alone(key)
            if self._policies is not None:
                self._policies.apply(transaction, key, item)
            transaction.change(_PUT, (key, text, key))

        self._database.run(work)
        self._depth_at_most += 1
        self._puts_until_count -= 1

    def get(self) -> tuple[DeliveryId, Item] | None:
        """Claim the oldest head that nobody holds; see `TaskQueue.get`."""
        found = self.take()
        return None if found is None else (found.delivery, found.item)

    def take(self) -> Taken | None:
        """Claim the oldest head that nobody holds; see `ClaimedQueue.take`."""
        while True:
            claimed = self._database.run(self._claim)
            if claimed is None:
                return None
            number, text, deliveries, interrupted_by = claimed
            delivery = DeliveryId(f"{number}.{deliveries}")
            item = _item(text)
            if not isinstance(item, str):
                return Taken(delivery, item, interrupted_by)
            _LOG.warning("turn_unreadable", extra={"delivery": delivery, "reason": item})
            self.bury(delivery, item)

    def _claim(self, transaction: Transaction) -> tuple[int, str, int, str | None] | None:
        for number, text, deliveries, interrupted_by in transaction.execute(_OLDEST):
            transaction.change(_CLAIM, (self._consumer, self._visibility_ms, number))
            return number, text, deliveries + 1, interrupted_by
        return None

    def interrupted_by(self, delivery: DeliveryId, /) -> str | None:
        """Return who interrupted a claimed item; see `ClaimedQueue.interrupted_by`."""
        held = _held(delivery)
        rows = self._database.run(lambda transaction: transaction.execute(_INTERRUPTED, held))
        return rows[0][0] if rows else None

    def ack(self, delivery: DeliveryId, /) -> bool:
        """Remove an item; its session's next one becomes available.  See `TaskQueue.ack`."""
        held = _held(delivery)

        def work(transaction: Transaction) -> bool:
            return _removed(transaction, held)

        return self._database.run(work)

    def renew(self, delivery: DeliveryId, /) -> bool:
        """Start the time of a claim anew; see `ClaimedQueue.renew`."""
        return self._changed(_RENEW, (self._visibility_ms, *_held(delivery)))

    def release(self, delivery: DeliveryId, /, *, delay_ms: int = 0) -> bool:
        """Give an item back; see `ClaimedQueue.release`."""
        if delay_ms < 0:
            raise ValueError(f"delay_ms is {delay_ms}, expected 0 or more")
        return self._changed(_RELEASE, (delay_ms, *_held(delivery)))

    def bury(self, delivery: DeliveryId, error: str, /) -> bool:
        """Move an item to the dead letters, in one transaction; see `ClaimedQueue.bury`."""
        held = _held(delivery)
        told = error.replace("\0", "\ufffd").encode("utf-8", "replace").decode()[:ERROR_CHARS_MAX]

        def work(transaction: Transaction) -> bool:
            transaction.alone("agent_dispatch_dead_letters")
            if not transaction.change(_BURY, (told, *held)):
                return False
            transaction.change(_FORGET, (DEAD_LETTERS_MAX,))
            return _removed(transaction, held)

        return self._database.run(work)

    def dead_letters(self, limit: int = 100, /) -> list[DeadLetter]:
        """Return the newest dead letters, newest first."""
        rows = self._database.run(lambda transaction: transaction.execute(_LETTERS, (limit,)))
        return [DeadLetter(*row) for row in rows]

    def get_queue_size(self) -> int:
        """Count the items, claimed ones included."""
        sql = "SELECT COUNT(*) FROM agent_dispatch_queue"
        ((count,),) = self._database.run(lambda transaction: transaction.execute(sql))
        return count

    def close(self) -> None:
        """Let go of the connection; a later call makes a new one."""
        self._database.close()

    def _changed(self, sql: str, parameters: tuple[int, ...]) -> bool:
        return self._database.run(lambda transaction: transaction.change(sql, parameters)) == 1


def _removed(transaction: Transaction, held: tuple[int, int]) -> bool:
    """Delete a held item and make the next one of its session the head."""
    for (key,) in transaction.execute(_SESSION_OF, held):
        transaction.alone(key)
        if transaction.change(_REMOVE, held):
            transaction.change(_PROMOTE, (key,))
            return True
    return False


def _session_key(item: Item) -> str:
    """Return what orders an item: its session, as on every other carrier."""
    key = partition_key_for(item)
    if len(key) <= KEY_CHARS_MAX and _UNFIT.search(key) is None:
        return key
    # No column, or no index, takes it; equal keys have equal digests.
    return f"digest:{blake2b(key.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def deliveries_of(delivery: DeliveryId, /) -> int:
    """Return how often the item has been delivered, this time included."""
    return _held(delivery)[1]


def _held(delivery: DeliveryId) -> tuple[int, int]:
    """Return an item's number and fence."""
    found = _DELIVERY.fullmatch(delivery)
    if found is None:
        raise ValueError(f"{delivery!r} is no delivery of this queue, expected what get() returned")
    return int(found[1]), int(found[2])


def _text(item: Item) -> str:
    try:
        text = json.dumps(dict(item), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the item is no JSON object: {error}") from None
    # ASCII only, since everything else is escaped: its characters are its bytes.
    if len(text) > ITEM_BYTES_MAX:
        raise ValueError(f"the item has {len(text)} bytes, {ITEM_BYTES_MAX} at most: refer to it")
    return text


def _item(text: str) -> dict[str, Any] | str:
    """Return the item, or what is wrong with its text."""
    try:
        item = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}"
    if not isinstance(item, dict):
        return f"a JSON {type(item).__name__}, expected an object"
    return item
