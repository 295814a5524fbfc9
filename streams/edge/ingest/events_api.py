"""`POST /v1/events`: take one event or a batch, and answer once the broker has all of it.

Events are spelled in our own way, or as CloudEvents.

| answer | means |
|---|---|
| 202 | every event is in the log; the positions are given |
| 400 | nothing was appended; every problem is named |
| 403, 413, 415 | nothing was appended: a web page's, too large, or no JSON |
| 503 | the broker did not take everything; each event's fate is listed |

An event whose append failed may still have reached the log.  Whoever sends it again with the `id`
that was answered, or with the same dedupe key, is taken once.

Source: DESIGN "Roles", ingest; law 9.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import msgspec
from aiohttp import web

from streams.core.record import Position
from streams.core.wire import TriggerEvent
from streams.edge.ingest.answer import (
    RETRY_AFTER_S,
    Answered,
    Door,
    Refused,
    fate_of,
    json_response,
    read_body,
)
from streams.edge.ingest.body import Body, MalformedBody, parse_body
from streams.edge.ingest.cloud_events import (
    BATCH,
    STRUCTURED,
    is_binary,
    parse_binary,
    parse_structured,
)
from streams.edge.ingest.envelopes import Envelopes
from streams.edge.ingest.events import EventRequest, normalize
from streams.edge.ingest.media_type import media_type
from streams.edge.ingest.origins import Origins
from streams.edge.ingest.trace import begin_trace, continue_trace

__all__ = ["EventsApi"]

_LOG = logging.getLogger("harn.ingest")


class EventsApi:
    """Answers `POST /v1/events`.

    Args:    body_bytes_max: largest body, also after decompression.
    """

    def __init__(
        self, envelopes: Envelopes, door: Door, origins: Origins, *, body_bytes_max: int
    ) -> None:
        self._envelopes = envelopes
        self._door = door
        self._origins = origins
        self._body_bytes_max = body_bytes_max

    async def post(self, request: web.Request) -> web.Response:
        """Answer one request; raises nothing that the sender caused."""
        return await self._door.answer(partial(self._respond, request))

    async def options(self, request: web.Request) -> web.Response:
        """Answer a browser's preflight."""
        return await self._door.answer(partial(self._preflight, request))

    async def _preflight(self, request: web.Request) -> Answered:
        return Answered(self._origins.preflight(request))

    async def _respond(self, request: web.Request) -> Answered:
        self._origins.check(request)
        body = _parse(request, await self._read(request))
        response = await self._append(request, body)
        self._origins.mark(request, response)
        return Answered(response, len(body.events))

    async def _read(self, request: web.Request) -> bytes:
        if not is_binary(request.headers):
            _check_type(request)
        return await read_body(request, self._body_bytes_max)

    async def _append(self, request: web.Request, body: Body) -> web.Response:
        traceparent = request.headers.get("traceparent")
        appends: list[tuple[TriggerEvent, asyncio.Future[Position]]] = []
        for asked in body.events:
            trace = continue_trace(asked.headers.get("ce-traceparent") or traceparent)
            trace = trace or begin_trace()
            event = normalize(asked, trace)
            append = self._envelopes.append_soon(event, traceparent=trace.traceparent)
            appends.append((event, append))
        await asyncio.wait([append for _, append in appends])
        fates = [fate_of(event, append.exception() or append.result()) for event, append in appends]
        failed = [fate["error"] for fate in fates if "error" in fate]
        if failed:
            extra = {"events": len(failed), "of": len(fates), "reason": failed[0]}
            _LOG.warning("events_not_appended", extra=extra)
        answer = {"events": fates} if body.is_batch else fates[0]
        if failed:
            return json_response(503, answer, Retry_After=RETRY_AFTER_S)
        return json_response(202, answer)


def _check_type(request: web.Request) -> None:
    """Raise Refused (415) for a body that is no JSON by its type."""
    name, charset = media_type(request.headers)
    if name != "application/json" and not name.endswith("+json"):
        raise Refused(415, [f"Content-Type is {name}, expected application/json"])
    if (charset or "utf-8").lower().replace("-", "") != "utf8":
        raise Refused(415, [f"charset is {charset}, expected utf-8"])


def _parse(request: web.Request, text: bytes) -> Body:
    """Read the body as what its type and headers say.  Raises Refused (400)."""
    idempotency_key = request.headers.get("Idempotency-Key")
    content_type = media_type(request.headers).name
    is_cloud = is_binary(request.headers) or content_type in {STRUCTURED, BATCH}
    if is_cloud and idempotency_key is not None:
        raise Refused(400, ["CloudEvents are known by source and id: leave Idempotency-Key out"])
    try:
        if is_binary(request.headers):
            return parse_binary(request.headers, text)
        if is_cloud:
            return parse_structured(text, content_type)
        body = parse_body(text)
    except MalformedBody as error:
        raise Refused(400, error.problems) from error
    if idempotency_key is None:
        return body
    if body.is_batch:
        problem = "Idempotency-Key is for a single event; give each of a batch its dedupe_key"
        raise Refused(400, [problem])
    return Body([_with_key(body.events[0], idempotency_key)], is_batch=False)


def _with_key(event: EventRequest, idempotency_key: str) -> EventRequest:
    """Return the event with the header's key as its dedupe key."""
    if event.dedupe_key not in {None, idempotency_key}:
        raise Refused(400, ["Idempotency-Key and dedupe_key differ, expected one, or both alike"])
    if not idempotency_key.isprintable() or not 1 <= len(idempotency_key) <= 1_000:
        raise Refused(400, ["Idempotency-Key: expected 1 to 1000 printable characters"])
    return msgspec.structs.replace(event, dedupe_key=idempotency_key)
