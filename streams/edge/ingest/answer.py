"""What every route of ingest has in common: JSON answers, refusals, bodies read within bounds.

Source: DESIGN "Roles", ingest; law 9.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
from aiohttp import web

from streams.core.record import Position
from streams.core.wire import TriggerEvent
from streams.errors import BrokerError

__all__ = [
    "RETRY_AFTER_S",
    "Answered",
    "Door",
    "IngestObserver",
    "Refused",
    "fate_of",
    "json_response",
    "read_body",
]

RETRY_AFTER_S = "1"
"""Of every 503: what keeps us is expected to pass."""

_BODY_S = 10.0

_encode = msgspec.json.Encoder().encode


class IngestObserver(Protocol):
    """What metrics want to know of ingest."""

    def answered(self, status: int, events: int, seconds: float) -> None:
        """Note that a request with `events` events was answered after `seconds`."""
        ...

    def webhook_refused(self, provider: str, reason: str) -> None:
        """Note that a delivery was refused; both texts are of closed sets."""
        ...

    def webhook_taken(self, provider: str, normalized_s: float, appended_s: float) -> None:
        """Note a delivery's way: seconds from its arrival until it was an event, and in the log."""
        ...


class Answered(NamedTuple):
    """An answer, and how many events the request had as far as it was read."""

    response: web.Response
    events: int = 0


class Refused(Exception):  # noqa: N818 - an answer on its way out
    """A request is answered with `status` and these problems; nothing of it was appended."""

    def __init__(self, status: int, problems: Sequence[str], **headers: str) -> None:
        super().__init__(status)
        self.status = status
        self.problems = problems
        self.headers = headers

    def response(self) -> web.Response:
        """Return the answer."""
        error = {"error": "; ".join(self.problems), "problems": list(self.problems)}
        response = json_response(self.status, error, **self.headers)
        if self.status in {403, 404, 408, 413, 415, 431}:
            response.force_close()  # the rest of the body is not worth reading
        return response


def json_response(status: int, value: Any, **headers: str) -> web.Response:  # noqa: ANN401
    """Return a JSON answer; `headers` are spelled with `_` for `-`."""
    return web.Response(
        status=status,
        body=_encode(value),
        content_type="application/json",
        headers={name.replace("_", "-"): text for name, text in headers.items()},
    )


def fate_of(event: TriggerEvent, outcome: Position | BaseException) -> dict[str, str]:
    """Return what its sender is told of an event that was given to the publisher."""
    if isinstance(outcome, Position):
        return {"event_id": event["id"], "position": str(outcome)}
    assert isinstance(outcome, BrokerError), "the publisher's word is a position or a BrokerError"
    return {"event_id": event["id"], "error": str(outcome)}


async def read_body(request: web.Request, bytes_max: int) -> bytes:
    """Read a request's body, decompressed.  Raises Refused: 400, 413 or 408."""
    too_large = f"the body is larger than {bytes_max} bytes"
    if (request.content_length or 0) > bytes_max:
        raise Refused(413, [too_large])
    try:
        async with asyncio.timeout(_BODY_S):
            body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise Refused(413, [too_large]) from None
    except web.RequestPayloadError as error:
        # What follows of it means nothing, and would raise once more when it is passed over.
        request.content.feed_eof()
        encoding = request.headers.get("Content-Encoding", "identity")
        problem = f"the body cannot be read, with Content-Encoding {encoding}: {_words(error)}"
        raise Refused(400, [problem], Connection="close") from None
    except TimeoutError:
        raise Refused(408, [f"the body did not arrive within {_BODY_S:.0f} s"]) from None
    if len(body) > bytes_max:
        raise Refused(413, [too_large])
    return body


def _words(error: web.RequestPayloadError) -> str:
    """Return what aiohttp says in one line."""
    return " ".join(str(error).removeprefix("400, message:").split())


class Door:
    """Lets so many requests in at once, and tells metrics what each was answered.

    Args:    in_flight_max: requests being answered at once; beyond it the answer is 503.
    """

    def __init__(self, *, in_flight_max: int, observer: IngestObserver | None = None) -> None:
        self._in_flight_max = in_flight_max
        self._observer = observer
        self.in_flight = 0

    async def answer(self, respond: Callable[[], Awaitable[Answered]]) -> web.Response:
        """Answer one request; raises nothing that its sender caused."""
        began_s = time.perf_counter()
        answered = Answered(self._busy()) if self.in_flight >= self._in_flight_max else None
        if answered is None:
            self.in_flight += 1
            try:
                answered = await respond()
            except Refused as refused:
                answered = Answered(refused.response())
            finally:
                self.in_flight -= 1
        if self._observer is not None:
            status, seconds = answered.response.status, time.perf_counter() - began_s
            self._observer.answered(status, answered.events, seconds)
        return answered.response

    def _busy(self) -> web.Response:
        busy = {"error": f"{self.in_flight} requests are being answered, try again"}
        return json_response(503, busy, Retry_After=RETRY_AFTER_S)
