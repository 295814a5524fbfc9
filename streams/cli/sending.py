"""Sends events to role ingest as its page tells senders to: what was not taken is sent again.

Source: docs/events.md, "Answers".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import aiohttp

from streams.errors import BrokerError

__all__ = ["send_event"]

_BUSY = 503
_AGAIN_S = "1"  # where the answer does not say


async def send_event(
    client: aiohttp.ClientSession, url: str, event: Mapping[str, Any], *, patience_s: float
) -> str:
    """POST an event until it is in the log; return its id.

    No ack is no refusal: it is sent again under the id that the answer gave it, and taken once.

    Raises: BrokerError when the next try would come after `patience_s`; aiohttp.ClientError.
    """
    deadline_s = time.monotonic() + patience_s
    while True:
        async with client.post(url, json=event) as answer:
            if answer.status != _BUSY:
                answer.raise_for_status()
                event_id: str = (await answer.json())["event_id"]
                return event_id
            said: dict[str, Any] = await answer.json()
            again_s = float(answer.headers.get("Retry-After", _AGAIN_S))
        if time.monotonic() + again_s > deadline_s:
            raise BrokerError(
                f"{url} has not taken an event within {patience_s:g} s: {said.get('error', _BUSY)}",
                retryable=True,
            )
        if "event_id" in said:
            event = {**event, "id": said["event_id"]}
        await asyncio.sleep(again_s)
