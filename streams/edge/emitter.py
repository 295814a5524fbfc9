"""Send events from a command: append each, and say where it is once the broker has it.

Source: SEMANTICS 2.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import NamedTuple

from streams.codec import Codec
from streams.core.record import Position
from streams.edge.ingest.envelopes import Envelopes
from streams.edge.ingest.events import EventRequest, normalize
from streams.edge.ingest.trace import begin_trace
from streams.edge.publisher import Publisher
from streams.errors import BrokerError
from streams.settings import Settings

__all__ = ["Emission", "emit"]

_UNACKED_MAX = 1_000  # bounds what waits in memory, and is enough to keep the broker busy


class Emission(NamedTuple):
    """One event that was sent: its id, and its envelope's position or why there is none."""

    event_id: str
    outcome: Position | BrokerError


async def emit(
    settings: Settings,
    codec: Codec,
    requests: Iterable[EventRequest],
    *,
    trigger_id: str | None = None,
) -> AsyncIterator[Emission]:
    """Send events in order; yields each one's fate in that order.

    Args:    trigger_id: when set, only this trigger receives them.
    Raises:  BrokerError when no broker answers at all.
    """
    publisher = Publisher(settings, name="emitter")
    await publisher.start()
    try:
        envelopes = Envelopes(publisher, codec)
        remaining = iter(requests)
        while chunk := list(islice(remaining, _UNACKED_MAX)):
            sent = [_send(envelopes, request, trigger_id) for request in chunk]
            for event_id, append in sent:
                try:
                    yield Emission(event_id, await append)
                except BrokerError as error:
                    yield Emission(event_id, error)
    finally:
        await publisher.stop()


def _send(
    envelopes: Envelopes, request: EventRequest, trigger_id: str | None
) -> tuple[str, asyncio.Future[Position]]:
    trace = begin_trace()
    event = normalize(request, trace)
    append = envelopes.append_soon(event, traceparent=trace.traceparent, trigger_id=trigger_id)
    return event["id"], append
