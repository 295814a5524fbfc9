"""What the pump tells the log: pauses, and now and then how far it has come.

| kind | when |
|---|---|
| `pump_paused` | inbox has been held back for a second, to the pace of the invokers |
| `pump_resumed` | they have caught up |
| `pump_acked` | every ten seconds in which records went on |

They are written as they come, without a transaction: nothing is decided by them.

Source: SEMANTICS 2.2; ADR 12.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Mapping

from confluent_kafka import KafkaException, Producer

from streams.agents.pump_book import Standing
from streams.codec import Codec
from streams.core.wire import PumpReported
from streams.errors import BrokerError
from streams.kafka import make_producer
from streams.observe import logs
from streams.settings import Settings
from topology.topics import LIFECYCLE

__all__ = ["PumpReports"]

_LOG = logs.logger(__name__)

_WAITING_MAX = 100
_FLUSH_S = 2.0


class PumpReports:
    """Reports of one member; made on the event loop, sent on the pump's thread."""

    def __init__(self, settings: Settings, codec: Codec, topic: str) -> None:
        self._settings = settings
        self._encode = codec.encoder("pump_reported")
        self._topic = topic
        self._member = f"{socket.gethostname()}-{os.getpid()}"
        self._waiting: deque[tuple[str, PumpReported]] = deque(maxlen=_WAITING_MAX)
        self._producer: Producer | None = None

    def paused(self, standing: Standing) -> None:
        """Inbox is held back."""
        self._note("pump_paused", standing)

    def resumed(self, standing: Standing, paused_ms: int) -> None:
        """Inbox goes on freely."""
        self._note("pump_resumed", standing, paused_ms=paused_ms)

    def acked(self, admitted: int, next_offsets: Mapping[int, int]) -> None:
        """So many records went on; partitions have come so far."""
        self._note("pump_acked", None, admitted=admitted, next_offsets=next_offsets)

    def send(self) -> None:
        """Write what was reported; what cannot be written is dropped, and logged."""
        while self._waiting:
            kind, value = self._waiting.popleft()
            try:
                if self._producer is None:
                    self._producer = make_producer(self._settings)
                self._producer.produce(
                    LIFECYCLE,
                    self._encode(value),
                    key=self._member.encode(),
                    headers=[("kind", kind.encode())],
                )
            except (KafkaException, BufferError, BrokerError) as error:
                _LOG.warning("pump_report_lost", extra={"kind": kind, "reason": str(error)})
        if self._producer is not None:
            self._producer.poll(0)

    def close(self) -> None:
        """Write what is left."""
        self.send()
        if self._producer is not None:
            self._producer.flush(_FLUSH_S)

    def _note(
        self,
        kind: str,
        standing: Standing | None,
        *,
        paused_ms: int | None = None,
        admitted: int | None = None,
        next_offsets: Mapping[int, int] | None = None,
    ) -> None:
        value: PumpReported = {
            "topic": self._topic,
            "member": self._member,
            "outstanding": None if standing is None else standing.outstanding,
            "max_outstanding": None if standing is None else standing.limit,
            "invokers": None if standing is None else standing.invokers,
            "paused_ms": paused_ms,
            "admitted": admitted,
            "cursors": [
                {"partition": partition, "next_offset": next_offset}
                for partition, next_offset in sorted((next_offsets or {}).items())
            ],
        }
        self._waiting.append((kind, value))
