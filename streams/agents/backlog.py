"""Measures what lies before the invokers: their topic, their group's offsets, their number."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from streams.agents.pump_book import Sample
from streams.errors import BrokerError
from streams.kafka import make_admin, make_asker, places_of
from streams.settings import Settings
from topology.edges import INVOKER

__all__ = ["Backlog", "KafkaBacklog", "answered"]

_Answer = TypeVar("_Answer")

_TIMEOUT_S = 5.0
# The client gives an answer after its timeout, unless it has lost the request (its issue 5397).
_LOST_S = 2 * _TIMEOUT_S
# Members come and go with rebalances, which take longer than this.
_MEMBERS_EVERY_S = 2.0


class Backlog(Protocol):
    """What measures; called on the pump's thread."""

    def measure(self) -> Sample:
        """Return how things stand.  Raises BrokerError."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class KafkaBacklog:
    """Asks the cluster.

    Args:    partitions: of the invokers' topic.  topic, group: for tests.
    """

    def __init__(
        self,
        settings: Settings,
        partitions: int,
        *,
        topic: str = INVOKER.reads_in_group[0],
        group: str = INVOKER.group,
    ) -> None:
        self._settings = settings
        self._group = group
        self._places = [TopicPartition(topic, each) for each in range(partitions)]
        self._admin: AdminClient | None = None
        self._asker: Consumer | None = None
        self._invokers = 0
        self._counted_s: float | None = None

    def measure(self) -> Sample:
        """Return how things stand.  Raises BrokerError."""
        if self._admin is None:
            self._admin = make_admin(self._settings)
        if self._asker is None:
            self._asker = make_asker(self._settings, self._group, stable=False)
        try:
            committed = self._committed(self._asker)
            ends = self._offsets(self._admin, OffsetSpec.latest())
            new = [each for each in ends if each not in committed]
            if new:
                first = self._offsets(self._admin, OffsetSpec.earliest())
                committed |= {each: first[each] for each in new}
            invokers = self._count(self._admin)
        except TimeoutError as error:
            message = f"the backlog of {self._group}: the client gives no answer"
            raise BrokerError(message, retryable=True) from error
        except KafkaException as error:
            reason = error.args[0].str()
            raise BrokerError(f"the backlog of {self._group}: {reason}", retryable=True) from error
        return Sample(0.0, ends, committed, invokers)

    def close(self) -> None:
        """Let go of connections; a later measurement makes them anew."""
        if self._asker is not None:
            self._asker.close()
        self._admin = self._asker = None

    def _committed(self, asker: Consumer) -> dict[int, int]:
        found = places_of(asker, self._places, _TIMEOUT_S)
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def _offsets(self, admin: AdminClient, where: OffsetSpec | None) -> dict[int, int]:
        request: Mapping[Any, Any] = dict.fromkeys(self._places, where)
        asked = admin.list_offsets(
            dict(request),
            # What an open transaction has written is not before the invokers yet.
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_TIMEOUT_S,
        )
        return {place.partition: answered(answer).offset for place, answer in asked.items()}

    def _count(self, admin: AdminClient) -> int:
        now_s = time.monotonic()
        if self._counted_s is None or now_s - self._counted_s >= _MEMBERS_EVERY_S:
            asked = admin.describe_consumer_groups([self._group], request_timeout=_TIMEOUT_S)
            self._invokers = len(answered(asked[self._group]).members or [])
            self._counted_s = now_s
        return self._invokers


def answered(asked: Future[_Answer], lost_s: float = _LOST_S) -> _Answer:
    """Wait for what an admin client answers.

    Raises: KafkaException; TimeoutError when it does not say anything for `lost_s`.
    """
    return asked.result(lost_s)
