"""An aiohttp application on one address, with everything about its connections bounded.

aiohttp bounds header sizes, and connections between two requests; a connection that never sends its
first request, and how many there are, are bounded here.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestPayloadError

from streams.errors import ConfigError

__all__ = ["Listener"]

_LOG = logging.getLogger("harn.http")

_HEADER_BYTES_MAX = 8_190  # one line; aiohttp also takes at most 128 of them
_KEEPALIVE_S = 75.0  # longer than the 60 s of common proxies, which must close first
_SILENCE_S = 10.0
_SWITCH_OFF_S = 1.0
_TELL_AGAIN_S = 10.0


class Listener:
    """Serves `app` until stopped.

    Args:    port: 0 takes a free one; `self.port` is the one in use.
             connections_max: a further connection is closed at once.
             drain_s: how long requests under way may take when stopping.
             silence_s: a connection that has not asked anything by then is closed.
             named: the variables that host and port come from.
    """

    def __init__(
        self,
        app: web.Application,
        host: str,
        port: int,
        *,
        connections_max: int,
        drain_s: float,
        silence_s: float = _SILENCE_S,
        named: tuple[str, str] = ("HARN_HTTP_HOST", "HARN_HTTP_PORT"),
    ) -> None:
        self.host = host
        self.port = port
        self._app = app
        self._connections_max = connections_max
        self._silence_s = silence_s
        self._named = named
        self._silent: set[web.RequestHandler] = set()
        self._listening: asyncio.Server | None = None
        app.middlewares.insert(0, self._on_request)
        app.on_response_prepare.append(_sign)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_server_log(),
            keepalive_timeout=_KEEPALIVE_S,
            max_line_size=_HEADER_BYTES_MAX,
            max_field_size=_HEADER_BYTES_MAX,
            shutdown_timeout=max(drain_s, _SWITCH_OFF_S),
        )

    async def start(self) -> None:
        """Listen.  Raises ConfigError when the address cannot be had."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        try:
            self._listening = await loop.create_server(
                self._connect, self.host, self.port, backlog=self._connections_max
            )
        except OSError as error:
            await self._runner.cleanup()
            why = "in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
            raise ConfigError(
                f"{' and '.join(self._named)} are {self.host}:{self.port}, which is {why}",
                remedy="name another port, or 0 for any free one, unless it is the same roles that "
                "run here already",
            ) from error
        self.port = self._listening.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Take no further connection, let requests under way finish, close; idempotent."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            await self._runner.cleanup()

    def _connect(self) -> asyncio.Protocol:
        """Make the protocol of one new connection."""
        server = self._runner.server
        assert server is not None, "connections come after start"
        if len(server.connections) >= self._connections_max:
            _LOG.warning("http_connections_full", extra={"connections": self._connections_max})
            return _Refusal()
        connection = server()
        self._silent.add(connection)
        asyncio.get_running_loop().call_later(self._silence_s, self._close_if_silent, connection)
        return connection

    def _close_if_silent(self, connection: web.RequestHandler) -> None:
        if connection in self._silent:
            self._silent.discard(connection)
            connection.force_close()

    @web.middleware
    async def _on_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._silent.discard(request.protocol)
        return await handler(request)


class _SendersMistakes(logging.Filter):
    """Keeps what is no HTTP from being told as our error, with the bytes that came.

    Anybody can cause it, as often as they like: one line in a while says so, and nothing of theirs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told_s = -_TELL_AGAIN_S

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is about us."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError | RequestPayloadError):
            return True
        now_s = time.monotonic()
        if now_s - self._told_s >= _TELL_AGAIN_S:
            self._told_s = now_s
            _LOG.info("http_request_malformed", extra={"reason": type(error).__name__})
        return False


def _server_log() -> logging.Logger:
    """Return the log of aiohttp's server: what handlers raise is a bug, and is told."""
    log = logging.getLogger("harn.http.server")
    if not any(isinstance(each, _SendersMistakes) for each in log.filters):
        log.addFilter(_SendersMistakes())
    return log


async def _sign(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "harn"  # versions are nobody's business


class _Refusal(asyncio.Protocol):
    """Closes the connection that it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close at once: whoever cannot be served should try elsewhere."""
        transport.close()
