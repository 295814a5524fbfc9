"""Adding partitions to the topics of turns, in an order that keeps that of every session.

    nothing in flight ─▸ topics of records grow ─▸ it is noticed ─▸ records move ─▸ turns grow

With more partitions sessions live elsewhere: a turn must not be enqueued there while an earlier one
of its session may run where it lived before.  So nothing may be in flight: every turn has ended and
the group has no member.  `agent_turns` grows last.  From the first step to the last the topics do
not fit each other, so no worker and no API starts, with the old number or the new one; an API that
runs notices within COUNT_EVERY_S, and answers 503.

A goal, task or session moves in one transaction: it is written where it belongs now, and forgotten
where it was.  So whatever is found in a partition where it does not belong is still to be moved,
which is all that a growth that was cut off needs to know when it goes on.

A turn that was enqueued between the first look and the moment when everybody has noticed would find
no record where it stands.  Its goal or task fails, durably, with the reason.

Source: DESIGN "Partitions", "A turn".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

from streams.agents.backlog import KafkaBacklog
from streams.agents.transaction import Faults, TransactionalProducer, no_faults
from streams.codec import Codec, DecodeError
from streams.core.record import Position
from streams.core.turn.claim import ENDED
from streams.core.turn.envelope import EnvelopeError
from streams.core.turn.partition_key import partition_of_session
from streams.core.turn.record import NOT_ENQUEUED, ended_goal, ended_job, goal_key, job_key
from streams.core.turn.words import CLAIMS, DEAD_LETTERS, JOBS, SESSIONS, TURNS
from streams.edge.topic_reader import ReadRecord, TopicReader
from streams.edge.turns.kafka.layout import counts_of
from streams.edge.turns.kafka.membership import GROUP
from streams.edge.turns.kafka.taking import transactional_id
from streams.edge.turns.kafka_wish import WISH
from streams.edge.turns.turn_codec import decode_turn
from streams.edge.turns.turn_view import COUNT_EVERY_S
from streams.engine import EncodedOutput
from streams.errors import BrokerError, TopologyError
from streams.observe import logs
from streams.provision import grow_topics
from streams.settings import Settings

__all__ = ["NOTICE_S", "Grown", "Growth", "problems_of"]

_LOG = logs.logger(__name__)

NOTICE_S = 3 * COUNT_EVERY_S
"""How long whoever enqueues has to notice that partitions were added."""

_KINDS = {SESSIONS: ("agent_session", WISH), JOBS: ("agent_goal", "agent_job")}
"""What is moved; anything else that stands there is nobody's."""

_BATCH = 500
_READ_S = 1.0
_SILENCE_S = 30.0
_FENCES_AT_ONCE = 16
_TOO_LATE = f"{NOT_ENQUEUED}partitions were being added meanwhile; ask for it again"


class Flight(NamedTuple):
    """What was found before anything is moved; offsets are of `agent_turns` by partition."""

    members: int
    ends: Mapping[int, int]
    committed: Mapping[int, int]

    @property
    def waiting(self) -> list[int]:
        """How many turns of each partition have not ended."""
        return [max(0, self.ends[each] - self.committed[each]) for each in sorted(self.ends)]


@dataclass(slots=True)
class Grown:
    """What a growth came to: counts of partitions, and of records that it moved."""

    before: int
    after: int
    sessions: int = 0
    jobs: int = 0
    failed: int = 0
    unreadable: int = 0


def problems_of(counts: Mapping[str, int], wanted: int, flight: Flight) -> list[str]:
    """Return everything that stands in the way of a growth to `wanted` partitions.

    Turns that have not ended do not, when a growth is under way: no worker would run them before it
    is over.

    Args: counts: of `agent_turns` and of each topic that shares its partitions; 0 is missing.
    """
    problems = [
        f"topic {name} is missing"
        if not count
        else f"{name} has {count} partitions, {wanted} would be fewer"
        for name, count in counts.items()
        if not 0 < count <= wanted
    ]
    if flight.members:
        problems.append(f"the group {GROUP} has {flight.members} members, expected none")
    is_under_way = len(set(counts.values())) > 1
    for partition, waiting in enumerate(flight.waiting) if not is_under_way else ():
        if waiting:
            problems.append(f"{TURNS}/{partition} has {waiting} turns that have not ended")
    return problems


