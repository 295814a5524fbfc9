"""A run: fairness keys that wait together, and what each of them got since the run began.

    share of a key = what all of the run got · its weight / the weight of all
    |selected - share| <= weight · quantum + the largest weight · quantum

A key that stops waiting leaves the run with what it got; one that comes is in the next run.  So at
every moment the run is of keys that have waited since it began, and the bound holds whatever credit
each had then: in R refills a key with weight w got R · w · quantum and its credit then, but for its
credit now, and each credit is between nothing and w · quantum.  Of two keys with `s` and `t`
selections, |s / v - t / w| <= 2 · quantum follows for weights v and w, and with it the bound.

Where a credit may come from a policy that gave more, `carried` is what it may be at most; the run
then judges by that.

Invariants: numbers are whole; `_least` has an entry for each member that is at most when it is due.

Source: SEMANTICS 6.4, 6.5; DESIGN "Proof".
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["Run", "Stake"]

_FRACTION_BITS: Final = 32


class Stake(NamedTuple):
    """What a key has when a run begins: its weight, and the most that its credit may be."""

    weight: int
    carried: int


@dataclass(slots=True)
class _Member:
    weight: int
    allowed: int
    selected: int = 0


class Run:
    """One run.

    Args:  began: the record before which it began, for people.
           quantum: of the policy in force.
           stakes: the keys that wait now.
    """

    __slots__ = (
        "_carried",
        "_least",
        "_members",
        "_total",
        "_weight",
        "began",
        "patience",
        "selections",
    )

    def __init__(self, began: str, quantum: int, stakes: Mapping[str, Stake]) -> None:
        self.began = began
        self.selections = 0
        """Of all keys, those that are not in the run included."""
        self._total = 0
        self._weight = sum(each.weight for each in stakes.values())
        largest = max((each.carried for each in stakes.values()), default=0)
        # Each key's credit is within its weight's part of this.
        rounds = max((-(-each.carried // each.weight) for each in stakes.values()), default=0)
        self._members = {
            name: _Member(each.weight, each.carried + max(largest, each.weight * rounds))
            for name, each in stakes.items()
        }
        self._carried = (
            sum(each.carried for each in stakes.values())
            if any(each.carried > each.weight * quantum for each in stakes.values())
            else None
        )
        self.patience = max(
            (-(-each.allowed // each.weight) for each in self._members.values()), default=0
        )
        """Who has got nothing when each other key has got more than so many times its weight has
        not got its share."""
        self._least = [(self._due(each), name) for name, each in self._members.items()]
        heapq.heapify(self._least)

    def __len__(self) -> int:
        """How many keys are in it."""
        return len(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    @property
    def rounds(self) -> int:
        """How many times its weight each key has got, on the whole."""
        return self._total // self._weight if self._weight else 0

    @property
    def is_settled(self) -> bool:
        """Whether no key has credit left of what it had when the run began."""
        return self._carried is None or self._total > self._carried

    @property
    def is_judged_by_more(self) -> bool:
        """Whether some credit may come from a policy that gave more."""
        return self._carried is not None

    def leave(self, name: str, /) -> None:
        """A key waits no more, or nobody can say whether it does."""
        member = self._members.pop(name, None)
        if member is not None:
            self._total -= member.selected
            self._weight -= member.weight

    def select(self, name: str, /) -> str | None:
        """A key is selected, at the cost of credit; return what is wrong then."""
        self.selections += 1
        member = self._members.get(name)
        if member is None:
            return None
        member.selected += 1
        self._total += 1
        over = (member.selected - member.allowed) * self._weight - self._total * member.weight
        if over > 0:
            return self._told(name, member)
        return self._look_behind()

    def _look_behind(self) -> str | None:
        """Look whether a key has got too little; asks those that may be due."""
        asked: list[tuple[int, str]] = []
        found: str | None = None
        now = (self._total << _FRACTION_BITS) // self._weight
        while found is None and self._least and self._least[0][0] <= now:
            _, name = heapq.heappop(self._least)
            member = self._members.get(name)
            if member is None:
                continue
            asked.append((self._due(member), name))
            behind = self._total * member.weight - (member.selected + member.allowed) * self._weight
            if behind > 0:
                found = self._told(name, member)
        for entry in asked:
            heapq.heappush(self._least, entry)
        return found

    def _due(self, member: _Member) -> int:
        """Return after how many rounds a member is behind if it gets nothing more, rounded down."""
        return ((member.selected + member.allowed) << _FRACTION_BITS) // member.weight

    def _told(self, name: str, member: _Member) -> str:
        share = self._total * member.weight / self._weight
        return (
            f"fairness key {name!r} got {member.selected} of {self._total} selections since "
            f"{self.began}, its share is {share:.1f} (weight {member.weight} of {self._weight}), "
            f"expected within {member.allowed} of it"
        )
