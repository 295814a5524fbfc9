"""Events on their way to the inbox: the one place that writes `trigger.inbox.envelopes`.

Source: SEMANTICS 2.1; DESIGN "An event".
"""

from __future__ import annotations

import asyncio

from streams.codec import Codec
from streams.core.inbox import mailbox_key
from streams.core.record import Position
from streams.core.wire import EventIngested, TriggerEvent
from streams.edge.publisher import Publisher

__all__ = ["ENVELOPES", "Envelopes"]

ENVELOPES = "trigger.inbox.envelopes"


class Envelopes:
    """Appends events to the inbox's mailbox; repeats of one delivery meet in one partition."""

    def __init__(self, publisher: Publisher, codec: Codec) -> None:
        self._publisher = publisher
        self._encode = codec.encoder("event_ingested")

    def append_soon(
        self,
        event: TriggerEvent,
        *,
        traceparent: str,
        trigger_id: str | None = None,
        webhook_path: str | None = None,
    ) -> asyncio.Future[Position]:
        """Append one event; the future is its envelope's position once the broker has it.

        Args:    trigger_id: when set, only this trigger's newest version receives the event.
                 webhook_path: when set, only bindings of this path receive it.
        Returns: a future that fails with BrokerError, as `Publisher.append_soon` says.
        """
        envelope: EventIngested = {
            "trigger_id": trigger_id,
            "binding_version": None,
            "replay_of_event_id": None,
            "webhook_path": webhook_path,
            "dlq_entry_id": None,
            "event": event,
        }
        headers = [("traceparent", traceparent.encode())]
        if event["tenant_id"] is not None:
            headers.append(("tenant_id", event["tenant_id"].encode()))
        return self._publisher.append_soon(
            ENVELOPES,
            kind="event_ingested",
            value=self._encode(envelope),
            key=mailbox_key(event, webhook_path=webhook_path).encode(),
            headers=headers,
        )
