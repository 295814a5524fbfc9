"""The HTTP front door: events in, liveness and readiness out.

| route | answers |
|---|---|
| `POST /v1/events` | see `streams.edge.ingest.events_api` |
| `POST /webhooks/<path>` | see `streams.edge.ingest.webhooks.webhooks_api` |
| `GET /healthz` | 200 while the process serves; the broker has no say in it |
| `GET /readyz` | 200 while the broker answers, and webhook paths are known, else 503 |

Webhooks are checked against their signatures.  `/v1/events` authenticates nobody: it listens on the
loopback address unless told otherwise, and belongs behind a proxy that does.

Source: DESIGN "Roles", ingest.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus

from aiohttp import web
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streams.codec import Codec
from streams.edge.ingest.answer import Door, IngestObserver, json_response
from streams.edge.ingest.envelopes import ENVELOPES, Envelopes
from streams.edge.ingest.events_api import EventsApi
from streams.edge.ingest.origins import Origins
from streams.edge.ingest.webhooks.routes import WebhookRoutes
from streams.edge.ingest.webhooks.webhooks_api import WebhooksApi
from streams.edge.publisher import Publisher
from streams.kafka import make_admin
from streams.observe.listener import Listener
from streams.settings import Settings

__all__ = ["IngestService"]

_LOG = logging.getLogger("harn.ingest")

# A probe that asks every second must not become load for the broker.
_READY_FOR_S = 2.0
_READY_TIMEOUT_S = 2.0
_SHOWN_PATH_CHARS = 100

_Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class IngestService:
    """Takes events over HTTP; an `EdgeService`.

    Args:    publisher: started and stopped by whoever made it, around this service.
             routes: further routes of the same listener, such as metrics.
             in_flight_max: requests being answered at once; beyond it the answer is 503.
             connections_max: open connections; a further one is closed.
    """

    name = "ingest"

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        codec: Codec,
        *,
        routes: Iterable[web.AbstractRouteDef] = (),
        observer: IngestObserver | None = None,
        in_flight_max: int = 512,
        connections_max: int = 1_024,
    ) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settings = settings
        self._broker = _BrokerWatch(settings)
        self._stopping = False
        self.door = Door(in_flight_max=in_flight_max, observer=observer)
        self._routes = WebhookRoutes(settings, codec, self._fail)
        envelopes, limit = Envelopes(publisher, codec), settings.http_max_body_bytes
        origins = Origins((settings.http_allowed_origins or "").split(","))
        events = EventsApi(envelopes, self.door, origins, body_bytes_max=limit)
        webhooks = WebhooksApi(
            envelopes, self.door, self._routes, body_bytes_max=limit, observer=observer
        )
        app = web.Application(
            client_max_size=settings.http_max_body_bytes, middlewares=[_errors_as_json]
        )
        app.router.add_post("/v1/events", events.post)
        app.router.add_options("/v1/events", events.options)
        app.router.add_post("/webhooks/{path:.+}", webhooks.post)
        app.router.add_options("/webhooks/{path:.+}", webhooks.options)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.add_routes(routes)
        self._listener = Listener(
            app,
            settings.http_host,
            settings.http_port,
            connections_max=connections_max,
            drain_s=settings.drain_ms / 1_000,
        )

    @property
    def url(self) -> str:
        """Where the service listens, once started."""
        host = self._listener.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self._listener.port}"

    async def start(self) -> None:
        """Listen.  Raises ConfigError when the address cannot be had."""
        if not _is_loopback(self._settings.http_host):
            _LOG.warning("http_is_open", extra={"host": self._settings.http_host})
        await self._listener.start()
        _LOG.info(
            "http_listening", extra={"host": self._listener.host, "port": self._listener.port}
        )
        self._routes.start()

    async def stop(self) -> None:
        """Take no further request and answer those under way; idempotent."""
        self._stopping = True
        await self._listener.stop()
        await self._routes.stop()

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done() and not self._stopping:
            self.failed.set_exception(error)

    async def _healthz(self, _request: web.Request) -> web.Response:
        return json_response(200, {"status": "ok"})

    async def _readyz(self, _request: web.Request) -> web.Response:
        problem = "the service is stopping" if self._stopping else await self._broker.problem()
        if problem is None and not self._routes.known:
            problem = "the registry's log is not read yet, so no webhook path is known"
        if problem is None:
            return json_response(200, {"status": "ready"})
        return json_response(503, {"status": "not ready", "error": problem})


class _BrokerWatch:
    """Whether the broker answers, asked at most every two seconds however often one wants it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin: AdminClient | None = None
        self._problem: str | None = None
        self._known_until_s = 0.0
        self._asking = asyncio.Lock()

    async def problem(self) -> str | None:
        """Return what keeps events from being appended, or None."""
        async with self._asking:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._known_until_s:
                self._problem = await asyncio.to_thread(self._ask)
                self._known_until_s = loop.time() + _READY_FOR_S
            return self._problem

    def _ask(self) -> str | None:
        if self._admin is None:
            self._admin = make_admin(self._settings)
        try:
            found = self._admin.list_topics(ENVELOPES, timeout=_READY_TIMEOUT_S)
        except KafkaException as error:
            return f"the broker does not answer: {error.args[0].str()}"
        topic = found.topics.get(ENVELOPES)
        if topic is None or topic.error is not None:
            return f"topic {ENVELOPES} is missing; run `harn topology apply`"
        return None


@web.middleware
async def _errors_as_json(request: web.Request, handler: _Answer) -> web.StreamResponse:
    """Let refusals of the router (no such path, no such method) be JSON as everything else is."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        problem = _refusal(request, error)
        response = json_response(error.status, {"error": problem, "problems": [problem]})
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response


def _refusal(request: web.Request, error: web.HTTPException) -> str:
    path = request.path[:_SHOWN_PATH_CHARS]
    if error.status == HTTPStatus.NOT_FOUND:
        return f"nothing is at {path!r}: events go to /v1/events, webhooks to /webhooks/<path>"
    if error.status == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(name for name in error.headers["Allow"].split(",") if name != "HEAD")
        return f"{request.method} is not taken at {path!r}, expected {allowed}"
    return error.reason


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
