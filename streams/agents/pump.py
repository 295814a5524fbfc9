"""The pump: lets inbox go on only as far as the invokers keep up.

A partition that may not go on waits with its cursor unmoved; what it has fetched stays in memory,
and behind that the client stops fetching.  It is a decision about time alone: what is folded, and
in which order, is the same, so no fold and no audit knows of it.

The backlog is sampled on a thread, ten times a second as long as records come.  A cluster that
does not answer holds nothing back.

Source: DESIGN "Backpressure"; SEMANTICS 2.2; ADR 12.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from streams.agents.backlog import Backlog
from streams.agents.pump_book import PumpBook, Sample, Standing
from streams.agents.pump_reports import PumpReports
from streams.errors import BrokerError
from streams.observe import logs

__all__ = ["Pump", "PumpObserver"]

_LOG = logs.logger(__name__)

SAMPLE_EVERY_S = 0.1
REPORT_EVERY_S = 10.0
PAUSE_REPORTED_AFTER_S = 1.0
"""A shorter pause is the pump at work."""

_LOOK_AGAIN_S = 0.5


class PumpObserver(Protocol):
    """Told on the event loop."""

    def outstanding(self, count: int) -> None:
        """So many invocations are before the invokers."""
        ...

    def admitted(self, appended_ms: int) -> None:
        """Records go on, the first of which was appended then, ms since epoch."""
        ...

    def backlog(self, lags: Mapping[int, int]) -> None:
        """So many records of each owned partition wait."""
        ...


class Pump:
    """The pump of one member's inbox.  Belongs to the event loop it is made in.

    Args:    backlog: measures, on the pump's thread.  reports: tell of pauses.
    """

    def __init__(self, backlog: Backlog, reports: PumpReports, observer: PumpObserver) -> None:
        self._backlog = backlog
        self._reports = reports
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._book = PumpBook()
        self._sampled = asyncio.Event()
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._paused_s: float | None = None
        self._is_reported = False
        self._acked_s = self._loop.time()
        self._next_offsets: dict[int, int] = {}
        self._admitted = 0

    async def admit(
        self, asked: int, *, max_outstanding: int, appended_ms: int, wanted: Callable[[], bool]
    ) -> int:
        """Wait until records may go on; return how many, or 0 once they are not `wanted` any more.

        Args:    asked: how many there are, > 0.  appended_ms: when the first one was appended.
        """
        self._wanted.set()
        self._start()
        while wanted():
            room = self._book.room(max_outstanding, self._loop.time())
            if room is None or room > 0:
                going = asked if room is None else min(asked, room)
                self._book.admitted(going)
                self._admitted += going
                if room is None or room > asked:
                    self._goes_on(max_outstanding)
                else:  # some of it, for what was finished meanwhile
                    self._waits(max_outstanding)
                self._observer.admitted(appended_ms)
                return going
            self._waits(max_outstanding)
            await self._next_sample()
        return 0

    def folded(self, partition: int, next_offset: int) -> None:
        """Note how far a partition has come; told in a report now and then."""
        self._next_offsets[partition] = next_offset
        now_s = self._loop.time()
        if now_s - self._acked_s >= REPORT_EVERY_S:
            self._acked_s = now_s
            self._reports.acked(self._admitted, dict(self._next_offsets))
            self._admitted = 0
            self._next_offsets.clear()

    def waiting(self, lags: Mapping[int, int]) -> None:
        """Note how many records of each owned partition are not folded yet."""
        self._observer.backlog(lags)

    async def close(self) -> None:
        """Sample no more, and tell the last reports."""
        self._stopping.set()
        self._wanted.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    # ------------------------------------------------------------------ pausing
    async def _next_sample(self) -> None:
        self._sampled.clear()
        self._wanted.set()
        try:
            await asyncio.wait_for(self._sampled.wait(), _LOOK_AGAIN_S)
        except TimeoutError:
            return

    def _waits(self, max_outstanding: int) -> None:
        now_s = self._loop.time()
        if self._paused_s is None:
            self._paused_s = now_s
        elif not self._is_reported and now_s - self._paused_s >= PAUSE_REPORTED_AFTER_S:
            self._is_reported = True
            standing = self._book.standing(max_outstanding, now_s)
            _LOG.info("pump_paused", extra=standing._asdict())
            self._reports.paused(standing)

    def _goes_on(self, max_outstanding: int) -> None:
        if self._paused_s is None:
            return
        now_s = self._loop.time()
        paused_ms = int((now_s - self._paused_s) * 1_000)
        self._paused_s = None
        if self._is_reported:
            self._is_reported = False
            standing = self._book.standing(max_outstanding, now_s)
            _LOG.info("pump_resumed", extra={**standing._asdict(), "paused_ms": paused_ms})
            self._reports.resumed(standing, paused_ms)

    # ------------------------------------------------------------------ the thread
    def _start(self) -> None:
        if self._thread is None and not self._stopping.is_set():
            self._thread = threading.Thread(target=self._run, name="pump", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            if self._stopping.is_set():
                break
            self._wanted.clear()
            try:
                found = self._backlog.measure()
            except BrokerError as error:
                _LOG.warning("pump_unsampled", extra={"reason": str(error)})
                self._tell(None)
            else:
                self._tell(found)
            self._reports.send()
            self._stopping.wait(SAMPLE_EVERY_S)
        self._reports.close()
        self._backlog.close()

    def _tell(self, found: Sample | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._take, found)
        except RuntimeError:
            self._stopping.set()  # the loop is closed

    def _take(self, found: Sample | None) -> None:
        if found is None:
            self._book.failed()
        else:
            self._book.sampled(found._replace(at_s=self._loop.time()))
            behind: Standing = self._book.standing(0, self._loop.time())
            self._observer.outstanding(behind.outstanding)
        self._sampled.set()
