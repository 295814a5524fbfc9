"""What an operator asks for in bulk: on the record first, then request by request, at a given rate.

Every operation has one `trigger_operation_audit` record, a dry run too; it is acknowledged before
the first request is sent, and each request names it.  A command that was interrupted can be given
again: its requests are words that repeating does not change, or are known again by what they name.

Source: SEMANTICS 2.5.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from streams.codec import Codec
from streams.core.record import Position
from streams.edge.ingest.trace import new_uuid
from streams.edge.publisher import Publisher
from streams.errors import BrokerError
from streams.settings import Settings
from topology import TOPOLOGY

__all__ = ["AUDIT", "Rate", "Request", "new_audit_id", "operate"]

AUDIT = "trigger.operations.audit"

_UNACKED_MAX = 500  # bounds what waits in memory, and is enough to keep the broker busy
_RATE = re.compile(r"(\d{1,6})/(s|m)")
_SECONDS = {"s": 1, "m": 60}


class Rate(NamedTuple):
    """So many requests in so many seconds, at most."""

    count: int
    seconds: int

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Read `10/s` or `100/m`; ValueError says what was expected."""
        found = _RATE.fullmatch(text.strip())
        if found is None or int(found[1]) == 0:
            message = f"{text!r}, expected requests a second or a minute, such as 10/s or 100/m"
            raise ValueError(message)
        return cls(int(found[1]), _SECONDS[found[2]])

    def __str__(self) -> str:
        """Spell it as a command does."""
        unit = next(name for name, seconds in _SECONDS.items() if seconds == self.seconds)
        return f"{self.count}/{unit}"

    @property
    def interval_s(self) -> float:
        """Return the time from one request to the next, seconds."""
        return self.seconds / self.count


class Request(NamedTuple):
    """One record to append."""

    topic: str
    kind: str
    key: str
    value: Mapping[str, Any]
    partition: int | None = None
    headers: tuple[tuple[str, str], ...] = ()


def new_audit_id() -> str:
    """Return the id of an operation's audit record."""
    return f"trigger_audit_{new_uuid()}"


async def operate(
    settings: Settings,
    codec: Codec,
    audit: Mapping[str, Any],
    requests: Iterable[Request],
    rate: Rate | None = None,
    *,
    remedy: str = "give the command again",
) -> int:
    """Append the audit record, then the requests in order; return how many.

    Args:    remedy: how to go on when not all were taken.
    Raises:  BrokerError that says how many were taken, when the broker does not take one.
    """
    publisher = Publisher(settings, name="operator")
    await publisher.start()
    try:
        record = Request(AUDIT, "trigger_operation_audit", audit["audit_id"], audit)
        await _append(publisher, codec, record)
        return await _send(publisher, codec, iter(requests), rate, remedy)
    finally:
        await publisher.stop()


async def _send(
    publisher: Publisher,
    codec: Codec,
    requests: Iterable[Request],
    rate: Rate | None,
    remedy: str,
) -> int:
    taken = 0
    remaining = iter(requests)
    chunk_max = _UNACKED_MAX if rate is None else 1
    loop = asyncio.get_running_loop()
    next_s = loop.time()
    while chunk := list(islice(remaining, chunk_max)):
        if rate is not None:
            await asyncio.sleep(next_s - loop.time())
            next_s = max(next_s, loop.time()) + rate.interval_s
        appends = [_append(publisher, codec, request) for request in chunk]
        for answer in await asyncio.gather(*appends, return_exceptions=True):
            if isinstance(answer, BrokerError):
                message = f"{taken} requests were taken, then: {answer}"
                raise BrokerError(message, retryable=answer.retryable, remedy=remedy) from answer
            if isinstance(answer, BaseException):
                raise answer
            taken += 1
    return taken


def _append(publisher: Publisher, codec: Codec, request: Request) -> asyncio.Future[Position]:
    schema = TOPOLOGY.kinds[request.topic, request.kind]
    return publisher.append_soon(
        request.topic,
        kind=request.kind,
        value=codec.encode(schema, request.value),
        key=request.key.encode(),
        headers=[(name, text.encode()) for name, text in request.headers],
        partition=request.partition,
    )
