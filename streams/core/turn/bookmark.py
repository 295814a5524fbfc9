"""Where the next owner of a partition begins to load its claims: a few records, not all of them.

    claims=<offset of agent.turns.claims> fence=<of the owner that commits> [yields=<ms>]

It is committed as the metadata of the group's offset, in the transaction that it belongs to.  All
words about turns from the committed offset on stand at that offset of the claims or later.  Without
a bookmark, or with one that cannot be read, the claims are loaded from their beginning: slower, and
as right.

An owner is the only one who writes claims of its partition, so it knows how far they go.  What it
says of a turn stands behind the end that they had when it took the turn; what owners before it said
stands behind the bookmark from which it loaded.

An owner that hands its partition over while turns of it run says `yields`, and how long it may
take.  It says so again and again, with less each time, and no more in its last commit: that is how
the next owner, which has the partition from the group already, knows that it is not to fence yet.

Source: DESIGN "A turn", "Taking a partition".
"""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

__all__ = ["Bookmark", "Floors", "parse_bookmark"]

_TEXT = re.compile(r"claims=(\d{1,19}) fence=(\d{1,19})(?: yields=(\d{1,19}))?")


class Bookmark(NamedTuple):
    """Where to load claims from, and the fence of the owner that committed it.

    `yields_ms` is how long turns may still run of a partition that is being handed over; None of
    one that is not.
    """

    claims_offset: int
    fence: int
    yields_ms: int | None = None

    def __str__(self) -> str:
        """As the group's offset carries it."""
        yields = "" if self.yields_ms is None else f" yields={self.yields_ms}"
        return f"claims={self.claims_offset} fence={self.fence}{yields}"


def parse_bookmark(metadata: str | None, /) -> Bookmark | None:
    """Read the metadata of a committed offset; None when they are no bookmark."""
    found = _TEXT.fullmatch(metadata or "")
    if found is None:
        return None
    yields = found[3]
    return Bookmark(int(found[1]), int(found[2]), None if yields is None else int(yields))


class Floors:
    """For each turn that an owner took: where the first word about it may stand in the claims.

    Floors never fall from one turn to the next, so that of the first unfinished one holds for all.
    """

    def __init__(self, loaded_from: int, known_until: int) -> None:
        """Begin after loading.

        Args: loaded_from: offset of the claims from which they were loaded.
              known_until: turns from this offset on have no word in what was loaded.
        """
        self._known_until = known_until
        self._floors: deque[tuple[int, int]] = deque([(0, loaded_from)])  # from a turn on

    def took(self, offset: int, claims_end: int) -> None:
        """Note that the turn at `offset` was taken: the claims ended at `claims_end` or later."""
        if offset >= self._known_until and claims_end > self._floors[-1][1]:
            self._floors.append((offset, claims_end))

    def at(self, committable: int, next_offset: int, claims_end: int) -> int:
        """Return the offset of a bookmark for a commit of `committable`, which never goes back.

        Args: next_offset: of the turns, where taking goes on.
              claims_end: where the claims end, as far as the owner knows: lower is as right.
        """
        while len(self._floors) > 1 and self._floors[1][0] <= committable:
            self._floors.popleft()
        nothing_open = committable == next_offset >= self._known_until
        return claims_end if nothing_open else self._floors[0][1]
