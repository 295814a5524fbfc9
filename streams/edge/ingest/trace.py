"""The trace that an event belongs to: the sender's, or one that begins here.

Source: W3C Trace Context, "traceparent"; SEMANTICS 1.1 `trace_id`.
"""

from __future__ import annotations

import os
import re
import time
from typing import NamedTuple

__all__ = ["Trace", "begin_trace", "continue_trace", "new_uuid"]

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_NO_TRACE = "0" * 32
_NO_SPAN = "0" * 16
_SAMPLED = "01"

_UUID_VERSION = 0x7000
_UUID_VARIANT = 0x8000_0000_0000_0000


class Trace(NamedTuple):
    """`trace_id` as the event carries it, `traceparent` as the record's header carries it."""

    trace_id: str
    traceparent: str


def continue_trace(traceparent: str | None) -> Trace | None:
    """Return the sender's trace with a span of our own, or None without a usable traceparent."""
    found = None if traceparent is None else _TRACEPARENT.fullmatch(traceparent.strip())
    if found is None:
        return None
    trace, span, flags = found.groups()
    if trace == _NO_TRACE or span == _NO_SPAN:
        return None
    return Trace(trace, f"00-{trace}-{_span()}-{flags}")


def begin_trace() -> Trace:
    """Return a new trace; its two ids are the same 128 bits."""
    uuid = new_uuid()
    return Trace(f"trace_{uuid}", f"00-{uuid.replace('-', '')}-{_span()}-{_SAMPLED}")


def new_uuid() -> str:
    """Return a UUID of version 7: it begins with the time, so that ids sort by age."""
    random = int.from_bytes(os.urandom(10))
    high = (time.time_ns() // 1_000_000) << 16 | _UUID_VERSION | random >> 68
    low = _UUID_VARIANT | random & 0x3FFF_FFFF_FFFF_FFFF
    text = f"{high:016x}{low:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _span() -> str:
    return (os.urandom(8) if (span := os.urandom(8)) == bytes(8) else span).hex()
