"""Whether a partition of turns may be taken, or whether its owner is still handing it over.

The group gives a partition to its next owner as soon as the one before has said that it yields; it
is not fenced before that one is done, so that its turns may end.  Whoever yields goes on saying so:
one of whom nothing new was heard for a while has died.  However it goes, none is waited for much
longer than it said at first.

Times are those of whoever waits: clocks of two hosts are never compared.

Source: DESIGN "A turn"; TURN_HANDOVER_S of the settings.
"""

from __future__ import annotations

from typing import NamedTuple

from streams.core.turn.bookmark import Bookmark

__all__ = ["Patience"]


class _Heard(NamedTuple):
    """The last word of a yielding owner, when it was heard first, and when waiting ends."""

    bookmark: Bookmark
    at_ms: int
    until_ms: int


class Patience:
    """What was heard of the partitions that are waited for; one entry each.

    Args: silence_ms: after so long without a new word an owner counts as dead.
    """

    def __init__(self, silence_ms: int) -> None:
        self._silence_ms = silence_ms
        self._heard: dict[int, _Heard] = {}

    def is_over(self, partition: int, bookmark: Bookmark | None, now_ms: int) -> bool:
        """Whether a partition with this bookmark may be taken.

        Args: bookmark: as committed now.  now_ms: of a clock that never goes back.
        """
        if bookmark is None or bookmark.yields_ms is None:
            self.forget(partition)
            return True
        heard = self._heard.get(partition)
        if heard is None or heard.bookmark.fence != bookmark.fence:
            until_ms = now_ms + bookmark.yields_ms + self._silence_ms
            heard = self._heard[partition] = _Heard(bookmark, now_ms, until_ms)
        elif heard.bookmark != bookmark:
            heard = self._heard[partition] = heard._replace(bookmark=bookmark, at_ms=now_ms)
        return now_ms - heard.at_ms >= self._silence_ms or now_ms >= heard.until_ms

    def forget(self, partition: int) -> None:
        """Wait for a partition no more."""
        self._heard.pop(partition, None)
