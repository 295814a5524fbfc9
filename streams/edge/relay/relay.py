"""Reads every queue's topic, and appends what it finds to the scheduler's mailbox; then commits.

    worker.<queue> → [fetch a round → decode → words by mailbox key → all acked → offsets committed]

One thread, one consumer in the group `harn.relay`, one idempotent producer.  A word of a queue is
in the mailbox before the next one is sent, and the producer waits for a broker that is away rather
than give one up: no word can be missing before one that is there.  Whatever ends badly begins anew
from the committed offsets; the scheduler drops what it has.

The group's offset also moves over the end marks of transactions, so that it reaches the end that
a reader of committed records sees: a command that waits for a queue waits for that.

Source: DESIGN "A job", "Roles".
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from streams.audit.log import LogRecord
from streams.codec import Codec
from streams.core.ready_jobs import Dealt, Refused, Word, words_of
from streams.edge.relay.jobs import dealt_of
from streams.edge.relay.sources import QueueSources
from streams.errors import BrokerError, HarnError
from streams.kafka import PASSING, ends_of, headers_of, make_consumer, make_producer, places_of
from streams.observe import logs
from streams.settings import Settings
from topology.edges import RELAY

__all__ = ["REQUESTS", "Relay", "RelayObserver"]

_LOG = logs.logger(__name__)

(REQUESTS,) = RELAY.writes

_POLL_S = 0.1
_ROUND_RECORDS = 1_000
_FETCH_AHEAD_KBYTES = 16_384
# A new queue is read within about this.
_LOOK_EVERY_S = 1.0
_COMMIT_EVERY_S = 0.1
_TIMEOUT_S = 10.0
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 5.0

_Place = tuple[str, int]


class RelayObserver(Protocol):
    """What metrics want to know of the relay; called from its thread."""

    def relayed(self, queue: str, *, jobs: int, rejected: int) -> None:
        """Note what a queue's part of a round came to, once the mailbox has it."""
        ...


class Relay:
    """An `EdgeService`; made inside the event loop that it lives in."""

    name = "relay"

    def __init__(
        self, settings: Settings, codec: Codec, *, observer: RelayObserver | None = None
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self._stopping = threading.Event()
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    async def start(self) -> None:
        """Begin to read; a broker that is away is waited for."""
        self._thread.start()

    async def stop(self) -> None:
        """Leave the group after the round that is under way, within the drain time; idempotent."""
        self._stopping.set()
        if self._thread.ident is not None:
            await asyncio.wait([self._stopped], timeout=max(self._settings.drain_ms / 1_000, 1.0))

    def _run(self) -> None:
        backoff_s = _BACKOFF_FIRST_S
        try:
            while not self._stopping.is_set():
                began_s = time.monotonic()
                try:
                    with _Session(
                        self._settings, self._codec, self._observer, self._stopping
                    ) as session:
                        session.read_until_stopped()
                except (KafkaException, HarnError) as error:
                    # What is wrong with the cluster passes, or an operator mends it.
                    if time.monotonic() - began_s > _BACKOFF_MAX_S:
                        backoff_s = _BACKOFF_FIRST_S
                    extra = {"reason": _told(error), "wait_s": backoff_s}
                    _LOG.warning("relay_waits", extra=extra)
                    self._stopping.wait(backoff_s)
                    backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)
        except BaseException as error:
            self._tell(self.failed, error)
            raise
        finally:
            self._tell(self._stopped, None)

    def _tell(self, future: asyncio.Future[None], error: BaseException | None) -> None:
        def settle() -> None:
            if not future.done():
                future.set_result(None) if error is None else future.set_exception(error)

        with contextlib.suppress(RuntimeError):  # the loop is gone, so nobody waits
            self._loop.call_soon_threadsafe(settle)


class _Part(NamedTuple):
    """What the records of one partition in a round came to; they end before `following`."""

    place: _Place
    following: int
    dealt: Sequence[Dealt]
    words: Sequence[Word]


