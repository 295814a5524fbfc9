"""What a test reads from the log: committed records, decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from streams.core.record import Position

__all__ = ["Seen"]


class Seen(NamedTuple):
    """A committed record, decoded.  `kind` is its header; `headers` all of them, as text.

    `value` is empty when the bytes are no record of ours.
    """

    position: Position
    timestamp_ms: int
    key: str
    kind: str
    headers: Mapping[str, str]
    value: Mapping[str, Any]
