"""Which job of a queue is next: fifo, or deficit round robin over fairness keys.

| strategy | next |
|---|---|
| fifo | the least (effective rank, enqueue time, id) of all keys below their cap |
| drr, a job is older than the starvation age | the oldest job (mode `job`), or the job of the key that has waited longest (mode `key`); it costs no credit |
| drr | the next key with credit after the one served last, in the order of names; when no key has credit, each eligible one gets weight · quantum |

A key is eligible while it has ready jobs and is below its cap.  A refill touches no key: eligible
keys without credit stand in `spent`, those with credit in `funded`, and a refill exchanges the two;
a key's own credit is settled when it is touched.  So a decision costs O(log keys) at worst.

Invariants: every eligible key is in exactly one of `funded` and `spent`; no eligible key has credit
when a round begins, so that credit never exceeds weight · quantum of the policy that gave it;
without promotions, selected + credit = weight · quantum · rounds while eligible.

Source: SEMANTICS 6.3-6.5; DESIGN decisions A6-A9.
"""  # noqa: E501 - a table

from __future__ import annotations

from typing import NamedTuple

from streams.core.scheduler.heads import Heads
from streams.core.scheduler.job_id import enqueued_ms
from streams.core.scheduler.key import Key
from streams.core.scheduler.policy import PROMOTED_AFTER_MS, weight_of
from streams.core.scheduler.ring import Ring
from streams.core.wire import SchedulerPolicy


class Chosen(NamedTuple):
    """The job that is next: its key, its place, its rank, and whether its age selected it."""

    key: Key
    place: int
    rank: int
    promoted: bool


