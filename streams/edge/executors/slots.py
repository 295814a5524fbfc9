"""Who may start: a bound on running handlers, shared so that no trigger can fill it.

A trigger may start another handler as long as it runs fewer than three times the free slots.  So
one slow trigger comes to rest at three quarters of the slots, and one that comes later finds a
quarter free; as handlers end, two come to three sevenths each, n to 3/(3n + 1).  Nobody has to
know how many there are, and nothing is reserved by name.  As long as only one trigger was ever
seen, it gets every slot.

Invariants: at most `slots_max` run; what waits of one trigger starts in the order in which it
came; nothing waits while its trigger may start.

Source: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches",
IEEE/ACM Transactions on Networking 6(2), 1998; DESIGN "Backpressure".
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

__all__ = ["Slots"]

_FREE_SLOTS_FACTOR = 3

T = TypeVar("T")


class Slots(Generic[T]):
    """The slots of one invoker, and what waits for them, by trigger."""

    def __init__(self, slots_max: int) -> None:
        self._slots_max = slots_max
        self._running: Counter[str] = Counter()
        self._running_total = 0
        self._waiting: dict[str, deque[T]] = {}  # triggers in the order of their turns
        self._only: str | None = None  # the trigger that was seen, while there is only one
        self._several = False
        self._filling = False

    @property
    def running(self) -> int:
        """Return how many slots are taken."""
        return self._running_total

    def offer(self, trigger: str, item: T) -> bool:
        """Take a slot for `item` and return True, or let it wait and return False."""
        if not self._several and trigger != self._only:
            self._several = self._only is not None
            self._only = trigger
        if trigger not in self._waiting and self._may_start(trigger):
            self._take(trigger)
            return True
        self._waiting.setdefault(trigger, deque()).append(item)
        return False

    def ended(self, trigger: str) -> None:
        """Free a slot; `next` says who gets it."""
        assert self._running[trigger] > 0, f"no slot of {trigger} is taken"
        self._running[trigger] -= 1
        if not self._running[trigger]:
            del self._running[trigger]
        self._running_total -= 1

    def next(self) -> T | None:
        """Take a slot for what has waited longest of the next trigger that may start, if any."""
        for trigger, items in self._waiting.items():
            if self._may_start(trigger):
                item = items.popleft()
                del self._waiting[trigger]
                if items:
                    self._waiting[trigger] = items  # its next turn comes after the others'
                self._take(trigger)
                return item
        return None

    def fill(self, start: Callable[[T], None]) -> None:
        """Start all that may start; what ends while it starts has its slot filled as well."""
        if self._filling or not self._waiting:
            return
        self._filling = True
        try:
            while (item := self.next()) is not None:
                start(item)
        finally:
            self._filling = False

    def withdraw(self, items: Collection[T]) -> None:
        """Let none of these wait any longer."""
        kept = {
            trigger: deque(item for item in waiting if item not in items)
            for trigger, waiting in self._waiting.items()
        }
        self._waiting = {trigger: waiting for trigger, waiting in kept.items() if waiting}

    def _take(self, trigger: str) -> None:
        self._running[trigger] += 1
        self._running_total += 1

    def _may_start(self, trigger: str) -> bool:
        free = self._slots_max - self._running_total
        if not self._several:
            return free > 0
        return self._running[trigger] < _FREE_SLOTS_FACTOR * free
