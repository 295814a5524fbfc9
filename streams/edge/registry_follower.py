"""Follow the registry's log for as long as a process runs: each change of it is told as a view.

The reader lives on a thread of its own.  While the registry cannot be read, what is known last
stays; after that the log is read anew from its beginning.

Source: DESIGN law 3, "Registry".
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from streams.codec import Codec
from streams.core import registry
from streams.edge.registry_view import RegistryLog, RegistryView
from streams.edge.topic_reader import LONG_WAIT_MS, TopicReader
from streams.errors import HarnError
from streams.observe import logs
from streams.settings import Settings

__all__ = ["RegistryFollower"]

_LOG = logs.logger(__name__)

_READ_S = 0.5
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 5.0
_STOP_S = 2.0


class RegistryFollower:
    """Tells `on_view`, on the event loop that it is made in, what the registry knows.

    Args:    name: whose follower it is, for logs and the thread.
    """

    def __init__(
        self,
        settings: Settings,
        codec: Codec,
        on_view: Callable[[RegistryView], None],
        *,
        name: str,
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._on_view = on_view
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name=f"{name}-registry", daemon=True)

    def start(self) -> None:
        """Begin to follow; the broker may be away."""
        self._thread.start()

    async def stop(self) -> None:
        """Stop, or leave a client behind that waits for a broker; idempotent."""
        self._stopping.set()
        if self._thread.ident is not None:
            await asyncio.wait([self._stopped], timeout=_STOP_S)

    def _run(self) -> None:
        backoff_s = _BACKOFF_FIRST_S
        try:
            while not self._stopping.is_set():
                try:
                    with TopicReader(
                        self._settings, registry.REGISTRY, wait_ms=LONG_WAIT_MS
                    ) as reader:
                        backoff_s = _BACKOFF_FIRST_S
                        self._read_on(reader)
                except HarnError as error:
                    extra = {"by": self._name, "reason": str(error), "wait_s": backoff_s}
                    _LOG.warning("registry_not_followed", extra=extra)
                    self._stopping.wait(backoff_s)
                    backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop is gone, so nobody waits
                self._loop.call_soon_threadsafe(self._note_end)

    def _read_on(self, reader: TopicReader) -> None:
        """Follow until stopped.  Raises HarnError, after which the log is read anew."""
        log = RegistryLog(self._codec)
        caught_up = told = False
        reader.start_at({0: 0})
        while not self._stopping.is_set():
            records = reader.read(_READ_S)
            log.add(records)
            caught_up = caught_up or reader.at_end
            if caught_up and (records or not told):
                told = True
                self._loop.call_soon_threadsafe(self._tell, log.view())

    def _tell(self, view: RegistryView) -> None:
        if not self._stopping.is_set():
            self._on_view(view)

    def _note_end(self) -> None:
        if not self._stopped.done():
            self._stopped.set_result(None)
