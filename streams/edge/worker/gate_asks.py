"""Whether jobs may start whose trigger has gates: asked of the scheduler, many at a time.

    job begins, its predicate says yes → keys → `gates_requested` → `gates_answered`
        admitted: its handler runs    delayed, skipped, lost: it is no longer this worker's

A job that waits for its answer takes no handler's place.  What is not answered within some seconds
is asked for again, which changes nothing: a word of either side may have been lost.

Source: decision 18; DESIGN "A job".
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from streams.core.record import Position
from streams.core.wire import GatesAnswered
from streams.edge.invoker.guard import ends_the_role
from streams.edge.worker.held import HeldJob, HeldJobs
from streams.edge.worker.words import Words, by_queue
from streams.errors import BrokerError
from streams.observe import logs

__all__ = ["ASK_AGAIN_S", "JOBS_PER_ASK_MAX", "GateAsks", "GateListener", "asked_for"]

_LOG = logs.logger(__name__)

JOBS_PER_ASK_MAX = 250
ASK_BYTES_MAX = 400_000
"""Jobs in one record, and bytes of what is said of them: a word above the mailbox's bound would be
quarantined, and none of its jobs have an answer."""

_JOB_OVERHEAD_BYTES = 256
"""Ids, names of gates and lengths of a job in a word, at most."""

ASK_AGAIN_S = 5.0


class GateListener(Protocol):
    """Hears on the event loop."""

    incarnation: str
    """Under which claims are held."""

    def admitted(self) -> None:
        """Jobs may start: they wait for their turn."""
        ...

    def taken_back(self, held: HeldJob, answer: str) -> None:
        """A job is this worker's no more; `answer` is the schema's word."""
        ...

    def fail(self, error: BaseException) -> None:
        """The broker refuses what is appended; no retry mends it."""
        ...


class GateAsks:
    """Jobs that wait for the word of their gates.

    Args:    digest: of the gates that this worker registers.
    """

    def __init__(self, words: Words, held: HeldJobs, listener: GateListener, digest: str) -> None:
        self._words, self._held, self._listener = words, held, listener
        self._loop = asyncio.get_running_loop()
        self._digests = {digest}
        self._differs: dict[str, str] = {}
        self._collected: list[HeldJob] = []

    def registered(self, digest: str) -> None:
        """Note that this worker has registered these gates as well."""
        self._digests.add(digest)

    def in_force(self, queue_key: str, digest: str) -> None:
        """Look which gates the scheduler goes by, and say so if they are another worker's."""
        if not digest or digest in self._digests or self._differs.get(queue_key) == digest:
            return
        self._differs[queue_key] = digest
        _LOG.warning("worker_gates_differ", extra={"queue": queue_key, "digest": digest})

    def add(self, held: HeldJob, keys: Mapping[str, str]) -> None:
        """Ask for a job, together with those that begin in the same turn of the loop."""
        held.gate_keys = dict(keys)
        self._held.ask(held)
        self._collect([held])

    def again(self, now_s: float) -> None:
        """Ask again for what has had no answer for a while."""
        late = [each for each in self._held.asking if each.asked_s + ASK_AGAIN_S <= now_s]
        self._collect([each for each in late if each not in self._collected])

    def _collect(self, jobs: Sequence[HeldJob]) -> None:
        if jobs and not self._collected:
            self._loop.call_soon(self._flush)
        self._collected += jobs

    @ends_the_role
    def _flush(self) -> None:
        collected, self._collected = self._collected, []
        now_s = self._loop.time()
        asking = [each for each in collected if each.state == "asking" and not each.lost]
        for queue_key, part in by_queue(asking):
            for asked in _parts(part):
                for each in asked:
                    each.asked_s = now_s
                appended = self._words.ask(queue_key, self._listener.incarnation, asked_for(asked))
                appended.add_done_callback(partial(self._on_appended, asked))

    def _on_appended(self, asked: Sequence[HeldJob], appended: asyncio.Future[Position]) -> None:
        error = appended.exception()
        if error is None:
            return
        if not (isinstance(error, BrokerError) and error.retryable):
            self._listener.fail(error)
            return
        _LOG.warning("worker_not_heard", extra={"kind": "gates_requested", "reason": str(error)})
        for each in asked:
            each.asked_s = float("-inf")  # the next beat asks again

    def fail(self, error: BaseException) -> None:
        """End the worker."""
        self._listener.fail(error)

    def answered(self, said: GatesAnswered) -> None:
        """Take what the gates said; a claim that is not asked for any more is passed over."""
        for each in said["answers"]:
            if each["answer"] == "admitted":
                self._held.admit(said["queue"], each["claim_id"])
                continue
            held = self._held.withdraw(said["queue"], each["claim_id"])
            if held is not None:
                self._listener.taken_back(held, each["answer"])
        self._listener.admitted()


def _parts(jobs: Iterable[HeldJob]) -> list[list[HeldJob]]:
    """Part jobs into words of a bounded size."""
    parts: list[list[HeldJob]] = [[]]
    size = 0
    for held in jobs:
        length = _size_of(held)
        if parts[-1] and (len(parts[-1]) == JOBS_PER_ASK_MAX or size + length > ASK_BYTES_MAX):
            parts.append([])
            size = 0
        parts[-1].append(held)
        size += length
    return parts


def _size_of(held: HeldJob) -> int:
    """Return how many bytes a job has in a word, at most: whoever made its event wrote the keys."""
    texts = (held.trigger_id or "", held.dispatch_id or "", *(held.gate_keys or {}).values())
    return _JOB_OVERHEAD_BYTES + sum(
        len(text) if text.isascii() else 4 * len(text) for text in texts
    )


def asked_for(jobs: Iterable[HeldJob]) -> list[dict[str, Any]]:
    """Return what is asked of the gates for these jobs."""
    return [
        {
            **held.claimed,
            "trigger_id": held.trigger_id,
            "dispatch_id": held.dispatch_id,
            "keys": held.gate_keys,
        }
        for held in jobs
    ]
