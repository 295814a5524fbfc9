"""`POST /webhooks/<path>`: check who sent it, make it an event, answer once the broker has it.

| answer | means |
|---|---|
| 202 (Slack: 200, nothing in it) | the event is in the log |
| 200 | no event: the provider's challenge is answered |
| 400 | the provider signed something that cannot be an event; every problem is named |
| 401 | not signed with a secret of this path: one answer, whatever is wrong |
| 403, 413, 415, 431 | not looked at: a web page's, too large, not of the provider's type |
| 404 | no active trigger has this path |
| 503 | the broker did not take it, or this process cannot check it yet |

Nothing of a body is read before its signature fits.

Source: DESIGN "Roles", ingest; SEMANTICS 1.1, 1.2.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec
from aiohttp import web

from streams.core.record import Position
from streams.core.webhook import WebhookRoute
from streams.core.wire import TriggerEvent
from streams.edge.ingest.answer import (
    RETRY_AFTER_S,
    Answered,
    Door,
    IngestObserver,
    Refused,
    fate_of,
    json_response,
    read_body,
)
from streams.edge.ingest.body import MalformedBody
from streams.edge.ingest.deliveries import read_event
from streams.edge.ingest.envelopes import Envelopes
from streams.edge.ingest.events import normalize
from streams.edge.ingest.media_type import media_type
from streams.edge.ingest.origins import Origins
from streams.edge.ingest.trace import Trace, begin_trace, continue_trace
from streams.edge.ingest.webhooks.delivery import Arrived, Challenge, Delivered
from streams.edge.ingest.webhooks.signing import Misfit
from streams.edge.ingest.webhooks.targets import Target

__all__ = ["HEADER_BYTES_MAX", "Paths", "WebhooksApi"]

_LOG = logging.getLogger("harn.ingest")

HEADER_BYTES_MAX = 16_384
"""Of all headers of a delivery: they become part of its event."""

_SHOWN_PATH_CHARS = 100
_TELL_AGAIN_S = 10.0


class Paths(Protocol):
    """Where the paths in force are looked up."""

    @property
    def known(self) -> bool:
        """Whether it is known which paths there are."""
        ...

    def find(self, path: str) -> Target | None:
        """Return what takes deliveries at a path."""
        ...


def _now_s() -> int:
    return time.time_ns() // 1_000_000_000


class WebhooksApi:
    """Answers `POST /webhooks/<path>`.

    Args:    body_bytes_max: largest body, also after decompression; a namespace may lower it.
             now_s: seconds since epoch, with which signed times are compared.
    """

    def __init__(
        self,
        envelopes: Envelopes,
        door: Door,
        paths: Paths,
        *,
        body_bytes_max: int,
        observer: IngestObserver | None = None,
        now_s: Callable[[], int] = _now_s,
    ) -> None:
        self._envelopes = envelopes
        self._door = door
        self._paths = paths
        self._body_bytes_max = body_bytes_max
        self._observer = observer
        self._now_s = now_s
        self._told_s: dict[tuple[str, Misfit], float] = {}

    async def post(self, request: web.Request) -> web.Response:
        """Answer one delivery; raises nothing that its sender caused."""
        return await self._door.answer(partial(self._respond, request))

    async def options(self, request: web.Request) -> web.Response:
        """Answer a browser's preflight."""
        return await self._door.answer(partial(self._preflight, request))

    async def _preflight(self, request: web.Request) -> Answered:
        target = self._target(request)
        return Answered(Origins(target.route.allowed_origins).preflight(request))

    async def _respond(self, request: web.Request) -> Answered:
        began_s = time.perf_counter()
        target = self._target(request)
        origins = Origins(target.route.allowed_origins)
        origins.check(request)
        arrived = await self._read(request, target)
        self._check(arrived, target)
        response, events = await self._take(request, arrived, target, began_s)
        origins.mark(request, response)
        return Answered(response, events)

    def _target(self, request: web.Request) -> Target:
        path = request.match_info["path"]
        target = self._paths.find(path)
        if target is not None:
            return target
        if not self._paths.known:
            raise _later("which triggers are in force is not known yet")
        self._refused("unknown", "unknown_path")
        raise Refused(404, [f"no trigger takes webhooks at {path[:_SHOWN_PATH_CHARS]!r}"])

    async def _read(self, request: web.Request, target: Target) -> Arrived:
        header_bytes = sum(len(name) + len(value) for name, value in request.headers.items())
        if header_bytes > HEADER_BYTES_MAX:
            raise Refused(431, [f"the headers are larger than {HEADER_BYTES_MAX} bytes"])
        content_type = media_type(request.headers).name
        if content_type not in target.scheme.content_types:
            expected = " or ".join(target.scheme.content_types)
            raise Refused(415, [f"Content-Type is {content_type}, expected {expected}"])
        limits = (self._body_bytes_max, target.route.body_bytes_max or self._body_bytes_max)
        return Arrived(request.headers, content_type, await read_body(request, min(limits)))

    def _check(self, arrived: Arrived, target: Target) -> None:
        """Raise Refused unless the delivery is its provider's."""
        route = target.route
        if not target.keys:
            self._refused(route.provider, "secret_missing")
            raise _later("webhooks of this path cannot be checked yet")
        misfit = target.scheme.misfit(arrived, target.keys, self._now_s())
        if misfit is not None:
            self._refused(route.provider, misfit)
            self._tell(route, misfit)
            raise Refused(401, ["the delivery is not signed with a secret of this path"])

    def _tell(self, route: WebhookRoute, misfit: Misfit) -> None:
        """Log a refusal, once in a while: anybody can cause them."""
        now_s, last_s = time.monotonic(), self._told_s.get((route.path, misfit))
        if last_s is not None and now_s - last_s < _TELL_AGAIN_S:
            return
        self._told_s[route.path, misfit] = now_s
        extra = {"path": route.path, "provider": route.provider, "reason": str(misfit)}
        _LOG.info("webhook_refused", extra=extra)

    async def _take(
        self, request: web.Request, arrived: Arrived, target: Target, began_s: float
    ) -> tuple[web.Response, int]:
        provider, path = target.route.provider, target.route.path
        trace = continue_trace(request.headers.get("traceparent")) or begin_trace()
        try:
            found = target.scheme.read(arrived)
            if isinstance(found, Challenge):
                return web.Response(text=found.text), 0
            event = _event_of(found, provider, request, trace, self._body_bytes_max)
        except MalformedBody as error:
            self._refused(provider, "malformed")
            raise Refused(400, error.problems) from error
        normalized_s = time.perf_counter() - began_s
        append = self._envelopes.append_soon(
            event, traceparent=trace.traceparent, webhook_path=path
        )
        await asyncio.wait([append])
        outcome = append.exception() or append.result()
        if not isinstance(outcome, Position):
            fate = fate_of(event, outcome)
            extra = {"events": 1, "of": 1, "reason": fate["error"]}
            _LOG.warning("events_not_appended", extra=extra)
            return json_response(503, fate, Retry_After=RETRY_AFTER_S), 1
        if self._observer is not None:
            self._observer.webhook_taken(provider, normalized_s, time.perf_counter() - began_s)
        if target.scheme.quiet:
            return web.Response(), 1
        return json_response(202, fate_of(event, outcome)), 1

    def _refused(self, provider: str, reason: str) -> None:
        if self._observer is not None:
            self._observer.webhook_refused(provider, reason)


def _later(why: str) -> Refused:
    return Refused(503, [why], Retry_After=RETRY_AFTER_S)


def _event_of(
    found: Delivered, provider: str, request: web.Request, trace: Trace, bytes_max: int
) -> TriggerEvent:
    """Return a delivery's event.  Raises MalformedBody, also for one too large to be kept twice."""
    size = len(found.payload) + len(found.raw_body or b"")
    if size > bytes_max:
        problem = f"payload and body have {size} bytes together, expected at most {bytes_max}"
        raise MalformedBody([problem])
    asked = read_event(
        {
            "provider": provider,
            "kind": found.kind,
            "payload": msgspec.Raw(found.payload),
            "dedupe_key": found.dedupe_key,
            "occurred_at": found.occurred_at,
            "headers": _headers(request),
            "raw_body": found.raw_body,
        }
    )
    event = normalize(asked, trace)
    event["signature_state"] = "verified"
    return event


def _headers(request: web.Request) -> dict[str, str]:
    """Return the delivery's headers; several of one name are one, as HTTP has it."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        text = value.encode(errors="replace").decode()
        known = headers.get(name.lower())
        headers[name.lower()] = text if known is None else f"{known}, {text}"
    return headers