class Growth:
    """One growth to the partitions that `settings` say.

    Args: notice_s: see NOTICE_S.  wait: waits for so many seconds.  batch: records of one
          transaction.  faults: see `TransactionalProducer`.
    """

    def __init__(
        self,
        settings: Settings,
        codec: Codec,
        *,
        notice_s: float = NOTICE_S,
        wait: Callable[[float], object] = time.sleep,
        batch: int = _BATCH,
        faults: Faults = no_faults,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._notice_s = notice_s
        self._wait = wait
        self._batch = batch
        self._faults = faults
        self._now_ms = now_ms
        self._wanted = settings.agent_turns_partitions

    def run(self) -> Grown | None:
        """Grow; None when there is nothing to do.

        Raises: TopologyError, with everything that is in the way; BrokerError.  Run it again, and
                it goes on.
        """
        counts = counts_of(self._settings)
        if set(counts.values()) == {self._wanted}:
            return None
        before = counts[TURNS]
        flight = self._flight(before) if all(counts.values()) else Flight(0, {}, {})
        self._refuse(problems_of(counts, self._wanted, flight))
        grow_topics(self._settings, (SESSIONS, JOBS, CLAIMS, DEAD_LETTERS))
        self._wait(self._notice_s)
        flight = self._flight(before)
        self._refuse(problems_of(counts_of(self._settings), self._wanted, flight))
        grown = Grown(before, self._wanted)
        self._fence(before)
        producer = TransactionalProducer(self._settings, f"{GROUP}-growth", self._faults)
        producer.fence()
        late = self._late(flight)
        for topic in (SESSIONS, JOBS):
            for partition in range(self._wanted):
                self._move(producer, topic, partition, late, grown)
        grow_topics(self._settings, (TURNS,))
        return grown

    def _refuse(self, problems: list[str]) -> None:
        if problems:
            raise TopologyError(
                problems,
                remedy="stop whatever enqueues, let the workers finish and stop them too, then run "
                "it again",
            )

    def _flight(self, partitions: int) -> Flight:
        with closing(KafkaBacklog(self._settings, partitions, topic=TURNS, group=GROUP)) as backlog:
            sample = backlog.measure()
        return Flight(sample.invokers, sample.ends, sample.committed)

    def _fence(self, partitions: int) -> None:
        """End what owners left open: one that stands still writes nothing any more."""

        def fence(partition: int) -> None:
            TransactionalProducer(self._settings, transactional_id(partition)).fence()

        with ThreadPoolExecutor(_FENCES_AT_ONCE) as pool:
            list(pool.map(fence, range(partitions)))

    def _late(self, flight: Flight) -> frozenset[bytes]:
        """Return the keys of goals and tasks whose turns no worker will find them for."""
        found: set[bytes] = set()
        for partition, waiting in enumerate(flight.waiting):
            begin = flight.committed[partition]
            for record in self._read(TURNS, partition, begin) if waiting else ():
                at = Position(TURNS, partition, record.offset)
                try:
                    envelope = decode_turn(self._codec, record.value, at, record.timestamp)
                except EnvelopeError:
                    continue  # its worker buries it
                if partition_of_session(envelope.session_id, self._wanted) != partition:
                    key_of = goal_key if envelope.kind == "goal_loop" else job_key
                    found.add(key_of(envelope.payload_ref).encode())
        return frozenset(found)

    def _move(
        self,
        producer: TransactionalProducer,
        topic: str,
        partition: int,
        late: frozenset[bytes],
        grown: Grown,
    ) -> None:
        """Move what does not belong into a partition; memory holds its keys, and one batch."""
        last = {record.key: record.offset for record in self._read(topic, partition, 0)}
        batch: list[EncodedOutput] = []
        for record in self._read(topic, partition, 0):
            key, value = record.key, record.value
            if key is None or value is None or record.offset < last.get(key, 0):
                continue
            batch += self._moved(topic, record, key, value, late=late, grown=grown)
            if len(batch) >= self._batch:
                producer.commit_alone(f"of {topic}/{partition}", batch)
                batch = []
        if batch:
            producer.commit_alone(f"of {topic}/{partition}", batch)

    def _moved(
        self,
        topic: str,
        record: ReadRecord,
        key: bytes,
        value: bytes,
        *,
        late: frozenset[bytes],
        grown: Grown,
    ) -> list[EncodedOutput]:
        """Return what moves a record: itself elsewhere, and nothing any more here."""
        try:
            kind, found = self._codec.decode(value)
            problem = None if kind in _KINDS[topic] else f"it is a {kind}"
        except DecodeError as error:
            kind, found, problem = "", {}, str(error)
        if problem is not None:
            grown.unreadable += 1
            extra = {"position": f"{topic}/{record.partition}/{record.offset}"}
            _LOG.warning("turn_record_unreadable", extra={**extra, "reason": problem})
            return []
        home = partition_of_session(found["session_id"], self._wanted)
        outputs: list[EncodedOutput] = []
        if home != record.partition:
            outputs = [EncodedOutput(topic, record.partition, key, None, [])]
            grown.jobs += topic == JOBS
            grown.sessions += topic == SESSIONS
        if topic == JOBS and key in late and found["status"] not in ENDED:
            grown.failed += 1
            value = self._codec.encode(kind, self._failed(kind, found))
        elif not outputs:
            return []
        return [EncodedOutput(topic, home, key, value, record.headers), *outputs]

    def _failed(self, kind: str, found: Any) -> Any:  # noqa: ANN401 - a goal or a task
        ended = ended_goal if kind == "agent_goal" else ended_job
        return ended(found, "failed", executed_by="", error=_TOO_LATE, now_ms=self._now_ms())

    def _read(self, topic: str, partition: int, begin: int) -> Iterator[ReadRecord]:
        """Yield what is committed, up to the end as it is now.  Raises BrokerError."""
        with TopicReader(self._settings, topic) as reader:
            _, end = reader.watermarks(partition)
            reader.start_at({partition: begin})
            heard_s = time.monotonic()
            while not reader.at_end:
                found = reader.read(_READ_S)
                yield from (record for record in found if record.offset < end)
                if found:
                    heard_s = time.monotonic()
                elif time.monotonic() - heard_s > _SILENCE_S:
                    message = f"{topic}/{partition} could not be read: no answer from the broker"
                    raise BrokerError(message, retryable=True)
