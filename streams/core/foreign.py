"""Records of topics that are not ours, and cannot become events: quarantined under their position.

An edge that reads such a topic appends `source_rejected` to the inbox's mailbox before its place in
the topic moves on.  So bad data is an output here as everywhere, in one place, and audited.

Source: DESIGN law 8, decision A2.
"""

from __future__ import annotations

from streams.core import bounds
from streams.core.record import Output, Position, Rejection
from streams.core.wire import RecordQuarantined, SourceRejected

DLQ = "trigger.dlq"

RAW_BYTES_MAX = 65_536
"""Bytes that are kept of a value: the record itself stays at its position."""

KEY_BYTES_MAX = 1_024
KIND_CHARS_MAX = 200
REASON_CHARS_MAX = 2_000


def position_of(rejected: SourceRejected, /) -> Position:
    """Return where the record stands."""
    return Position(rejected["topic"], rejected["partition"], rejected["offset"])


def problem(rejected: SourceRejected, /) -> Rejection | None:
    """Return what makes the word itself unusable, or None."""
    found = bounds.text_problem(
        (
            ("topic", rejected["topic"], bounds.ID_CHARS_MAX),
            ("trigger_id", rejected["trigger_id"], bounds.ID_CHARS_MAX),
            ("reason", rejected["reason"], REASON_CHARS_MAX),
            ("kind", rejected["kind"], KIND_CHARS_MAX),
            ("raw_sha256", rejected["raw_sha256"], bounds.ID_CHARS_MAX),
        )
    )
    contents = (
        ("key", rejected["key"] or b"", KEY_BYTES_MAX),
        ("raw", rejected["raw"], RAW_BYTES_MAX),
    )
    for name, content, limit in contents:
        size = len(content)
        if found is None and size > limit:
            found = f"{name} has {size} bytes, expected at most {limit}"
    return None if found is None else Rejection("INB-003", found)


def quarantined(rejected: SourceRejected, /) -> Output:
    """Return the record that keeps it."""
    reader = rejected["trigger_id"]
    read_by = "" if reader is None else f"read by trigger {reader!r}: "
    value: RecordQuarantined = {
        "stage": "inbox",
        "topic": rejected["topic"],
        "partition": rejected["partition"],
        "offset": rejected["offset"],
        "timestamp_ms": rejected["timestamp_ms"],
        "code": "oversized" if rejected["oversized"] else "undecodable",
        "reason": read_by + rejected["reason"],
        "kind": rejected["kind"],
        "key": rejected["key"],
        "raw": rejected["raw"],
        "raw_size": rejected["raw_size"],
        "raw_sha256": rejected["raw_sha256"],
    }
    return Output(DLQ, "record_quarantined", str(position_of(rejected)), value)
