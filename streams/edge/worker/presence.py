"""A worker's presence: heartbeats, renewals, and what time does to its claims.

One timer, once a second and more often where claims are short.  Each beat gives up what has run
out, renews what is half through, and tells every partition of the mailbox that has a queue of this
worker what it holds there and could take.  What cannot wait for the beat is said soon after.

The capacity is what the worker can take in all, divided among the partitions: a partition knows
nothing of the others, see `streams.edge.worker.shares`.

Source: DESIGN "A job".
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from streams.core.record import Position
from streams.edge.invoker.guard import ends_the_role
from streams.edge.worker.held import HeldJob, HeldJobs
from streams.edge.worker.plan import WorkerPlan
from streams.edge.worker.shares import Shares
from streams.edge.worker.words import CLAIMS_PER_WORD_MAX, Words
from streams.errors import BrokerError, ConfigError
from streams.observe import logs

__all__ = ["BEAT_S", "Presence"]

_LOG = logs.logger(__name__)

BEAT_S = 1.0
"""Between heartbeats; a quarter of a claim's time where that is less."""

_SOON_S = 0.005

APART_S = 0.3
"""Between any two heartbeats while it works: a claim that two of them leave out is released, so
that its grant must have the time to arrive between them."""

_BELIEVED_BEATS = 2.5
"""How long a partition's word counts that jobs wait there: it repeats it at each beat."""


class Present(Protocol):
    """Whose presence it is."""

    incarnation: str

    @property
    def held(self) -> HeldJobs:
        """The claims."""
        ...

    @property
    def capacity(self) -> int:
        """How many jobs it could take."""
        ...

    def ending_within(self, seconds: float) -> int:
        """How many places of jobs come free in that time, as far as was measured."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether nothing of what it was granted is left to do."""
        ...

    def expire(self, now_s: float) -> None:
        """Give up what has run out."""
        ...

    def begin_anew(self, now_s: float, late_s: float) -> None:
        """Go on as another incarnation."""
        ...

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        ...


