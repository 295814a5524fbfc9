"""The lease book kept in time: says its words when they are due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from streams.edge.invoker.execution import Execution
from streams.edge.invoker.lease_book import LeaseBook, Word
from streams.observe import logs

__all__ = ["Leases"]

_LOG = logs.logger(__name__)


class Leases:
    """Keeps the leases of what runs here.

    Args:    say: appends a word.  on_late: told how late renewals are when leases have run out.
    """

    def __init__(
        self, lease_ms: int, say: Callable[[Word], None], on_late: Callable[[int], None]
    ) -> None:
        self._book = LeaseBook(lease_ms)
        self._say = say
        self._on_late = on_late
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def started(self, execution: Execution) -> None:
        """Note that it runs from now on."""
        self._book.started(execution, self._now_ms())
        if self._timer is None:  # one that is set is for what began before: it is due no later
            self._arm()

    def ended(self, execution: Execution) -> None:
        """Note that it runs no more."""
        self._book.ended(execution)

    def announce(self, executions: Iterable[Execution]) -> None:
        """Start the leases of running executions now, whatever their age."""
        for word in self._book.announce(executions, self._now_ms()):
            self._say(word)
        self._arm()

    def word_lost(self) -> None:
        """Say it again soon: a word did not reach the log."""
        self._book.said_in_vain(self._now_ms())
        self._arm()

    def close(self) -> None:
        """Say nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        due_ms = self._book.next_due_ms()
        if due_ms is None:
            return
        due_s = (due_ms + 1) / 1_000  # the book counts whole milliseconds
        if self._timer is not None:
            if self._timer.when() <= due_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due_s, self._on_due)

    def _on_due(self) -> None:
        self._timer = None
        words, late_ms = self._book.due(self._now_ms())
        if late_ms > 0:
            # What was issued again meanwhile will have its outcome refused, by its fence.
            count = sum(len(word.invocations) for word in words)
            _LOG.warning("invoker_leases_late", extra={"late_ms": late_ms, "invocations": count})
            self._on_late(late_ms)
        for word in words:
            self._say(word)
        self._arm()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1_000)