class _Session:
    """A consumer and a producer, and how far both are; in one thread, dropped after trouble."""

    def __init__(
        self,
        settings: Settings,
        codec: Codec,
        observer: RelayObserver | None,
        stopping: threading.Event,
    ) -> None:
        self._codec = codec
        self._observer = observer
        self._stopping = stopping
        self._sources = QueueSources(settings, codec)
        self._encoders = {kind: codec.encoder(kind) for kind in ("jobs_ready", "job_rejected")}
        self._next: dict[_Place, int] = {}
        self._uncommitted: set[_Place] = set()
        self._looked_s = self._committed_s = float("-inf")
        self._refusal: KafkaError | None = None
        self._producer: Producer = make_producer(
            settings,
            linger_ms=0,
            # A word is never given up: the next one would come after a gap.
            delivery_timeout_ms=0,
        )
        self._consumer: Consumer = make_consumer(
            settings,
            group_id=RELAY.group,
            partition_assignment_strategy="cooperative-sticky",
            queued_max_messages_kbytes=_FETCH_AHEAD_KBYTES,
            topic_metadata_refresh_interval_ms=int(_LOOK_EVERY_S * 1_000),
            enable_partition_eof=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(KafkaException):
            self._commit()
        self._consumer.close()
        self._producer.purge()
        self._producer.flush(_POLL_S)

    def read_until_stopped(self) -> None:
        """Relay round by round.  Raises KafkaException or HarnError after which all begins anew."""
        while not self._stopping.is_set():
            now_s = time.monotonic()
            if now_s - self._looked_s >= _LOOK_EVERY_S:
                self._looked_s = now_s
                self._look()
            self._round()
            if self._uncommitted and time.monotonic() - self._committed_s >= _COMMIT_EVERY_S:
                self._commit(asynchronous=True)

    def _look(self) -> None:
        """Look which queues there are, and read those."""
        names = self._consumer.list_topics(timeout=_TIMEOUT_S).topics
        if not self._sources.look(names):
            return
        if self._sources.topics:
            self._consumer.subscribe(
                list(self._sources.topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
        else:
            self._consumer.unsubscribe()

    # ------------------------------------------------------------------ a round
    def _round(self) -> None:
        first = self._consumer.poll(_POLL_S)
        if first is None:
            return
        found, ends = _by_place((first, *self._consumer.consume(_ROUND_RECORDS, 0)))
        parts = [part for place, messages in found.items() if (part := self._part(place, messages))]
        # One word of a queue at a time: none may be there whose predecessor was refused.
        for wave in zip_longest(*(line for part in parts for line in _lines(part.words))):
            for word in wave:
                if word is not None:
                    self._produce(word)
            self._settle()
        for part in parts:
            self._note(part)
        for place, end in ends.items():  # behind the records that came with them
            self._reach(place, end)

    def _part(self, place: _Place, messages: Sequence[Message]) -> _Part | None:
        """Return what a partition's records come to."""
        source = self._sources.source(*place)
        if source is None or place not in self._next:
            return None  # gone meanwhile: whoever reads it next begins before these
        first = self._next[place]
        records = [record for each in messages if (record := _record(each)).offset >= first]
        dealt = [self._dealt(record) for record in records]
        following = records[-1].offset + 1 if records else first
        return _Part(place, following, dealt, words_of(source, dealt, first, following))

    def _dealt(self, record: LogRecord) -> Dealt:
        """Read a record; an outage of a schema registry is waited out."""
        backoff_s = _BACKOFF_FIRST_S
        while True:
            try:
                return dealt_of(self._codec, record)
            except BrokerError as error:
                if not error.retryable or self._stopping.is_set():
                    raise
                _LOG.warning("relay_waits", extra={"reason": str(error), "wait_s": backoff_s})
                self._stopping.wait(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)

    def _produce(self, word: Word) -> None:
        value = self._encoders[word.kind](word.value)
        headers: list[tuple[str, str | bytes | None]] = [("kind", word.kind.encode())]
        while True:
            try:
                self._producer.produce(
                    REQUESTS, value, word.key, headers=headers, on_delivery=self._on_delivery
                )
            except BufferError:
                self._producer.poll(_POLL_S)
                self._raise_when_stopping()
            else:
                return

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None and message.offset() is None:
            # It may be lost (see `Publisher`), and the queue's next word would come after a gap.
            said = "the client does not know where a word is"
            error = KafkaError(KafkaError._STATE, said)  # noqa: SLF001 - its name
        self._refusal = self._refusal or error

    def _settle(self) -> None:
        """Return once the mailbox has all that was sent."""
        while self._producer.flush(_POLL_S):
            self._raise_when_stopping()
        if self._refusal is not None:
            raise KafkaException(self._refusal)

    def _raise_when_stopping(self) -> None:
        """Give up what the broker does not take: nothing is committed of it."""
        if self._stopping.is_set():
            raise BrokerError("stopped before the mailbox had it", retryable=True)

    def _note(self, part: _Part) -> None:
        self._reach(part.place, part.following)
        source = self._sources.source(*part.place)
        if self._observer is not None and source is not None:
            rejected = sum(isinstance(each, Refused) for each in part.dealt)
            jobs = len(part.dealt) - rejected
            self._observer.relayed(source.queue, jobs=jobs, rejected=rejected)

    # ------------------------------------------------------------------ places
    def _reach(self, place: _Place, offset: int) -> None:
        """Note that everything of a partition before an offset is in the mailbox."""
        known = self._next.get(place)
        if known is not None and offset > known:
            self._next[place] = offset
            self._uncommitted.add(place)

    def _commit(self, *, asynchronous: bool = False) -> None:
        positions = [
            TopicPartition(*place, self._next[place])
            for place in self._uncommitted
            if place in self._next
        ]
        self._uncommitted.clear()
        self._committed_s = time.monotonic()
        if not positions:
            return
        try:
            if asynchronous:
                self._consumer.commit(offsets=positions, asynchronous=True)
            else:
                self._consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            # They are relayed again, by us or by another member, and dropped.
            _LOG.warning("relay_commit_failed", extra={"reason": _told(error)})

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        starts: list[TopicPartition] = []
        for each in places_of(consumer, partitions, _TIMEOUT_S):
            first, _ = ends_of(consumer, each, _TIMEOUT_S)
            place = (each.topic, each.partition)
            if 0 <= each.offset < first:
                # An operator must know: the topic let jobs go before anyone had read them.
                extra = {
                    "position": f"{each.topic}/{each.partition}/{each.offset}",
                    "records": first - each.offset,
                }
                _LOG.error("relay_records_lost", extra=extra)
            self._next[place] = max(each.offset, first)
            starts.append(TopicPartition(*place, self._next[place]))
        consumer.incremental_assign(starts)
        _LOG.info("relay_assigned", extra={"partitions": len(self._next)})

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._on_lost(consumer, partitions)

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._next.pop((each.topic, each.partition), None)
            self._uncommitted.discard((each.topic, each.partition))


def _by_place(
    messages: Iterable[Message],
) -> tuple[Mapping[_Place, list[Message]], Mapping[_Place, int]]:
    """Part what was fetched: records by partition, and the ends that were reached after them.

    Raises: KafkaException for what does not pass by itself.
    """
    found: defaultdict[_Place, list[Message]] = defaultdict(list)
    ends: dict[_Place, int] = {}
    for message in messages:
        error = message.error()
        place = (message.topic() or "", message.partition() or 0)
        if error is None:
            found[place].append(message)
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
            ends[place] = message.offset() or 0
        elif error.fatal() or error.code() not in PASSING:
            raise KafkaException(error)
    return found, ends


def _lines(words: Sequence[Word]) -> Iterable[list[Word]]:
    """Part words by their key: those of one key follow each other."""
    lines: defaultdict[str, list[Word]] = defaultdict(list)
    for word in words:
        lines[word.key].append(word)
    return lines.values()


def _record(message: Message) -> LogRecord:
    offset = message.offset()
    assert offset is not None, "a fetched record has an offset"
    key: Any = message.key()
    value: Any = message.value()
    return LogRecord(offset, message.timestamp()[1], key, value, headers_of(message))


def _told(error: KafkaException | HarnError) -> str:
    return error.args[0].str() if isinstance(error, KafkaException) else str(error)