class Presence:
    """Says what a worker has and could take."""

    def __init__(
        self, plan: WorkerPlan, words: Words, deliveries_partition: int, who: Present
    ) -> None:
        self._plan, self._words, self._who = plan, words, who
        self._deliveries_partition = deliveries_partition
        self._loop = asyncio.get_running_loop()
        self._ttl_s = plan.claim_ttl_ms / 1_000
        self._beat_s = min(BEAT_S, self._ttl_s / 4)
        self._queues: defaultdict[int, list[str]] = defaultdict(list)
        for queue_key in plan.queue_keys:
            self._queues[words.partition_of(queue_key)].append(queue_key)
        self._shares = Shares(tuple(self._queues), _BELIEVED_BEATS * self._beat_s)
        self._seq = 0
        self._idle_seq: int | None = None  # of the first heartbeat after all was done
        self._empty: set[str] = set()
        self._granted_at_ms: dict[int, int] = {}  # the newest grant, by partition
        self._said_capacity = 0
        self._said_s = float("-inf")
        self._apart_s = min(APART_S, self._beat_s / 2)
        self._next_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.TimerHandle | None = None
        self._leaving = False

    def start(self) -> None:
        """Say that the worker is there, and go on saying it."""
        self._next_s = self._loop.time()
        self._beat()

    def leave(self) -> None:
        """Say that it takes nothing more."""
        self._leaving = True
        self._say()

    def stop(self) -> None:
        """Say nothing more but a last word."""
        for timer in (self._timer, self._soon):
            if timer is not None:
                timer.cancel()
        self._say()

    def say_soon(self) -> None:
        """Say what has changed, together with what changes within some milliseconds."""
        if self._soon is None and not self._leaving:
            wait_s = max(_SOON_S, self._said_s + self._apart_s - self._loop.time())
            self._soon = self._loop.call_later(wait_s, self._say)

    def look(self) -> None:
        """Say soon that there is room for what waits, much more than was said, or all is done."""
        capacity = self._who.capacity
        idle = self._plan.once and self._idle_seq is None and self._who.is_idle
        wanted = capacity > 0 and self._shares.waits(self._loop.time())
        if idle or wanted or self._who.held.busy + capacity > 2 * self._said_capacity:
            self.say_soon()

    def granted(self, queue_key: str, granted_at_ms: int) -> None:
        """Note that there was something for it: what was empty before may not be so now."""
        self._idle_seq = None
        self._empty.clear()
        partition = self._words.partition_of(queue_key)
        self._granted_at_ms[partition] = granted_at_ms
        self._shares.granted(partition, self._loop.time())

    def take(self, kind: str, said: Mapping[str, Any]) -> None:
        """Take a partition's answer to a heartbeat, of this kind."""
        if kind == "nothing_ready":
            self._nothing_ready(said["queue"], said["seq"])
        elif kind == "jobs_waiting":
            self._jobs_waiting(said["partition"], said["weight"])
        elif kind == "worker_replaced" and not self._leaving:
            name = self._plan.consumer_id
            problem = f"another worker has started as {name!r}, and takes this one's place"
            remedy = "give each worker a --consumer-id of its own, or leave it out"
            self._who.fail(ConfigError(problem, remedy=remedy))

    def _jobs_waiting(self, partition: int, weight: int) -> None:
        """Note that jobs wait in a partition for which it was offered no room."""
        news = partition in self._queues and self._shares.waiting(
            partition, weight, self._loop.time()
        )
        if news or self._who.capacity > 0:
            self.say_soon()

    def fail(self, error: BaseException) -> None:
        """End the worker."""
        self._who.fail(error)

    def _nothing_ready(self, queue_key: str, seq: int) -> None:
        """Note that a queue has nothing for a worker that runs once."""
        if self._idle_seq is not None and seq >= self._idle_seq:
            self._empty.add(queue_key)

    @property
    def is_empty(self) -> bool:
        """Whether every queue had nothing more after all was done."""
        return self._empty.issuperset(self._plan.queue_keys)

    # ------------------------------------------------------------------ the beat
    @ends_the_role
    def _beat(self) -> None:
        now_s = self._loop.time()
        late_s = now_s - self._next_s
        self._next_s = now_s + self._beat_s
        self._timer = self._loop.call_later(self._beat_s, self._beat)
        if late_s >= self._ttl_s:
            self._who.begin_anew(now_s, late_s)
            self._idle_seq = None
            self._empty.clear()
        self._who.expire(now_s)
        self._renew(now_s)
        if now_s - self._said_s >= self._apart_s:
            self._say()
        else:
            self.say_soon()

    def _renew(self, now_s: float) -> None:
        parts: defaultdict[int, list[HeldJob]] = defaultdict(list)
        for held in self._who.held.due(now_s, self._ttl_s):
            parts[self._words.partition_of(held.queue_key)].append(held)
        for partition, claims in parts.items():
            for at in range(0, len(claims), CLAIMS_PER_WORD_MAX):
                part = claims[at : at + CLAIMS_PER_WORD_MAX]
                appended = self._words.renew(partition, self._who.incarnation, part)
                appended.add_done_callback(partial(self._renewed, part, now_s + self._ttl_s))

    def _renewed(
        self, claims: Sequence[HeldJob], expires_s: float, appended: asyncio.Future[Position]
    ) -> None:
        if self._error_of("renew_requested", appended) is not None:
            return  # they are due at the next beat as well
        now_s = self._loop.time()
        for held in claims:
            if not held.lost and held.expires_s > now_s:
                held.expires_s = max(held.expires_s, expires_s)

    @ends_the_role
    def _say(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        who = self._who
        self._said_s = self._loop.time()
        self._seq += 1
        if not who.is_idle:
            self._idle_seq = None
            self._empty.clear()
        elif self._idle_seq is None:
            self._idle_seq = self._seq
        capacity = 0 if self._leaving else who.capacity
        self._said_capacity = capacity + who.held.busy
        claims: defaultdict[int, list[HeldJob]] = defaultdict(list)
        busy: Counter[int] = Counter()
        for held in who.held:
            if held.lost:
                continue  # it runs on here, and is another's
            partition = self._words.partition_of(held.queue_key)
            claims[partition].append(held)
            busy[partition] += held.state != "failed"
        shares = self._share_out(capacity, busy)
        for partition, queues in self._queues.items():
            said = {
                "incarnation": who.incarnation,
                "deliveries_partition": self._deliveries_partition,
                "queues": queues,
                "capacity": shares[partition],
                "claims": [each.ref for each in claims[partition]],
                "draining": self._leaving,
                "once": self._plan.once,
                "divided": self._shares.several,
                "seq": self._seq,
                "granted_at_ms": self._granted_at_ms.get(partition, 0),
            }
            appended = self._words.heartbeat(partition, said)
            appended.add_done_callback(partial(self._error_of, "worker_heartbeat"))

    def _share_out(self, capacity: int, busy: Mapping[int, int]) -> dict[int, int]:
        """Return what each partition is offered, or loses as its jobs end."""
        if self._leaving:
            return dict.fromkeys(self._queues, 0)
        ending = self._who.ending_within(self._apart_s)
        return self._shares.divide(self._loop.time(), free=capacity, ending=ending, has=busy)

    def _error_of(self, kind: str, appended: asyncio.Future[Position]) -> BaseException | None:
        """Return why an append failed; what no retry mends ends the worker."""
        error = appended.exception()
        if error is None:
            return None
        if not (isinstance(error, BrokerError) and error.retryable):
            self._who.fail(error)
        else:
            _LOG.warning("worker_not_heard", extra={"kind": kind, "reason": str(error)})
        return error
