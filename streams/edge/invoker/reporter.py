"""The invoker's words to dispatch: outcomes until they are acked, and `running` records.

Every word goes to the partition that owns the dispatch, not to where a key would send it.  An
outcome that the broker did not take is appended again until it is; should both be in the log, the
second is refused there by its fence, as any stale word is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from streams.codec import Codec
from streams.core.record import Position
from streams.core.wire import InvocationsRunning
from streams.edge.executors.outcome import Outcome
from streams.edge.invoker.execution import Execution
from streams.edge.invoker.lease_book import Word
from streams.errors import BrokerError
from streams.observe import logs

__all__ = ["Appender", "Listener", "Reporter"]

_LOG = logs.logger(__name__)

_RETRY_FIRST_S = 0.1
_RETRY_MAX_S = 2.0


class Appender(Protocol):
    """What the invoker needs of a publisher."""

    def append_soon(
        self,
        topic: str,
        *,
        kind: str,
        value: bytes,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
    ) -> asyncio.Future[Position]:
        """As `Publisher.append_soon`."""
        ...


class Listener(Protocol):
    """Hears what became of the words, on the event loop."""

    def outcome_in_log(self, execution: Execution) -> None:
        """The outcome is acked."""
        ...

    def word_in_log(self, word: Word) -> None:
        """The `running` record is acked."""
        ...

    def word_lost(self) -> None:
        """A `running` record was not acked; it is not appended again by itself."""
        ...

    def fail(self, error: BaseException) -> None:
        """The broker refuses what the invoker says; no retry mends it."""
        ...


class Reporter:
    """Appends words to the dispatch mailbox under the name of one invoker."""

    def __init__(
        self, appender: Appender, codec: Codec, invoker_id: str, listener: Listener, mailbox: str
    ) -> None:
        self._appender = appender
        self._encode_completed = codec.encoder("invocation_completed")
        self._encode_running = codec.encoder("invocations_running")
        self._invoker_id = invoker_id
        self._listener = listener
        self._mailbox = mailbox
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._delayed = False

    def report(self, execution: Execution, outcome: Outcome, now_ms: int) -> None:
        """Append the outcome, again and again until it is acked or `close` is called."""
        self._append_outcome(execution, self.word_of(execution, outcome, now_ms), _RETRY_FIRST_S)

    def word_of(self, execution: Execution, outcome: Outcome, now_ms: int) -> bytes:
        """Return the record that says how an execution ended."""
        return self._encode_completed(execution.completed(outcome, self._invoker_id, now_ms))

    def say(self, word: Word) -> None:
        """Append one `running` record."""
        record: InvocationsRunning = {
            "invoker_id": self._invoker_id,
            "running": [
                {"dispatch_id": each.dispatch_id, "attempt": each.attempt, "fence": each.fence}
                for each in word.invocations
            ],
        }
        self._appender.append_soon(
            self._mailbox,
            kind="invocations_running",
            value=self._encode_running(record),
            key=f"invoker:{self._invoker_id}".encode(),
            partition=word.home_partition,
        ).add_done_callback(partial(self._on_word_answered, word))

    def close(self) -> None:
        """Give up on what is not acked."""
        self._closed = True

    def _append_outcome(self, execution: Execution, value: bytes, retry_s: float) -> None:
        if self._closed:
            return
        self._appender.append_soon(
            self._mailbox,
            kind="invocation_completed",
            value=value,
            key=execution.dispatch_id.encode(),
            headers=execution.headers,
            partition=execution.home_partition,
        ).add_done_callback(partial(self._on_outcome_answered, execution, value, retry_s))

    def _on_outcome_answered(
        self,
        execution: Execution,
        value: bytes,
        retry_s: float,
        appended: asyncio.Future[Position],
    ) -> None:
        error = self._error_of(appended)
        if error is None:
            self._delayed = False
            self._listener.outcome_in_log(execution)
            return
        if not self._delayed:
            # Once for all that an outage delays.
            self._delayed = True
            extra = {"dispatch_id": execution.dispatch_id, "reason": str(error)}
            _LOG.warning("invoker_outcomes_delayed", extra=extra)
        again: Callable[[], None] = partial(
            self._append_outcome, execution, value, min(2 * retry_s, _RETRY_MAX_S)
        )
        self._loop.call_later(retry_s, again)

    def _on_word_answered(self, word: Word, appended: asyncio.Future[Position]) -> None:
        error = self._error_of(appended)
        if error is None:
            self._listener.word_in_log(word)
            return
        extra = {"home_partition": word.home_partition, "reason": str(error)}
        _LOG.warning("invoker_running_not_appended", extra=extra)
        self._listener.word_lost()

    def _error_of(self, appended: asyncio.Future[Position]) -> BaseException | None:
        """Return why the append failed; what no retry mends fails the service as well."""
        error = appended.exception()
        if error is not None and not (isinstance(error, BrokerError) and error.retryable):
            self._closed = True
            self._listener.fail(error)
        return error
