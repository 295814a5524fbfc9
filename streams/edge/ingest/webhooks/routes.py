"""The webhook paths in force, followed in the registry's log: a new manifest needs no restart.

A path is served once the revision that brought it is broadcast: no event may reach an inbox that
does not know its binding yet.  While the registry cannot be read, the paths last known stay.

Source: DESIGN law 3, "Registry".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping

from streams.codec import Codec
from streams.core import registry
from streams.edge.ingest.webhooks.secrets import SecretFiles
from streams.edge.ingest.webhooks.targets import Target, targets_of
from streams.edge.registry_view import RegistryLog, RegistryView
from streams.edge.topic_reader import LONG_WAIT_MS, TopicReader
from streams.errors import BrokerError, HarnError
from streams.settings import Settings

__all__ = ["WebhookRoutes"]

_LOG = logging.getLogger("harn.ingest")

_READ_S = 0.5
_SECRETS_S = 5.0
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 5.0
_STOP_S = 2.0


class WebhookRoutes:
    """Follows the registry in a thread of its own.

    Args:    failed: told, in the event loop, why following cannot go on: a refusal, or a bug.
    """

    def __init__(
        self, settings: Settings, codec: Codec, failed: Callable[[BaseException], None]
    ) -> None:
        self._failed = failed
        self._settings = settings
        self._codec = codec
        self._secrets = SecretFiles(settings.secrets_dir)
        self._targets: Mapping[str, Target] | None = None
        self._warned: set[tuple[str, str]] = set()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] | None = None

    @property
    def known(self) -> bool:
        """Whether the registry has been read: before that, no path is known to be unknown."""
        return self._targets is not None

    def find(self, path: str) -> Target | None:
        """Return what takes deliveries at a path."""
        return None if self._targets is None else self._targets.get(path)

    def start(self) -> None:
        """Begin to follow; the broker may be away."""
        self._ended = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="webhook-routes", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Stop following, or leave a client behind that waits for a broker; idempotent."""
        self._stopping.set()
        if self._ended is not None:
            await asyncio.wait([self._ended], timeout=_STOP_S)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._follow()
        except BaseException as raised:  # noqa: BLE001 - the service fails with it, in its loop
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is gone, so nobody waits
            self._loop.call_soon_threadsafe(self._note_end, error)

    def _note_end(self, error: BaseException | None) -> None:
        assert self._ended is not None, "a thread that ends was started"
        self._ended.set_result(None)
        if error is not None:
            self._failed(error)

    def _follow(self) -> None:
        backoff_s = _BACKOFF_FIRST_S
        while not self._stopping.is_set():
            try:
                with TopicReader(self._settings, registry.REGISTRY, wait_ms=LONG_WAIT_MS) as reader:
                    backoff_s = _BACKOFF_FIRST_S
                    self._read_on(reader)
            except HarnError as error:
                if isinstance(error, BrokerError) and not error.retryable:
                    raise
                extra = {"reason": str(error), "wait_s": backoff_s}
                _LOG.warning("webhook_routes_delayed", extra=extra)
                self._stopping.wait(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)

    def _read_on(self, reader: TopicReader) -> None:
        """Follow until stopped.  Raises HarnError, after which the log is read anew."""
        log = RegistryLog(self._codec)
        view: RegistryView | None = None
        secrets_due_s = 0.0
        caught_up = False
        reader.start_at({0: 0})
        while not self._stopping.is_set():
            records = reader.read(_READ_S)
            log.add(records)
            caught_up = caught_up or reader.at_end
            if not caught_up:
                continue
            if records or view is None:
                found = log.view()
                if found.broadcast >= found.revision:
                    view, secrets_due_s = found, 0.0
            if view is not None and time.monotonic() >= secrets_due_s:
                self._take(view)
                secrets_due_s = time.monotonic() + _SECRETS_S

    def _take(self, view: RegistryView) -> None:
        targets = targets_of(view.rows, self._secrets)
        problems = {
            (path, target.problem) for path, target in targets.items() if target.problem is not None
        }
        for path, problem in sorted(problems - self._warned):
            _LOG.warning("webhook_secret_missing", extra={"path": path, "reason": problem})
        self._warned = problems
        self._targets = targets
