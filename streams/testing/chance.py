"""Choices that a seed decides: the same seed gives the same run on every machine and Python.

SplitMix64: 64 bits of state, equally distributed, and short enough to be read.

Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


class Chance:
    """A stream of choices.  Not for secrets."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def below(self, bound: int) -> int:
        """Return a number from 0 up to, not including, `bound`, which is at least 1."""
        self._state = (self._state + _GAMMA) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((mixed ^ (mixed >> 31)) * bound) >> 64

    def happens(self, per_mille: int) -> bool:
        """Return whether something that happens `per_mille` times in a thousand happens now."""
        return per_mille > 0 and self.below(1_000) < per_mille

    def pick(self, items: Sequence[_Item]) -> _Item:
        """Return one of `items`, of which there is at least one."""
        return items[self.below(len(items))]
