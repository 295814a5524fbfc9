"""What the claims of a partition tell its next owner: which turns have ended, whose word counts.

An owner loads the claims, from a bookmark on, before it takes the first turn.  Its fence is one
higher than all that it finds; a word with a lower fence than one before it is of an owner that was
fenced in between, and counts nothing.

Only turns from the committed offset on are kept: at most as many as may run or finish past it.

Source: DESIGN law 7, "A turn"; SEMANTICS 10.2.27.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["History"]


class History:
    """The claims of a partition, folded from its log in order, for turns from `committed` on.

    `fence` is that of the last owner, as its bookmark says: it may have said nothing yet, so words
    of owners before it still count.
    """

    def __init__(self, committed: int, *, fence: int = 0) -> None:
        self._committed = committed
        self._known_until = committed
        self._owner_fence = fence
        self._fence = 0
        self._refused = 0
        self._finished: set[int] = set()
        self._attempts: dict[int, int] = {}

    @property
    def next_fence(self) -> int:
        """The fence of the owner that loads this."""
        return max(self._owner_fence, self._fence) + 1

    @property
    def known_until(self) -> int:
        """The offset from which on nothing was said of any turn."""
        return self._known_until

    @property
    def refused(self) -> int:
        """Words that counted nothing, since their owner had been fenced."""
        return self._refused

    def fold(self, kind: str, value: Mapping[str, Any], /) -> None:
        """Take the next record of the claims; a kind of a later release says nothing here."""
        fence: int = value["fence"]
        if fence < self._fence:
            self._refused += 1
            return
        self._fence = fence
        offset: int = value["turn_offset"]
        if offset < self._committed:
            return
        self._known_until = max(self._known_until, offset + 1)
        match kind:
            case "turn_claimed":
                self._attempts[offset] = max(self._attempts.get(offset, 0), value["attempt"])
            case "turn_finished":
                self._finished.add(offset)
                self._attempts.pop(offset, None)
            case _:
                pass  # a released turn keeps its count

    def has_ended(self, offset: int) -> bool:
        """Whether the end of the turn at `offset` is written."""
        return offset in self._finished

    def attempts(self, offset: int) -> int:
        """How often the unfinished turn at `offset` was claimed."""
        return self._attempts.get(offset, 0)
