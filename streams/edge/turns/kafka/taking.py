"""Taking partitions of turns: fence, committed offset, claims and records, in that order.

Before that it is looked at what the owner before says: see `Patience`.

Fencing ends what the owner before left open, so that what is committed then is all there will ever
be of it.  Claims are loaded from where the bookmark of the committed offset says, goals, tasks and
sessions from their beginning; of these the ends at which loading stopped are where following goes
on.

Source: DESIGN "Taking a partition", "A turn".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streams.agents.transaction import TransactionalProducer
from streams.codec import Codec, DecodeError
from streams.core.turn.bookmark import Bookmark, parse_bookmark
from streams.core.turn.held import Loaded
from streams.core.turn.memory import KEPT_MAX, Memory
from streams.core.turn.words import CLAIMS, JOBS, SESSIONS, TURNS
from streams.edge.turns.kafka.feed import Place
from streams.edge.turns.kafka.membership import GROUP
from streams.errors import BrokerError, TopologyError
from streams.kafka import PASSING, ends_of, make_consumer, places_of
from streams.observe import logs
from streams.settings import Settings

__all__ = ["LOOK_S", "Taken", "Taker", "transactional_id"]

_LOG = logs.logger(__name__)

_TIMEOUT_S = 30.0
LOOK_S = _TIMEOUT_S
"""What asking for the end of a topic may take."""

_CONSUME = 10_000
_CONSUME_S = 0.03
_QUEUE_RECORDS = 20_000
_EARLIER_MS = 30_000  # a record is written before its turn, by a clock that may be slow
_PATIENCE_FACTOR = 1.5  # of a transaction's longest time: by then the coordinator has ended it


def transactional_id(partition: int, /) -> str:
    """Return the id under which the owner of a partition of turns writes."""
    return f"{GROUP}-{partition}"


class Taken(NamedTuple):
    """A partition that was taken: whoever had it before writes nothing any more.

    `records_from` is where goals, tasks and sessions are to be followed from.
    """

    producer: TransactionalProducer
    loaded: Loaded
    records_from: Mapping[Place, int]


class Taker:
    """Takes partitions, and asks for ends of topics.  It blocks; one call at a time goes on."""

    def __init__(
        self, settings: Settings, codec: Codec, pool: Executor, *, kept_max: int = KEPT_MAX
    ) -> None:
        self._kept_max = kept_max
        self._settings = settings
        self._codec = codec
        self._pool = pool
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._reader: Consumer | None = None
        self._watcher: Consumer | None = None
        self._watcher_lock = threading.Lock()

    def group_metadata(self) -> bytes:
        """Return what a transaction names its group by.

        It names no member: an owner is known by the epoch of its transactional id, which the owner
        after it raises before it reads the offset.  A member's generation would change under the
        transactions of those who keep their partitions while others join.
        """
        with self._lock:
            return self._ready().consumer_group_metadata()

    def take(self, partitions: Collection[int]) -> dict[int, Taken]:
        """Fence and load partitions.

        Raises: TopologyError for turns that end before the committed offset; BrokerError.
        """
        producers = {
            each: TransactionalProducer(
                self._settings, transactional_id(each), queue_records=_QUEUE_RECORDS
            )
            for each in partitions
        }
        for fenced in [self._pool.submit(each.fence) for each in producers.values()]:
            fenced.result()
        with self._lock:
            try:
                return self._load(producers)
            except KafkaException as error:
                message = f"{TURNS} {sorted(partitions)} could not be loaded: {error}"
                raise BrokerError(message, retryable=True) from error

    def end_of(self, topic: str, partition: int) -> int:
        """Return where a partition ends, with all that is acknowledged, committed or not.

        Raises: BrokerError.
        """
        with self._watcher_lock:
            try:
                place = TopicPartition(topic, partition)
                return ends_of(self._watching(), place, _TIMEOUT_S)[1]
            except KafkaException as error:
                message = f"the end of {topic}/{partition} could not be read: {error}"
                raise BrokerError(message, retryable=True) from error

    def bookmarks(self, partitions: Collection[int]) -> dict[int, Bookmark | None]:
        """Return what stands beside the committed offsets; None where no bookmark does.

        What an open transaction is about to commit is not waited for: its owner may be dead.

        Raises: BrokerError.
        """
        wanted = [TopicPartition(TURNS, each) for each in partitions]
        with self._watcher_lock:
            try:
                found = places_of(self._watching(), wanted, _TIMEOUT_S)
            except KafkaException as error:
                message = f"offsets of {TURNS} {sorted(partitions)} could not be read: {error}"
                raise BrokerError(message, retryable=True) from error
        return {each.partition: parse_bookmark(each.metadata) for each in found}

    def close(self) -> None:
        """Let go of the connections; what is being loaded ends soon."""
        self._closing.set()
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
        with self._watcher_lock:
            if self._watcher is not None:
                self._watcher.close()
                self._watcher = None

    def _watching(self) -> Consumer:
        if self._watcher is None:
            self._watcher = make_consumer(
                self._settings, group_id=GROUP, isolation="read_uncommitted"
            )
        return self._watcher

    def _ready(self) -> Consumer:
        if self._reader is None:
            self._reader = make_consumer(
                self._settings,
                group_id=GROUP,
                enable_partition_eof=True,
                fetch_wait_max_ms=50,
            )
            # The first fetch of a topic that is new to the client waits for a timer otherwise.
            self._reader.list_topics(timeout=_TIMEOUT_S)
        return self._reader

    def _load(self, producers: Mapping[int, TransactionalProducer]) -> dict[int, Taken]:
        reader = self._ready()
        starts: dict[int, tuple[int, Bookmark]] = {}
        for found in self._committed(reader, producers):
            starts[found.partition] = self._start(reader, found)
        since = self._since(reader, starts)
        memories = {
            each: Memory(
                committed, fence=bookmark.fence, kept_max=self._kept_max, since_ms=since[each]
            )
            for each, (committed, bookmark) in starts.items()
        }
        begins = self._records_from(reader, since)
        begins |= {(CLAIMS, each): mark.claims_offset for each, (_, mark) in starts.items()}
        ends = self._read(
            reader, begins, lambda message: self._fold(memories[message.partition()], message)
        )
        return {
            each: Taken(
                producers[each],
                Loaded(
                    each,
                    committed,
                    memories[each],
                    claims_from=bookmark.claims_offset,
                    claims_end=ends[CLAIMS, each],
                    yields=bookmark.yields_ms is not None,
                ),
                {place: ends[place] for place in ((JOBS, each), (SESSIONS, each))},
            )
            for each, (committed, bookmark) in starts.items()
        }

    def _committed(
        self, reader: Consumer, producers: Mapping[int, TransactionalProducer]
    ) -> list[TopicPartition]:
        """Return the committed offsets; those that no transaction will ever settle are let go."""
        wanted = [TopicPartition(TURNS, each) for each in producers]
        patience_s = self._settings.transaction_timeout_ms / 1_000 * _PATIENCE_FACTOR
        try:
            return places_of(reader, wanted, patience_s)
        except KafkaException as error:
            extra = {"stage": "turns", "partitions": sorted(producers), "reason": str(error)}
            _LOG.warning("offsets_unsettled", extra=extra)
        metadata = reader.consumer_group_metadata()
        for each, producer in producers.items():
            producer.end_stray_offsets_at(TURNS, each, metadata)
        return places_of(reader, [TopicPartition(TURNS, each) for each in producers], _TIMEOUT_S)

    def _start(self, reader: Consumer, found: TopicPartition) -> tuple[int, Bookmark]:
        """Return where turns and claims begin."""
        low, high = ends_of(reader, TopicPartition(TURNS, found.partition), _TIMEOUT_S)
        if found.offset is None or found.offset < 0:
            return low, Bookmark(0, 0)
        committed = found.offset
        if committed > high:
            raise TopologyError(
                f"{TURNS}/{found.partition} ends at offset {high}, but turns up to {committed} are "
                "done with: the topic was cut or made anew",
                remedy="restore it; or, to begin with nothing, delete the offsets of group "
                f"{GROUP} and make {CLAIMS} anew as well",
            )
        if committed < low:
            extra = {"partition": found.partition, "position": committed, "first_offset": low}
            reason = "turns were removed before they were run: retention is too short for the wait"
            _LOG.error("turns_removed", extra={**extra, "reason": reason})
        bookmark = parse_bookmark(found.metadata) or Bookmark(0, 0)
        return max(committed, low), bookmark

    def _since(
        self, reader: Consumer, starts: Mapping[int, tuple[int, Bookmark]]
    ) -> dict[int, int]:
        """Return from when on the records of each partition are loaded; 0 for all of them.

        A record is written before its turn: what open turns need is as old as the first of them,
        if it is not older, and looked up then.  Without a bookmark records may know a higher fence.
        """
        now_ms = time.time_ns() // 1_000_000
        since = {each: now_ms if mark.fence else 0 for each, (_, mark) in starts.items()}
        first: dict[int, int] = {}

        def take(message: Any) -> None:  # noqa: ANN401 - of the C client
            first.setdefault(message.partition(), message.timestamp()[1])

        begins = {(TURNS, each): starts[each][0] for each in since if since[each]}
        self._read(reader, begins, take, first=True)
        earliest = {each: min(since[each], found) for each, found in first.items()}
        return since | {each: max(1, found) for each, found in earliest.items()}

    def _records_from(self, reader: Consumer, since: Mapping[int, int]) -> dict[Place, int]:
        """Return where records of goals, tasks and sessions are to be loaded from."""
        begins = {(topic, each): 0 for topic in (JOBS, SESSIONS) for each in since}
        asked = [
            TopicPartition(*place, max(1, since[place[1]] - _EARLIER_MS))
            for place in begins
            if since[place[1]]
        ]
        for found in reader.offsets_for_times(asked, timeout=_TIMEOUT_S) if asked else ():
            if found.error is not None:
                raise KafkaException(found.error)
            begins[found.topic, found.partition] = found.offset
        for (topic, each), offset in begins.items():
            if offset < 0:  # nothing is that young
                place = TopicPartition(topic, each)
                begins[topic, each] = ends_of(reader, place, _TIMEOUT_S)[1]
        return begins

    def _read(
        self,
        reader: Consumer,
        begins: Mapping[Place, int],
        take: Callable[[Any], None],
        *,
        first: bool = False,
    ) -> dict[Place, int]:
        """Hand over records up to the stable ends, and return these.

        Args: first: whether one record of each is enough; ends are not meant then.
        """
        ends: dict[Place, int] = {}
        reader.assign([TopicPartition(*place, offset) for place, offset in begins.items()])
        heard_s = time.monotonic()
        try:
            while len(ends) < len(begins):
                found: list[Any] = reader.consume(_CONSUME, _CONSUME_S)
                heard_s = time.monotonic() if found else heard_s
                if self._closing.is_set() or time.monotonic() - heard_s > _TIMEOUT_S:
                    raise BrokerError(f"{TURNS}: the owner's records did not come", retryable=True)
                for message in found:
                    error, place = message.error(), (message.topic(), message.partition())
                    if error is None:
                        take(message)
                        if first:
                            ends[place] = message.offset()
                    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
                        ends[place] = message.offset()
                    elif not error.retriable() and error.code() not in PASSING:
                        raise KafkaException(error)
            return ends
        finally:
            reader.unassign()

    def _fold(self, memory: Memory, message: Any) -> None:  # noqa: ANN401 - of the C client
        key: bytes = message.key() or b""
        value: bytes | None = message.value()
        text = key.decode(errors="replace")
        if value is None:
            memory.fold("", text, None)
            return
        try:
            kind, found = self._codec.decode(value)
        except DecodeError as error:
            at = f"{message.topic()}/{message.partition()}/{message.offset()}"
            extra = {"position": at, "reason": str(error)}
            _LOG.warning("turn_record_unreadable", extra=extra)
            return
        memory.fold(kind, text, found)
