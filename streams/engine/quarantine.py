"""Bad data is an output: the record that a stage could not use, kept with its position.

Source: DESIGN law 8; decision A2.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from streams.core.record import Output, Position
from streams.engine.bound import BoundStage

_RAW_BYTES_MAX = 65_536  # enough to see what it is; the record itself stays at its position
_KEY_BYTES_MAX = 1_024

UNDECODABLE = "undecodable"
UNKNOWN_KIND = "unknown_kind"
OVERSIZED = "oversized"
REJECTED = "rejected"
SKIPPED = "skipped"


def quarantined(stage: BoundStage, partition: int, raw: Any, kind: str | None, code: str, reason: str) -> Output:
    """The `record_quarantined` output for a raw mailbox record."""
    source = stage.declaration.source
    value: bytes = raw.value or b""
    position = Position(source, partition, raw.offset)
    return Output(
        topic=stage.declaration.quarantine,
        kind="record_quarantined",
        key=str(position),
        value={
            "stage": stage.declaration.name,
            "topic": source,
            "partition": partition,
            "offset": raw.offset,
            "timestamp_ms": raw.timestamp,
            "code": code,
            "reason": reason,
            "kind": kind,
            "key": None if raw.key is None else bytes(raw.key[:_KEY_BYTES_MAX]),
            "raw": bytes(value[:_RAW_BYTES_MAX]),
            "raw_size": len(value),
            "raw_sha256": sha256(value).hexdigest(),
        },
    )