class Selection:
    """The fairness keys of one queue, and what decides among them."""

    __slots__ = (
        "_age_ms",
        "_by_rank",
        "_cap",
        "_funded",
        "_spent",
        "_waiting",
        "dirty",
        "keys",
        "last_selected",
        "policy",
        "promotions",
        "ready",
        "rounds",
        "selected",
        "selects",
        "takes_turns",
        "weight",
    )

    def __init__(self, policy: SchedulerPolicy) -> None:
        self.policy = policy
        self.keys: dict[str, Key] = {}
        self.dirty: set[str] = set()
        """Keys that have changed since they were last stored."""
        self.rounds = self.selects = self.selected = self.promotions = self.ready = 0
        self.last_selected: str | None = None
        self._empty()

    def _empty(self) -> None:
        self.weight = 0
        """Weights of the eligible keys, summed up."""
        # Of the policy, what is asked for at every job.
        self.takes_turns: bool = self.policy["strategy"] == "drr"
        self._age_ms = self.policy["starvation_age_ms"]
        self._cap = self.policy["max_concurrent_per_key"]
        self._funded, self._spent = Ring(), Ring()
        self._by_rank = tuple(Heads(self._head_of(rank)) for rank in (0, 1, 2))
        self._waiting = Heads(self._waits_since)

    # ------------------------------------------------------------------ keys
    def key(self, name: str, /) -> Key:
        """Return the key of a name, a new one where it is not known."""
        found = self.keys.get(name)
        if found is None:
            found = self.keys[name] = Key(name, weight_of(self.policy, name))
            found.round = self.rounds
        return found

    def settle(self, key: Key, /) -> None:
        """Give an eligible key the credit of the rounds that it has not been touched in."""
        if key.round < self.rounds:
            if key.eligible:
                key.credit += key.weight * self.policy["quantum"] * (self.rounds - key.round)
            key.round = self.rounds
            self.dirty.add(key.name)

    def adopt(self, policy: SchedulerPolicy, /) -> None:
        """Go on under another policy with the same fairness key; credit and counts stay."""
        for key in self.keys.values():
            self.settle(key)
        self.policy = policy
        for key in self.keys.values():
            key.weight = weight_of(policy, key.name)
        self.rebuild()
        self.recount()

    def rebuild(self) -> None:
        """Derive what decides from the keys alone."""
        self._empty()
        self.ready = sum(key.ready for key in self.keys.values())
        for key in self.keys.values():
            key.eligible = False
            if key.ready:
                before = key.round
                self.refresh(key, settled=False)
                assert key.round == before, "a rebuild settles nothing"

    def refresh(self, key: Key, /, *, settled: bool = True) -> None:
        """Enter or leave the key where its jobs and claims have changed."""
        capped = key.ready > 0 and self.is_full(key)
        eligible = key.ready > 0 and not capped
        if settled:
            if capped != (key.capped_at is not None):
                self._count_deferrals(key, capped=capped)
            if eligible != key.eligible:
                self.settle(key)
        if eligible == key.eligible:
            return
        key.eligible = eligible
        ring = self._funded if self.credit_of(key) > 0 else self._spent
        if not eligible:
            ring.remove(key.name)
            self.weight -= key.weight
            return
        ring.add(key.name)
        self.weight += key.weight
        self._offer(key)

    def is_full(self, key: Key, /) -> bool:
        """Whether a key has as many claims in force as it may have at once."""
        return 0 < self._cap <= key.in_flight

    def recount(self) -> None:
        """Count for each key whether it is at its cap now: the cap or the dimension is another."""
        for key in self.keys.values():
            capped = key.ready > 0 and not key.eligible
            if capped != (key.capped_at is not None):
                self._count_deferrals(key, capped=capped)

    def close(self, key: Key, /) -> None:
        """A key's dimension is not in force any more: it is passed over no more."""
        if key.capped_at is not None:
            self._count_deferrals(key, capped=False)

    def _count_deferrals(self, key: Key, *, capped: bool) -> None:
        if key.capped_at is not None:
            key.deferred += self.selects - key.capped_at
        key.capped_at = self.selects if capped else None
        self.dirty.add(key.name)

    def credit_of(self, key: Key, /) -> int:
        """Return the credit of a key, with that of the rounds that it was not touched in."""
        if not key.eligible:
            return key.credit
        return key.credit + key.weight * self.policy["quantum"] * (self.rounds - key.round)

    # ------------------------------------------------------------------ jobs
    def add(self, key: Key, place: int, rank: int, /) -> None:
        """A job may be claimed."""
        key.push(place, rank)
        self.ready += 1
        if not key.eligible:
            self.refresh(key)
        elif self.takes_turns:
            if self._age_ms:
                self._waiting.offer(key.name, self._since(key, place))
        else:
            self._by_rank[rank].offer(key.name, place)

    def remove(self, key: Key, place: int, /) -> None:
        """A job may not be claimed any more, though nobody has claimed it."""
        key.take_out(place)
        self.ready -= 1
        self.refresh(key)

    def take(self, key: Key, most: int, /) -> list[int]:
        """Take ready jobs of a key off the queue, the oldest first; return their places."""
        places = key.take(most)
        self.ready -= len(places)
        self.refresh(key)
        self.dirty.add(key.name)
        return places

    def claimed(self, key: Key, by: int, /) -> None:
        """The key has `by` more claims in force, or fewer."""
        key.in_flight += by
        if self._cap or key.capped_at is not None:
            self.refresh(key)

    # ------------------------------------------------------------------ selection
    def select(self, now_ms: int, /) -> Chosen | None:
        """Take the job that is next and count it as claimed; None when no key is eligible."""
        if not self.ready:
            return None
        self.selects += 1
        chosen = self._drr(now_ms) if self.takes_turns else self._fifo(now_ms)
        if chosen is None:
            return None
        key = chosen.key
        key.selected += 1
        key.served_at_ms = now_ms
        key.in_flight += 1
        self.ready -= 1
        self.selected += 1
        self.last_selected = key.name
        self.dirty.add(key.name)
        if self._cap or not key.ready:
            self.refresh(key)
        return chosen

    def _fifo(self, now_ms: int) -> Chosen | None:
        high, normal, low = (heads.first() for heads in self._by_rank)
        best, rank = high, 0
        if normal is not None and (
            high is None or (normal < high and enqueued_ms(normal[0]) + PROMOTED_AFTER_MS <= now_ms)
        ):
            best, rank = normal, 1
        if best is None:
            best, rank = low, 2
        if best is None:
            return None
        key = self.keys[best[1]]
        return Chosen(key, key.pop(rank), rank, promoted=False)

    def _drr(self, now_ms: int) -> Chosen | None:
        age_ms = self._age_ms
        if age_ms and self._waiting.may_reach(now_ms - age_ms):
            starving = self._waiting.first()
            if starving is not None and starving[0] + age_ms <= now_ms:
                return self._promote(self.keys[starving[1]], now_ms)
        name = self._funded.after(self.last_selected)
        if name is None:
            if not self._spent:
                return None
            self._funded, self._spent = self._spent, self._funded
            self.rounds += 1
            name = self._funded.after(self.last_selected)
            assert name is not None, "who had no credit has some now"
        key = self.keys[name]
        if key.round < self.rounds:
            self.settle(key)
        key.credit -= 1
        if not key.credit:
            self._funded.remove(name)
            self._spent.add(name)
        rank = key.first_rank(now_ms)
        return Chosen(key, key.pop(rank), rank, promoted=False)

    def _promote(self, key: Key, now_ms: int) -> Chosen:
        by_job = self.policy["starvation_mode"] != "key"
        rank = key.rank_of_oldest() if by_job else key.first_rank(now_ms)
        key.promotions += 1
        self.promotions += 1
        return Chosen(key, key.pop(rank), rank, promoted=True)

    # ------------------------------------------------------------------ what the heaps ask
    def _offer(self, key: Key) -> None:
        if not self.takes_turns:
            for rank, heads in enumerate(self._by_rank):
                head = key.head(rank)
                if head is not None:
                    heads.offer(key.name, head)
        elif self._age_ms:
            oldest = key.oldest()
            assert oldest is not None, "an eligible key has a job"
            self._waiting.offer(key.name, self._since(key, oldest))

    def _since(self, key: Key, place: int) -> int:
        """Since when a key waits for which a job at `place` is the oldest, ms."""
        since_ms = enqueued_ms(place)
        return max(since_ms, key.served_at_ms) if self._by_key else since_ms

    @property
    def _by_key(self) -> bool:
        return self.policy["starvation_mode"] == "key"

    def _waits_since(self, name: str) -> int | None:
        key = self.keys.get(name)
        if key is None or not key.eligible:
            return None
        oldest = key.oldest()
        return None if oldest is None else self._since(key, oldest)

    def _head_of(self, rank: int):  # noqa: ANN202 - a closure of the type that Heads asks for
        def head(name: str) -> int | None:
            key = self.keys.get(name)
            return key.head(rank) if key is not None and key.eligible else None

        return head
