"""Metrics and health over HTTP: `/metrics`, `/healthz`, `/readyz`.

Loopback unless told otherwise; nothing here takes input.

Source: STYLE 2.11, 2.18.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from streams.errors import ConfigError
from streams.settings import Settings


class ObserveServer:
    """Metrics and health of one process.  Alive means that the loop turns, no more."""

    def __init__(
        self, settings: Settings, registry: CollectorRegistry, *, ready: Callable[[], bool]
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._ready = ready
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen.  Raises ConfigError when the address is taken."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        host, port = self._settings.metrics_host, self._settings.metrics_port
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            problem = f"metrics cannot listen on {host}:{port}: {error.strerror or error}"
            raise ConfigError(
                problem,
                remedy="set HARN_METRICS_PORT to a free port, or to 0 for any, unless it is the "
                "same roles that run here already",
            ) from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

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
