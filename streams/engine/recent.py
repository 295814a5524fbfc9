"""Committed rows that were read or written lately, as values: they need no decoding again.

What was used lately is used again soon: a dispatch is written when its event comes and read when
its handler ends.  Two generations bound what is kept: when the young one is full it becomes the old
one, and the old one goes.

Invariant: what is kept for a key is what the store holds under it.

Source: DESIGN law 9.
"""

from __future__ import annotations

from typing import Any

ABSENT: Any = object()
"""Nothing is known of a key; None says that there is no row."""

_GENERATION_BYTES = 2_000_000  # encoded; a decoded row takes a few times as much
_ENTRY_BYTES = 100  # what an entry takes besides


class RecentRows:
    """Rows by key, forgotten when they have not been used for a while."""

    __slots__ = ("_old", "_room", "_young")

    def __init__(self) -> None:
        self._young: dict[str, Any] = {}
        self._old: dict[str, Any] = {}
        self._room = _GENERATION_BYTES

    def get(self, key: str, /) -> Any:  # noqa: ANN401 - the row's TypedDict, by its prefix
        """Return the row under `key`, None when there is none, or ABSENT."""
        value = self._young.get(key, ABSENT)
        return self._old.get(key, ABSENT) if value is ABSENT else value

    def keep(self, key: str, value: Any, size: int, /) -> None:  # noqa: ANN401
        """The store holds `value` under `key`, in `size` bytes."""
        self._young[key] = value
        self._room -= size + _ENTRY_BYTES
        if self._room < 0:
            self._old, self._young = self._young, {}
            self._room = _GENERATION_BYTES

    def __len__(self) -> int:
        """How many rows are kept, those of both generations counted twice."""
        return len(self._young) + len(self._old)
