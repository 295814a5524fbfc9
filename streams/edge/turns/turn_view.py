"""Goals, tasks, sessions and workers as their topics on Kafka have them, kept as they change.

One thread for each topic reads it from its beginning and goes on; what it finds goes on a shelf, by
key: the last record counts.  While the broker is away, what was read last is told; then topics are
read anew, and what is in them no more is forgotten.

A record counts where its session lives: what another partition has of a key is from before
partitions were added, and is told by nobody any more.  When a topic has other partitions than the
settings say, what is asked of the view would be of another layout: `misfit` says so.

Invariants: all records are kept, or `trouble` says why they are not; in memory there is the shelf's
cache and a batch of each topic; a record that this process has written itself is there at once.

Source: DESIGN "Topics"; SEMANTICS 8.9.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Any

from streams.codec import Codec, DecodeError
from streams.core.turn.parting import Due
from streams.core.turn.partition_key import partition_of_session
from streams.edge.topic_reader import LONG_WAIT_MS, ReadRecord, TopicReader
from streams.edge.turns.key_watch import KeyWatches
from streams.edge.turns.record_shelf import BYTES_MAX, Gone, RecordShelf, Shelved
from streams.errors import HarnError, TaskQueueUnavailable
from streams.observe import logs
from streams.settings import Settings

__all__ = ["COUNT_EVERY_S", "TOPICS", "TurnView"]

_LOG = logs.logger(__name__)

_KINDS = {
    "agent.sessions": ("agent_session", "agent_session_desired"),
    "agent.jobs": ("agent_goal", "agent_job"),
    "fleet.workers": ("fleet_worker",),
}
TOPICS = tuple(_KINDS)

COUNT_EVERY_S = 5.0
"""How soon it is noticed that partitions were added."""

_OF_SESSIONS = TOPICS[:2]
_MOMENTS = ("updated_at_ms", "requested_at_ms", "last_heartbeat_ms")
_READ_S = 0.5
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 5.0
_STOP_S = 2.0


class TurnView:
    """Follows the topics; made and used inside one event loop."""

    def __init__(
        self,
        settings: Settings,
        codec: Codec,
        *,
        topics: Sequence[str] = TOPICS,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._loop = asyncio.get_running_loop()
        self._shelf = RecordShelf(bytes_max=bytes_max)
        self._passes = dict.fromkeys(TOPICS, 0)
        self._topics = tuple(topics)
        self._round = 0  # of reading everything: counts troubles
        self._round_lock = threading.Lock()
        self._unread = set(topics)
        self.trouble: TaskQueueUnavailable | None = None
        """Why not all that there is could be kept; None while it is."""
        self.misfit: str | None = None
        """What a topic has instead of the partitions that the settings say; None while it fits."""
        self.caught_up = asyncio.Event()
        """Set once every topic was read to its end."""
        self.watches = KeyWatches()
        """Who asks what else is written of a key."""
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(topic,), name=f"view-{topic}", daemon=True)
            for topic in topics
        ]

    @property
    def unread(self) -> frozenset[str]:
        """The topics that were not read to their end yet."""
        return frozenset(self._unread)

    def start(self) -> None:
        """Begin to follow; the broker may be away."""
        for thread in self._threads:
            thread.start()

    async def stop(self) -> None:
        """Stop, or leave clients behind that wait for a broker; idempotent."""
        self._stopping.set()
        started = [thread for thread in self._threads if thread.ident is not None]
        await asyncio.gather(*(asyncio.to_thread(each.join, _STOP_S) for each in started))
        self._shelf.close()

    def get(self, kind: str, key: str, /) -> dict[str, Any] | None:
        """Return the last record of a key.  Raises TaskQueueUnavailable: the disk is in the way."""
        found = self._shelf.get(kind, key)
        return None if found is None else self._codec.decode(found)[1]

    def newest(
        self,
        kind: str,
        /,
        *,
        session_id: str | None = None,
        status: str | None = None,
        limit: int,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """Return records, the last changed first; a large page is better asked for in a thread.

        Raises: TaskQueueUnavailable: the disk is in the way.
        """
        found = self._shelf.newest(
            kind, session_id=session_id, status=status, limit=limit, offset=offset
        )
        return [self._codec.decode(value)[1] for value in found]

    def due(self, before_ms: int, /, *, ended: bool, limit: int) -> list[Due]:
        """Return what may be forgotten that was not changed after `before_ms`; it blocks.

        Args:   ended: goals and tasks that have ended, else sessions that have none left.
        Raises: TaskQueueUnavailable: the disk is in the way.
        """
        find = self._shelf.ended if ended else self._shelf.empty
        return find(before_ms, limit=limit)

    def note(self, topic: str, kind: str, key: str, offset: int, value: bytes, /) -> None:
        """Take a record that this process has written, where its session lives."""
        found = self._read(kind, key, None, offset, value)
        if found is not None:
            try:
                self._shelf.apply([found], self._passes[topic])
            except TaskQueueUnavailable as error:
                self._troubled(error)  # it is written all the same, and is read again

    def _read(
        self, kind: str, key: str, partition: int | None, offset: int, value: bytes
    ) -> Shelved | None:
        """Return what a record says; None when it does not count, or, with a warning, is none.

        Args: partition: where it stands; None for where it belongs.
        """
        try:
            schema, said = self._codec.decode(value)
        except DecodeError as error:
            schema, said = str(error), {}
        if schema != kind:
            _LOG.warning(
                "turn_record_unreadable", extra={"kind": kind, "key": key, "reason": schema}
            )
            return None
        updated_at_ms = max(said.get(name, 0) for name in _MOMENTS)
        session_id, status = said.get("session_id", ""), said.get("status", "")
        home = self._home(session_id)
        if partition not in (None, home):
            return None
        return Shelved(kind, key, session_id, status, updated_at_ms, home, offset, value)

    def _home(self, session_id: str) -> int:
        """Return where records of a session belong; what is of none has one partition."""
        if not session_id:
            return 0
        return partition_of_session(session_id, self._settings.agent_turns_partitions)

    def _found(self, topic: str, records: Sequence[ReadRecord]) -> list[Shelved | Gone]:
        """Return what records say, by key (a topic's thread)."""
        found: list[Shelved | Gone] = []
        for record in records:
            if record.key is None:
                continue
            key, at = record.key.decode(errors="replace"), (record.partition, record.offset)
            if record.value is None:
                found.append(Gone(key, *at))
            elif record.kind in _KINDS[topic]:
                read = self._read(record.kind, key, *at, record.value)
                found += [read] if read is not None else []
        return found

    def _run(self, topic: str) -> None:
        """Body of a topic's thread."""
        backoff_s = _BACKOFF_FIRST_S
        while not self._stopping.is_set():
            try:
                with TopicReader(self._settings, topic, wait_ms=LONG_WAIT_MS) as reader:
                    backoff_s = _BACKOFF_FIRST_S if self.trouble is None else _BACKOFF_MAX_S
                    self._read_on(topic, reader)
            except HarnError as error:
                if isinstance(error, TaskQueueUnavailable):
                    self._troubled(error)
                extra = {"topic": topic, "reason": str(error), "wait_s": backoff_s}
                _LOG.warning("turn_records_not_followed", extra=extra)
                self._stopping.wait(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)

    def _read_on(self, topic: str, reader: TopicReader) -> None:
        """Follow until stopped, or all is read anew.  Raises HarnError: the topic is read anew."""
        current = self._round
        self._passes[topic] = number = self._passes[topic] + 1
        reader.start_at(dict.fromkeys(range(reader.partitions), 0))
        told_end = False
        counted_s: float | None = None
        while not self._stopping.is_set() and self._round == current:
            if counted_s is None or time.monotonic() - counted_s >= COUNT_EVERY_S:
                self._compare(topic, reader.count())
                counted_s = time.monotonic()
            records = reader.read(_READ_S)
            self._shelf.apply(self._found(topic, records), number)
            for each in records:  # who waits for one finds it on the shelf
                if each.key is not None:
                    self.watches.passed(each.key.decode(errors="replace"), each.offset, each.value)
            if reader.at_end and not told_end:
                told_end = True
                self._shelf.sweep(_KINDS[topic], number)
                self._was_read(topic, current)

    def _compare(self, topic: str, partitions: int) -> None:
        """Look whether a topic has the partitions by which sessions are placed."""
        expected = self._settings.agent_turns_partitions
        if topic in _OF_SESSIONS and partitions != expected:
            self.misfit = f"{topic} has {partitions} partitions, expected {expected}"

    def _was_read(self, topic: str, of_round: int) -> None:
        with self._round_lock:
            if self._round != of_round:
                return
            self._unread.discard(topic)
            if self._unread:
                return
            self.trouble = None
        with contextlib.suppress(RuntimeError):  # the loop is gone, so nobody looks
            self._loop.call_soon_threadsafe(self.caught_up.set)

    def _troubled(self, error: TaskQueueUnavailable) -> None:
        """Note that something could not be kept: all is read again, until it can."""
        with self._round_lock:
            self.trouble = error
            self._round += 1
            self._unread = set(self._topics)
