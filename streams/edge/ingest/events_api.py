"""`POST /v1/events`: take one event or a batch, and answer once the broker has all of it.

| answer | means |
|---|---|
| 202 | every event is in the log; the positions are given |
| 400 | nothing was appended; every problem is named |
| 413, 415 | nothing was appended: too large, or no JSON |
| 503 | the broker did not take everything; each event's fate is listed |

An event whose append failed may still have reached the log.  Whoever sends it again with the `id`
that was answered, or with the same dedupe key, is taken once.

Source: DESIGN "Roles", ingest; law 9.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from aiohttp import web

from streams.core.record import Position
from streams.core.wire import TriggerEvent
from streams.edge.ingest.body import Body, MalformedBody, parse_body
from streams.edge.ingest.envelopes import Envelopes
from streams.edge.ingest.events import EventRequest, normalize
from streams.edge.ingest.trace import begin_trace, continue_trace
from streams.errors import BrokerError

__all__ = ["EventsApi", "IngestObserver", "json_response"]

_LOG = logging.getLogger("harn.ingest")

_BODY_S = 10.0
_RETRY_AFTER_S = "1"

_encode = msgspec.json.Encoder().encode


class IngestObserver(Protocol):
    """What metrics want to know of ingest."""

    def answered(self, status: int, events: int, seconds: float) -> None:
        """Note that a request with `events` events was answered after `seconds`."""
        ...


class _Refused(Exception):  # noqa: N818 - an answer on its way out
    def __init__(self, status: int, problems: Sequence[str]) -> None:
        super().__init__(status)
        self.status = status
        self.problems = problems


def json_response(status: int, value: Any, **headers: str) -> web.Response:  # noqa: ANN401
    """Return a JSON answer; `headers` are spelled with `_` for `-`."""
    return web.Response(
        status=status,
        body=_encode(value),
        content_type="application/json",
        headers={name.replace("_", "-"): text for name, text in headers.items()},
    )


class EventsApi:
    """Answers `POST /v1/events`.

    Args:    body_bytes_max: largest body, also after decompression.
             in_flight_max: requests being answered at once; beyond it the answer is 503.
    """

    def __init__(
        self,
        envelopes: Envelopes,
        *,
        body_bytes_max: int,
        in_flight_max: int,
        observer: IngestObserver | None = None,
    ) -> None:
        self._envelopes = envelopes
        self._body_bytes_max = body_bytes_max
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        self._observer = observer

    @property
    def in_flight(self) -> int:
        """How many requests are being answered."""
        return self._in_flight

    async def post(self, request: web.Request) -> web.Response:
        """Answer one request; raises nothing that the sender caused."""
        began_s = time.perf_counter()
        events = 0
        if self._in_flight >= self._in_flight_max:
            busy = {"error": f"{self._in_flight} requests are being answered, try again"}
            response = json_response(503, busy, Retry_After=_RETRY_AFTER_S)
        else:
            self._in_flight += 1
            try:
                body = self._parse(request, await self._read(request))
                events = len(body.events)
                response = await self._append(request, body)
            except _Refused as refused:
                response = _refusal(refused)
            finally:
                self._in_flight -= 1
        if self._observer is not None:
            self._observer.answered(response.status, events, time.perf_counter() - began_s)
        return response

    async def _read(self, request: web.Request) -> bytes:
        if request.content_type != "application/json" and not request.content_type.endswith(
            "+json"
        ):
            found = f"Content-Type is {request.content_type}, expected application/json"
            raise _Refused(415, [found])
        if (request.charset or "utf-8").lower().replace("-", "") != "utf8":
            raise _Refused(415, [f"charset is {request.charset}, expected utf-8"])
        too_large = f"the body is larger than {self._body_bytes_max} bytes"
        if (request.content_length or 0) > self._body_bytes_max:
            raise _Refused(413, [too_large])
        try:
            async with asyncio.timeout(_BODY_S):
                return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise _Refused(413, [too_large]) from None
        except TimeoutError:
            raise _Refused(408, [f"the body did not arrive within {_BODY_S:.0f} s"]) from None

    def _parse(self, request: web.Request, text: bytes) -> Body:
        try:
            body = parse_body(text)
        except MalformedBody as error:
            raise _Refused(400, error.problems) from error
        idempotency_key = request.headers.get("Idempotency-Key")
        if idempotency_key is None:
            return body
        if body.is_batch:
            problem = "Idempotency-Key is for a single event; give each of a batch its dedupe_key"
            raise _Refused(400, [problem])
        return Body([_with_key(body.events[0], idempotency_key)], is_batch=False)

    async def _append(self, request: web.Request, body: Body) -> web.Response:
        traceparent = request.headers.get("traceparent")
        appends: list[tuple[TriggerEvent, asyncio.Future[Position]]] = []
        for asked in body.events:
            trace = continue_trace(traceparent) or begin_trace()
            event = normalize(asked, trace)
            append = self._envelopes.append_soon(event, traceparent=trace.traceparent)
            appends.append((event, append))
        await asyncio.wait([append for _, append in appends])
        fates = [_fate(event, append.exception() or append.result()) for event, append in appends]
        failed = sum("error" in fate for fate in fates)
        if failed:
            _LOG.warning("events_not_appended", extra={"events": failed, "of": len(fates)})
        answer = {"events": fates} if body.is_batch else fates[0]
        if failed:
            return json_response(503, answer, Retry_After=_RETRY_AFTER_S)
        return json_response(202, answer)


def _fate(event: TriggerEvent, outcome: Position | BaseException) -> dict[str, str]:
    if isinstance(outcome, Position):
        return {"event_id": event["id"], "position": str(outcome)}
    assert isinstance(outcome, BrokerError), "the publisher's word is a position or a BrokerError"
    return {"event_id": event["id"], "error": str(outcome)}


def _with_key(event: EventRequest, idempotency_key: str) -> EventRequest:
    """Return the event with the header's key as its dedupe key."""
    if event.dedupe_key not in {None, idempotency_key}:
        raise _Refused(400, ["Idempotency-Key and dedupe_key differ, expected one, or both alike"])
    if not idempotency_key.isprintable() or not 1 <= len(idempotency_key) <= 1_000:
        raise _Refused(400, ["Idempotency-Key: expected 1 to 1000 printable characters"])
    return msgspec.structs.replace(event, dedupe_key=idempotency_key)


def _refusal(refused: _Refused) -> web.Response:
    error = {"error": "; ".join(refused.problems), "problems": list(refused.problems)}
    response = json_response(refused.status, error)
    if refused.status in {408, 413, 415}:
        response.force_close()  # the rest of the body is not worth reading
    return response
