"""Metrics and health over HTTP: `/metrics`, `/healthz`, `/readyz`.

Loopback unless told otherwise; nothing here takes input.

Source: STYLE 2.11, 2.18.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from streams.observe import logs
from streams.observe.listener import Listener
from streams.settings import Settings

_LOG = logs.logger(__name__)

_CONNECTIONS_MAX = 64  # scrapers and probes, each with one or two


class ObserveServer:
    """Metrics and health of one process.  Alive means that the loop turns, no more."""

    def __init__(
        self, settings: Settings, registry: CollectorRegistry, *, ready: Callable[[], bool]
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._ready = ready
        self._listener: Listener | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen.  Raises ConfigError when the address is taken."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        listener = Listener(
            app,
            self._settings.metrics_host,
            self._settings.metrics_port,
            connections_max=_CONNECTIONS_MAX,
            drain_s=0,
            named=("HARN_METRICS_HOST", "HARN_METRICS_PORT"),
        )
        await listener.start()
        self._listener, self.port = listener, listener.port
        # With port 0 nobody knows it otherwise.
        _LOG.info("metrics_listening", extra={"host": listener.host, "port": listener.port})

    async def stop(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            await self._listener.stop()
            self._listener = None

    async def _metrics(self, _request: web.Request) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "alive"})

    async def _readyz(self, _request: web.Request) -> web.Response:
        ready = self._ready()
        return web.json_response(
            {"status": "ready" if ready else "starting"}, status=200 if ready else 503
        )
