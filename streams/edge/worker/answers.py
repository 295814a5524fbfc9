"""From outcomes to the log: responses first, then the acks of those that are done.

    outcomes → [responses appended together → all in the log] → one `ack_requested` a queue → over

So an acked job has its response, whatever breaks in between; a response without its ack means that
the job comes again.  What an outage keeps out of the log is appended again until it is in; whoever
reads a response twice knows it by its claim.

Source: SEMANTICS 5.4; DESIGN "A job".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from streams.core.record import Position
from streams.edge.invoker.guard import ends_the_role
from streams.edge.worker.held import HeldJob
from streams.edge.worker.words import Words, by_queue
from streams.errors import BrokerError
from streams.observe import logs

__all__ = ["AnswerListener", "Answered", "Answers"]

_LOG = logs.logger(__name__)

_COMPANY_S = 0.003
"""How long an outcome waits for others while more jobs wait for their turn."""

_TOGETHER_MAX = 256
_RETRY_FIRST_S = 0.1
_RETRY_MAX_S = 2.0


class Answered(NamedTuple):
    """A job's outcome."""

    held: HeldJob
    response: bytes
    acks: bool
    """Whether the job is done, so that it is acked."""


class AnswerListener(Protocol):
    """Hears on the event loop."""

    incarnation: str
    """Under which claims are acked."""

    def still_holds(self, held: HeldJob) -> bool:
        """Whether the worker may ack a claim at this moment."""
        ...

    def acked(self, jobs: Sequence[HeldJob], position: Position) -> None:
        """The ack of jobs is in the log, there; they are answered next."""
        ...

    def answered(self, jobs: Sequence[HeldJob], *, acked: bool) -> None:
        """The responses of jobs of one queue are in the log, and their acks if they have any."""
        ...

    def fail(self, error: BaseException) -> None:
        """The broker refuses what is appended; no retry mends it."""
        ...


class Answers:
    """Outcomes on their way into the log."""

    def __init__(self, words: Words, listener: AnswerListener) -> None:
        self._words = words
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._collected: list[Answered] = []
        self._timer: asyncio.Handle | None = None
        self._under_way = 0
        self._closed = False
        self._delayed = False

    @property
    def is_empty(self) -> bool:
        """Whether all that was answered is in the log."""
        return not self._collected and not self._under_way

    def add(self, answered: Answered, *, hurried: bool) -> None:
        """Take an outcome; `hurried` when nothing else is soon to come."""
        self._collected.append(answered)
        if len(self._collected) >= _TOGETHER_MAX:
            self.flush()
        elif hurried:
            # From the loop: those that end in the same turn of it still go together.
            self._plan(self._loop.call_soon(self.flush))
        elif self._timer is None:
            self._plan(self._loop.call_later(_COMPANY_S, self.flush))

    @ends_the_role
    def flush(self) -> None:
        """Append what was collected."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._collected:
            collected, self._collected = self._collected, []
            self._under_way += len(collected)
            self._respond(collected, collected, _RETRY_FIRST_S)

    def fail(self, error: BaseException) -> None:
        """End the worker."""
        self._listener.fail(error)

    def close(self) -> None:
        """Give up on what is not in the log."""
        self._closed = True

    def _plan(self, timer: asyncio.Handle) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer

    def _respond(
        self, together: Sequence[Answered], missing: Sequence[Answered], retry_s: float
    ) -> None:
        """Append the missing responses; go on when all are in the log."""
        if self._closed:
            return
        left = len(missing)
        refused: list[Answered] = []

        def on_done(each: Answered, appended: asyncio.Future[Position]) -> None:
            nonlocal left
            left -= 1
            if self._error_of(appended) is not None:
                refused.append(each)
            if left:
                return
            if refused:
                again = partial(self._respond, together, refused, min(2 * retry_s, _RETRY_MAX_S))
                self._loop.call_later(retry_s, again)
            else:
                self._delayed = False
                self._ack(together)

        for each in missing:
            appended = self._words.respond(each.held, each.response)
            appended.add_done_callback(partial(on_done, each))

    @ends_the_role
    def _ack(self, together: Sequence[Answered]) -> None:
        """Ack what is done."""
        for each in together:
            if not each.acks:
                self._settle((each.held,), acked=False)
        for queue_key, part in by_queue(each.held for each in together if each.acks):
            self._append_ack(queue_key, part, _RETRY_FIRST_S)

    def _append_ack(self, queue_key: str, part: Sequence[HeldJob], retry_s: float) -> None:
        """Ack what is still claimed."""
        if self._closed:
            return
        held: list[HeldJob] = []
        for each in part:
            if self._listener.still_holds(each):
                held.append(each)
            else:
                self._settle((each,), acked=False)
        if not held:
            return
        appended = self._words.ack(queue_key, self._listener.incarnation, held)
        appended.add_done_callback(partial(self._on_acked, queue_key, held, retry_s))

    @ends_the_role
    def _on_acked(
        self,
        queue_key: str,
        part: Sequence[HeldJob],
        retry_s: float,
        appended: asyncio.Future[Position],
    ) -> None:
        if self._error_of(appended) is None:
            self._delayed = False
            self._listener.acked(part, appended.result())
            self._settle(part, acked=True)
            return
        again: Callable[[], None] = partial(
            self._append_ack, queue_key, part, min(2 * retry_s, _RETRY_MAX_S)
        )
        self._loop.call_later(retry_s, again)

    def _settle(self, jobs: Sequence[HeldJob], *, acked: bool) -> None:
        self._under_way -= len(jobs)
        self._listener.answered(jobs, acked=acked)

    def _error_of(self, appended: asyncio.Future[Position]) -> BaseException | None:
        """Return why an append failed; what no retry mends fails the worker as well."""
        error = appended.exception()
        if error is None:
            return None
        if not (isinstance(error, BrokerError) and error.retryable):
            self._closed = True
            self._listener.fail(error)
        elif not self._delayed:
            self._delayed = True  # once for all that an outage delays
            _LOG.warning("worker_answers_delayed", extra={"reason": str(error)})
        return error
