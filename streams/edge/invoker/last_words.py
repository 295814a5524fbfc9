"""What an invoker says when its event loop will not turn again: it has no other way left.

A connection of its own is made for it, on the thread that calls; then the process ends.  What gets
no word here is issued again when its lease ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streams.edge.executors.call import Call
from streams.edge.executors.outcome import INTERRUPTED, Outcome, timed_out
from streams.edge.invoker.execution import Execution
from streams.errors import InvokerStuck
from streams.kafka import make_producer
from streams.observe import logs
from streams.settings import Settings

__all__ = ["LastWords"]

_LOG = logs.logger(__name__)

_FLUSH_S = 5.0


class LastWords:
    """Called on the thread that watches the event loop.

    Args:    unended: what has no outcome yet.  word_of: the record of an outcome.
             exit_now: ends the process with a code, whatever else it does.
    """

    def __init__(
        self,
        settings: Settings,
        mailbox: str,
        *,
        unended: Callable[[], Sequence[Execution]],
        word_of: Callable[[Execution, Outcome], bytes],
        exit_now: Callable[[int], object],
    ) -> None:
        self._settings = settings
        self._mailbox = mailbox
        self._unended = unended
        self._word_of = word_of
        self._exit_now = exit_now

    def __call__(self, culprit: Call | None, seconds: float) -> None:
        """Say how everything that runs has ended, and end the process."""
        outcomes: list[tuple[Execution, Outcome]] = []
        for execution in self._unended():
            call = execution.call
            if call is None:
                continue  # it has not begun: it is fetched again, or its lease ends
            blocked = call is culprit
            outcomes.append((execution, self._blocked(call, seconds) if blocked else INTERRUPTED))
        unacked = self._say(outcomes)
        _LOG.critical(
            "invoker_stuck",
            extra={"seconds": seconds, "outcomes": len(outcomes), "unacked": unacked},
        )
        self._exit_now(InvokerStuck.exit_code)

    def _blocked(self, call: Call, seconds: float) -> Outcome:
        timeout_ms = call.timeout_ms or self._settings.lease_ms
        return timed_out(timeout_ms, f", and held up the event loop for {seconds:g} s")

    def _say(self, outcomes: Sequence[tuple[Execution, Outcome]]) -> int:
        """Append outcomes, each to its home partition; return how many were not acked in time."""
        try:
            producer = make_producer(self._settings)
            for execution, outcome in outcomes:
                producer.produce(
                    self._mailbox,
                    self._word_of(execution, outcome),
                    key=execution.dispatch_id.encode(),
                    partition=execution.home_partition,
                    headers=[("kind", b"invocation_completed"), *execution.headers],
                )
            return producer.flush(_FLUSH_S)
        except Exception:  # noqa: BLE001 - the process must end; leases do the rest
            _LOG.exception("invoker_last_words_unsaid")
            return len(outcomes)
