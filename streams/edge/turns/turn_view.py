"""Goals, tasks, sessions and workers as their topics on Kafka have them, kept as they change.

One thread for each topic reads it from its beginning and goes on; what it finds is folded on the
event loop, by key: the last record counts.  While the broker is away, what was read last is told.

A record counts where its session lives: what another partition has of a key is from before
partitions were added, and is told by nobody any more.  When a topic has other partitions than the
settings say, what is asked of the view would be of another layout: `misfit` says so.

Invariants: of each kind at most RECORDS_MAX records and BYTES_MAX bytes are kept, those that were
written last; a record that this process has written itself is there at once.

Source: DESIGN "Topics"; SEMANTICS 8.9.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from streams.codec import Codec, DecodeError
from streams.core.turn.partition_key import partition_of_session
from streams.edge.topic_reader import LONG_WAIT_MS, ReadRecord, TopicReader
from streams.errors import HarnError
from streams.observe import logs
from streams.settings import Settings

__all__ = ["BYTES_MAX", "COUNT_EVERY_S", "KINDS", "RECORDS_MAX", "TOPICS", "TurnView"]

_LOG = logs.logger(__name__)

RECORDS_MAX = 50_000
BYTES_MAX = 64 * 1_048_576

TOPICS = ("agent.sessions", "agent.jobs", "fleet.workers")
KINDS = ("agent_session", "agent_session_desired", "agent_goal", "agent_job", "fleet_worker")

COUNT_EVERY_S = 5.0
"""How soon it is noticed that partitions were added."""

_OF_SESSIONS = TOPICS[:2]
_READ_S = 0.5
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 5.0
_STOP_S = 2.0


class _Kept(NamedTuple):
    """The last record of a key; its value is decoded when somebody looks."""

    partition: int
    offset: int
    session_id: str
    status: str
    updated_at_ms: int
    value: bytes


class _Found(NamedTuple):
    """What a record says of a key; `kept` is None when it says that there is nothing any more."""

    kind: str
    key: str
    partition: int
    offset: int
    kept: _Kept | None


class TurnView:
    """Follows the topics; made and used inside one event loop."""

    def __init__(
        self,
        settings: Settings,
        codec: Codec,
        *,
        topics: Sequence[str] = TOPICS,
        records_max: int = RECORDS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._loop = asyncio.get_running_loop()
        self._kept: dict[str, OrderedDict[str, _Kept]] = {kind: OrderedDict() for kind in KINDS}
        self._bytes: dict[str, int] = dict.fromkeys(KINDS, 0)
        self._unread = set(topics)
        self.misfit: str | None = None
        """What a topic has instead of the partitions that the settings say; None while it fits."""
        self.caught_up = asyncio.Event()
        """Set once every topic was read to its end."""
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

    def get(self, kind: str, key: str, /) -> dict[str, Any] | None:
        """Return the last record of a key."""
        found = self._kept[kind].get(key)
        return None if found is None else self._codec.decode(found.value)[1]

    def newest(
        self,
        kind: str,
        /,
        *,
        session_id: str | None = None,
        status: str | None = None,
        limit: int,
        offset: int = 0,
    ) -> Iterator[dict[str, Any]]:
        """Return records, the last changed first."""
        found = [
            (kept.updated_at_ms, key)
            for key, kept in self._kept[kind].items()
            if session_id in (None, kept.session_id) and status in (None, kept.status)
        ]
        found.sort(reverse=True)
        for _, key in found[offset : offset + limit]:
            yield self._codec.decode(self._kept[kind][key].value)[1]

    def note(self, kind: str, key: str, offset: int, value: bytes, /) -> None:
        """Take a record that this process has written, where its session lives."""
        found = self._read(kind, key, None, offset, value)
        if found is not None:
            self._fold(found)

    def _fold(self, found: _Found) -> None:
        kind, key, partition, offset, kept = found
        of_kind = self._kept[kind]
        known = of_kind.get(key)
        if known is not None and (known.partition != partition or known.offset > offset):
            return  # this process had written something newer, or the topic is read anew
        if known is not None:
            self._bytes[kind] -= len(known.value)
            del of_kind[key]
        if kept is None:
            return
        of_kind[key] = kept
        self._bytes[kind] += len(kept.value)
        while len(of_kind) > self._records_max or self._bytes[kind] > self._bytes_max:
            _, dropped = of_kind.popitem(last=False)
            self._bytes[kind] -= len(dropped.value)

    def _read(
        self, kind: str, key: str, partition: int | None, offset: int, value: bytes
    ) -> _Found | None:
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
        updated_at_ms = max(said.get(name, 0) for name in ("updated_at_ms", "last_heartbeat_ms"))
        session_id, status = said.get("session_id", ""), said.get("status", "")
        home = self._home(session_id)
        if partition not in (None, home):
            return None
        kept = _Kept(home, offset, session_id, status, updated_at_ms, value)
        return _Found(kind, key, home, offset, kept)

    def _home(self, session_id: str) -> int:
        """Return where records of a session belong; what is of none has one partition."""
        if not session_id:
            return 0
        return partition_of_session(session_id, self._settings.agent_turns_partitions)

    def _found(self, records: Sequence[ReadRecord]) -> list[_Found]:
        """Return what records say, by key (a topic's thread)."""
        found: list[_Found] = []
        for record in records:
            if record.key is None:
                continue
            key = record.key.decode(errors="replace")
            if record.value is None:  # no kind: the key is of one of them only
                place = (record.partition, record.offset)
                found += [_Found(kind, key, *place, None) for kind in KINDS]
            elif record.kind in self._kept:
                place = (record.partition, record.offset)
                read = self._read(record.kind, key, *place, record.value)
                found += [read] if read is not None else []
        return found

    def _run(self, topic: str) -> None:
        """Body of a topic's thread."""
        backoff_s = _BACKOFF_FIRST_S
        while not self._stopping.is_set():
            try:
                with TopicReader(self._settings, topic, wait_ms=LONG_WAIT_MS) as reader:
                    backoff_s = _BACKOFF_FIRST_S
                    self._read_on(topic, reader)
            except HarnError as error:
                extra = {"topic": topic, "reason": str(error), "wait_s": backoff_s}
                _LOG.warning("turn_records_not_followed", extra=extra)
                self._stopping.wait(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)

    def _read_on(self, topic: str, reader: TopicReader) -> None:
        """Follow until stopped.  Raises HarnError, after which the topic is read anew."""
        reader.start_at(dict.fromkeys(range(reader.partitions), 0))
        told_end = False
        counted_s: float | None = None
        while not self._stopping.is_set():
            if counted_s is None or time.monotonic() - counted_s >= COUNT_EVERY_S:
                self._compare(topic, reader.count())
                counted_s = time.monotonic()
            records = reader.read(_READ_S)
            if records or (reader.at_end and not told_end):
                told_end = reader.at_end
                found = self._found(records)
                with contextlib.suppress(RuntimeError):  # the loop is gone, so nobody looks
                    self._loop.call_soon_threadsafe(self._take, topic, found, told_end)

    def _compare(self, topic: str, partitions: int) -> None:
        """Look whether a topic has the partitions by which sessions are placed."""
        expected = self._settings.agent_turns_partitions
        if topic in _OF_SESSIONS and partitions != expected:
            self.misfit = f"{topic} has {partitions} partitions, expected {expected}"

    def _take(self, topic: str, found: Sequence[_Found], at_end: bool) -> None:  # noqa: FBT001
        if self._stopping.is_set():
            return
        for each in found:
            self._fold(each)
        if at_end:
            self._unread.discard(topic)
            if not self._unread:
                self.caught_up.set()
