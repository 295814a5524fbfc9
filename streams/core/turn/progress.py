"""How far an owner of a partition of turns has come: what it commits as offset and bookmark.

Source: DESIGN "Taking a partition", "A turn".
"""

from __future__ import annotations

from streams.core.turn.bookmark import Bookmark, Floors
from streams.core.turn.held import Loaded

__all__ = ["Progress"]


class Progress:
    """The place that was committed last, and what the next one is to say."""

    def __init__(self, loaded: Loaded, *, fence: int) -> None:
        self._fence = fence
        self._committed = loaded.committed
        self._claims_end = loaded.claims_end
        self._floors = Floors(loaded.claims_from, loaded.memory.history.known_until)
        self._yields_ms: int | None = None
        # What an owner that is gone has said stands until this one has committed.
        self._is_word_due = loaded.yields

    def took(self, offset: int) -> None:
        """Note that the record at `offset` was taken."""
        self._floors.took(offset, self._claims_end)

    def claims_end_at(self, offset: int) -> None:
        """Note where the claims end, with all earlier batches in them; it may be more by now."""
        self._claims_end = max(self._claims_end, offset)

    def yields_within(self, ms: int | None) -> None:
        """Say how long turns may still run before the partition is given up; None: no more."""
        self._is_word_due = self._is_word_due or ms != self._yields_ms
        self._yields_ms = ms

    def is_due(self, committable: int) -> bool:
        """Whether the place is to be committed, with or without anything else."""
        return self._is_word_due or committable != self._committed

    def commit(self, committable: int, next_offset: int) -> str:
        """Return the bookmark for a commit of `committable`; see `Floors.at`."""
        self._committed = committable
        self._is_word_due = False
        claims_from = self._floors.at(committable, next_offset, self._claims_end)
        return str(Bookmark(claims_from, self._fence, self._yields_ms))
