"""A partition of turns without a broker: transactions wait until the test lets them end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

from confluent_kafka import TopicPartition

from streams.agents.transaction import TransactionalProducer
from streams.codec import Codec
from streams.core.turn.bookmark import Bookmark, parse_bookmark
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.held import Loaded
from streams.core.turn.memory import Memory
from streams.core.turn.owner import Owner
from streams.core.turn.record import job_key, new_job
from streams.core.turn.words import TURNS
from streams.core.wire import TurnOutcome
from streams.edge.turns.kafka.batch_writer import BatchWriter
from streams.edge.turns.kafka.feed import Fetched
from streams.edge.turns.kafka.partition import OwnedPartition
from streams.edge.turns.kafka.partition_shelf import PartitionShelf
from streams.edge.turns.kafka.shelf_builder import ShelfBuilder
from streams.edge.turns.turn_codec import encode_turn
from streams.engine import EncodedOutput
from streams.errors import BrokerError
from streams.settings import Settings
from tests.support.eventually import eventually

CODEC = Codec()


class Transactions:
    """Takes the place of a transactional producer: what is committed, once it may be."""

    def __init__(self) -> None:
        self.kinds: list[list[str]] = []
        self.offsets: list[int] = []
        self.bookmarks: list[Bookmark | None] = []
        self.fails: BrokerError | None = None
        self.begun = 0
        self._may_end = threading.Semaphore(0)

    def commit_records(
        self,
        records: Iterable[EncodedOutput],
        place: TopicPartition,
        _group_metadata: bytes,
    ) -> None:
        kinds = [CODEC.decode(each.value)[0] for each in records if each.value is not None]
        self.begun += 1
        self._may_end.acquire()
        if self.fails is not None:
            raise self.fails
        self.kinds.append(kinds)
        assert place.offset is not None
        self.offsets.append(place.offset)
        self.bookmarks.append(parse_bookmark(place.metadata))

    def end(self, count: int = 1) -> None:
        """Let transactions end, also those that begin later."""
        self._may_end.release(count)


class Told:
    """What a partition has said."""

    def __init__(self) -> None:
        self.outcomes: list[TurnOutcome] = []
        self.broken: list[BaseException] = []
        self.changes = 0

    def ended(self, outcomes: Sequence[TurnOutcome]) -> None:
        self.outcomes += outcomes

    def broke(self, partition: OwnedPartition, error: BaseException) -> None:
        self.broken.append(error)
        partition.close()

    def changed(self) -> None:
        self.changes += 1


def owner_of(number: int, **changes: Any) -> Owner:
    loaded = Loaded(number, 0, Memory(0), claims_from=0, claims_end=0)
    return Owner(loaded, token="w", host="h", **changes)


def empty_shelf(pool: Executor) -> PartitionShelf:
    """A shelf of a partition in which nothing was before."""

    async def ask(question: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, question, *args)

    def fail(error: BaseException) -> None:
        raise error

    return PartitionShelf(CODEC, {}, ShelfBuilder(Settings()), ask=ask, fail=fail)


@contextmanager
def partition_of(
    told: Told,
    transactions: Transactions,
    *,
    number: int = 0,
    overdue_s: float = 30,
    **changes: Any,
) -> Iterator[OwnedPartition]:
    """Own a partition for the block."""
    with ThreadPoolExecutor(1) as pool:
        writer = BatchWriter(CODEC, pool, b"", lambda _topic, _partition: 0, overdue_s)
        producer = cast("TransactionalProducer", transactions)
        owner = owner_of(number, **changes)
        partition = OwnedPartition(owner, producer, writer, told, shelf=empty_shelf(pool), ticket=1)
        try:
            yield partition
        finally:
            partition.close()
            transactions.end(1_000)


def fetched(envelope: AgentTurnEnvelope | bytes, offset: int, *, number: int = 0) -> Fetched:
    value = envelope if isinstance(envelope, bytes) else encode_turn(CODEC, envelope)
    return Fetched(TURNS, number, offset, offset, None, value, [], 1)


def task_turn(partition: OwnedPartition, offset: int, **fields: Any) -> AgentTurnEnvelope:
    """A turn that is read, with its task known."""
    job_id = f"j{partition.number}-{offset}"
    known: dict[str, Any] = {
        "job_id": job_id,
        "session_id": f"s{partition.number}-{offset}",
        "kind": "orchestrator_task",
        "payload_ref": job_id,
        "enqueued_at_ms": 1,
    }
    envelope = AgentTurnEnvelope(**(known | fields))
    job = new_job(job_id, envelope.session_id, "", now_ms=1)
    partition.owner.learn("agent_job", job_key(job_id), job)
    partition.fetched(fetched(envelope, offset, number=partition.number))
    return envelope


async def is_open(transactions: Transactions, number: int = 1) -> None:
    """Wait until that many transactions have begun."""
    await eventually(lambda: transactions.begun >= number, f"transaction {number} begins")
