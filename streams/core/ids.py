"""Ids derived from a position: the same log always gives the same ids.

Source: DESIGN law 4.
"""

from __future__ import annotations

from hashlib import blake2b

from streams.core.record import Record

_DIGEST_BYTES = 12  # 96 bits: a collision among 10^12 ids is less likely than 10^-5


def derived(record: Record, purpose: str, index: int = 0, /) -> str:
    """24 hex digits derived from the record's position, a purpose and an index within it."""
    text = f"{record.topic}/{record.partition}/{record.offset}#{purpose}#{index}"
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
