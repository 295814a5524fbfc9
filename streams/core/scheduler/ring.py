"""A sorted set of names with a cyclic successor, in O(log n) and small memory moves.

Source: SEMANTICS 6.4 steps 4 and 5; DESIGN decision A9 (a stable ring).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Final

_BLOCK: Final = 512
"""Names in a block once it is split; more than twice as many are never moved for one insertion."""


class Ring:
    """Names in their order, kept in sorted blocks."""

    __slots__ = ("_blocks", "_found", "_lasts")

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []
        self._lasts: list[str] = []
        self._found = (0, 0)
        """Where `after` has found its name: what is removed is mostly that."""

    def __bool__(self) -> bool:
        """Whether there is a name."""
        return bool(self._blocks)

    def add(self, name: str, /) -> None:
        """Add a name that is not there."""
        blocks, lasts = self._blocks, self._lasts
        if not blocks:
            blocks.append([name])
            lasts.append(name)
            return
        at = bisect_left(lasts, name)
        if at == len(lasts):
            at -= 1
            blocks[at].append(name)
            lasts[at] = name
        else:
            insort(blocks[at], name)
        block = blocks[at]
        if len(block) > 2 * _BLOCK:
            blocks[at : at + 1] = [block[:_BLOCK], block[_BLOCK:]]
            lasts[at : at + 1] = [block[_BLOCK - 1], block[-1]]

    def remove(self, name: str, /) -> None:
        """Remove a name that is there."""
        at, place = self._found
        blocks = self._blocks
        if at >= len(blocks) or place >= len(blocks[at]) or blocks[at][place] != name:
            at = bisect_left(self._lasts, name)
            place = bisect_left(blocks[at], name)
        block = blocks[at]
        assert block[place] == name, "only what is there is removed"
        del block[place]
        if block:
            self._lasts[at] = block[-1]
        else:
            del blocks[at], self._lasts[at]

    def after(self, name: str | None, /) -> str | None:
        """Return the first name greater than `name`, else the first of all; None when empty."""
        if not self._blocks:
            return None
        at = len(self._lasts) if name is None else bisect_right(self._lasts, name)
        if name is None or at == len(self._lasts):
            self._found = (0, 0)
            return self._blocks[0][0]
        block = self._blocks[at]
        place = bisect_right(block, name)
        self._found = (at, place)
        return block[place]
