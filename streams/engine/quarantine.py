"""Bad data is an output: the record that a stage could not use, kept with its position.

Source: DESIGN law 8; decision A2.
"""

from __future__ import annotations

from hashlib import sha256

from streams.core.record import Output, Position
from streams.engine.bound import BoundStage
from streams.engine.fetched import RawRecord

_RAW_BYTES_MAX = 65_536  # enough to see what it is; the record itself stays at its position
_KEY_BYTES_MAX = 1_024
_KIND_CHARS_MAX = 200
_REASON_CHARS_MAX = 2_000

UNDECODABLE = "undecodable"
UNKNOWN_KIND = "unknown_kind"
OVERSIZED = "oversized"
REJECTED = "rejected"
SKIPPED = "skipped"
TIMER_SKIPPED = "timer_skipped"


def quarantined(
    stage: BoundStage, partition: int, raw: RawRecord, kind: str | None, code: str, reason: str
) -> Output:
    """Make the `record_quarantined` output for a mailbox record."""
    return _output(stage, partition, raw, kind, code, reason, raw.key, raw.value or b"")


def quarantined_row(
    stage: BoundStage, partition: int, raw: RawRecord, row_key: str, row: bytes
) -> Output:
    """Make the `record_quarantined` output for a row whose timer was passed over at a record."""
    reason = "a timer passed over on an operator's word; key and content are the row's"
    return _output(stage, partition, raw, None, TIMER_SKIPPED, reason, row_key.encode(), row)


def _output(
    stage: BoundStage,
    partition: int,
    raw: RawRecord,
    kind: str | None,
    code: str,
    reason: str,
    key: bytes | None,
    content: bytes,
) -> Output:
    source = stage.declaration.source
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
            "reason": reason[:_REASON_CHARS_MAX],
            "kind": None if kind is None else kind[:_KIND_CHARS_MAX],
            "key": None if key is None else bytes(key[:_KEY_BYTES_MAX]),
            "raw": bytes(content[:_RAW_BYTES_MAX]),
            "raw_size": len(content),
            "raw_sha256": sha256(content).hexdigest(),
        },
    )
