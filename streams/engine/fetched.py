"""A mailbox record as it was fetched: what the records of every consumer library have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class RawRecord(Protocol):
    """One record of a mailbox partition, undecoded."""

    @property
    def offset(self) -> int:
        """Return its offset."""
        ...

    @property
    def timestamp(self) -> int:
        """Return its append time, ms since epoch."""
        ...

    @property
    def key(self) -> bytes | None:
        """Return its key."""
        ...

    @property
    def value(self) -> bytes | None:
        """Return its framed value."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Return its headers; a null one is legal in Kafka."""
        ...


def size_of(raw: RawRecord) -> int:
    """Return the bytes of a record's key, value and headers."""
    parts = [raw.key, raw.value, *(content for _, content in raw.headers)]
    names = sum(len(name.encode()) for name, _ in raw.headers)
    return names + sum(len(part) for part in parts if part is not None)
