"""Which invocations need a `running` record, and when: leases as a pure function of time.

An invocation that runs for `ANNOUNCE_AFTER_MS` is announced, which starts its lease in dispatch;
most end before and cost no record.  Every third of a lease one record per home partition renews
all that are announced there.  A third leaves room for two lost or late records.

Invariants: no word lists an invocation that has ended; an announced invocation is named again
within a third of the lease of its last word, as long as `due` is called at `next_due_ms`.

Source: DESIGN "An invocation".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

__all__ = ["Due", "Invocation", "LeaseBook", "Word"]

ANNOUNCE_AFTER_MS = 1_000
RETRY_AFTER_MS = 500
"""A word that the broker did not take is said again so soon."""

WORD_INVOCATIONS_MAX = 5_000
"""About 200 KB of ids: well below the largest record."""


class Invocation(Protocol):
    """What the book needs to know of an invocation; compared by identity."""

    @property
    def dispatch_id(self) -> str:
        """Return the dispatch that it belongs to."""
        ...

    @property
    def attempt(self) -> int:
        """Return the number of its attempt, from 1."""
        ...

    @property
    def fence(self) -> int:
        """Return its fencing number."""
        ...

    @property
    def home_partition(self) -> int:
        """Return the partition of the dispatch mailbox that owns it."""
        ...


class Word(NamedTuple):
    """One `running` record to append: what runs here of one home partition."""

    home_partition: int
    invocations: tuple[Invocation, ...]


class Due(NamedTuple):
    """What must be said now; `late_ms` is how long a renewal is overdue beyond the lease, or 0."""

    words: list[Word]
    late_ms: int


class LeaseBook:
    """The invocations that run here.  All times are milliseconds of one monotonic clock."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._renew_every_ms = max(1, lease_ms // 3)
        # A short lease must be announced well before it would end, had it begun at the start.
        self._announce_after_ms = min(ANNOUNCE_AFTER_MS, self._renew_every_ms)
        self._young: dict[Invocation, int] = {}  # start time, growing
        self._announced: dict[int, dict[Invocation, None]] = {}  # by home partition
        self._renewed_ms = 0
        self._renew_at_ms = 0

    def started(self, invocation: Invocation, now_ms: int) -> None:
        """Note that an invocation is ours from now on; saying so twice changes nothing."""
        if invocation not in self._announced.get(invocation.home_partition, ()):
            self._young.setdefault(invocation, now_ms)

    def ended(self, invocation: Invocation) -> None:
        """Note that it runs no more; harmless when it is not known."""
        if self._young.pop(invocation, None) is not None:
            return
        home = self._announced.get(invocation.home_partition)
        if home is not None:
            home.pop(invocation, None)
            if not home:
                del self._announced[invocation.home_partition]

    def next_due_ms(self) -> int | None:
        """Return when `due` has something to say, or None while nothing runs."""
        times = [self._renew_at_ms] if self._announced else []
        if self._young:
            times.append(next(iter(self._young.values())) + self._announce_after_ms)
        return min(times, default=None)

    def due(self, now_ms: int) -> Due:
        """Return what must be said now, taking it as said."""
        if self._announced and now_ms >= self._renew_at_ms:
            late_ms = max(0, now_ms - self._renewed_ms - self._lease_ms)
            self._announce(self._ripe(now_ms), now_ms)
            self._renewed(now_ms)
            homes = {home: list(members) for home, members in self._announced.items()}
            return Due(_words(homes), late_ms)
        return Due(self.announce(self._ripe(now_ms), now_ms), 0)

    def announce(self, invocations: Iterable[Invocation], now_ms: int) -> list[Word]:
        """Return the words that start the leases of running `invocations`, whatever their age."""
        return _words(self._announce(invocations, now_ms))

    def said_in_vain(self, now_ms: int) -> None:
        """Note that a word did not reach the log: everything is said again soon."""
        self._renew_at_ms = min(self._renew_at_ms, now_ms + RETRY_AFTER_MS)

    def _ripe(self, now_ms: int) -> list[Invocation]:
        born_ms = now_ms - self._announce_after_ms
        ripe: list[Invocation] = []
        for invocation, started_ms in self._young.items():
            if started_ms > born_ms:
                break
            ripe.append(invocation)
        return ripe

    def _announce(
        self, invocations: Iterable[Invocation], now_ms: int
    ) -> dict[int, list[Invocation]]:
        homes: dict[int, list[Invocation]] = {}
        if not self._announced:
            self._renewed(now_ms)
        for invocation in invocations:
            self._young.pop(invocation, None)
            self._announced.setdefault(invocation.home_partition, {})[invocation] = None
            homes.setdefault(invocation.home_partition, []).append(invocation)
        return homes

    def _renewed(self, now_ms: int) -> None:
        self._renewed_ms = now_ms
        self._renew_at_ms = now_ms + self._renew_every_ms


def _words(homes: dict[int, list[Invocation]]) -> list[Word]:
    return [
        Word(home, tuple(members[start : start + WORD_INVOCATIONS_MAX]))
        for home, members in homes.items()
        for start in range(0, len(members), WORD_INVOCATIONS_MAX)
    ]
