"""Records that cannot become events: quarantined by the inbox, once, under their own position."""

from __future__ import annotations

from typing import Any

import pytest

from streams.core.foreign import KEY_BYTES_MAX, RAW_BYTES_MAX, REASON_CHARS_MAX
from streams.testing import policy
from tests.support.revisions import revision
from tests.support.stage_log import StageLog, kinds


def word(**changes: Any) -> dict[str, Any]:
    return {
        "trigger_id": "orders",
        "topic": "shop.orders",
        "partition": 3,
        "offset": 1_042,
        "timestamp_ms": 17,
        "oversized": False,
        "reason": "the value is not JSON",
        "kind": "order",
        "key": b"k",
        "raw": b"{",
        "raw_size": 1,
        "raw_sha256": "ab",
        **changes,
    }


def inbox(window_ms: int = 1_000) -> StageLog:
    started = StageLog("inbox")
    started.add("revision_published", revision(1, in_force=policy(event_id_window_ms=window_ms)))
    return started


def test_a_record_is_quarantined_under_the_position_in_its_own_topic() -> None:
    [out] = inbox().add("source_rejected", word())
    assert (out.topic, out.kind, out.key) == (
        "trigger.dlq",
        "record_quarantined",
        "shop.orders/3/1042",
    )
    assert out.value == {
        "stage": "inbox",
        "topic": "shop.orders",
        "partition": 3,
        "offset": 1_042,
        "timestamp_ms": 17,
        "code": "undecodable",
        "reason": "read by trigger 'orders': the value is not JSON",
        "kind": "order",
        "key": b"k",
        "raw": b"{",
        "raw_size": 1,
        "raw_sha256": "ab",
    }


def test_what_is_too_large_says_so_and_a_reader_that_is_no_trigger_is_not_named() -> None:
    [out] = inbox().add("source_rejected", word(oversized=True, trigger_id=None))
    assert (out.value["code"], out.value["reason"]) == ("oversized", "the value is not JSON")


def test_a_word_that_is_said_again_within_the_window_says_nothing_new() -> None:
    started = inbox(window_ms=1_000)
    assert kinds(started.add("source_rejected", word())) == ["record_quarantined"]
    assert started.add("source_rejected", word()) == []
    assert kinds(started.add("source_rejected", word(offset=1_043))) == ["record_quarantined"]
    assert kinds(started.add("source_rejected", word(trigger_id="b"))) == ["record_quarantined"]
    started.now_ms += 1_000
    assert kinds(started.add("source_rejected", word())) == ["record_quarantined"]
    started.assert_replays([2, 1], reload_at=frozenset({1}))


@pytest.mark.parametrize(
    ("name", "at_bound", "beyond"),
    [
        ("topic", "x" * 256, "x" * 257),
        ("trigger_id", "x" * 256, "x" * 257),
        ("kind", "x" * 200, "x" * 201),
        ("reason", "x" * REASON_CHARS_MAX, "x" * (REASON_CHARS_MAX + 1)),
        ("key", b"x" * KEY_BYTES_MAX, b"x" * (KEY_BYTES_MAX + 1)),
        ("raw", b"x" * RAW_BYTES_MAX, b"x" * (RAW_BYTES_MAX + 1)),
    ],
)
def test_the_word_itself_is_bounded(name: str, at_bound: Any, beyond: Any) -> None:
    started = inbox()
    [out] = started.add("source_rejected", word(**{name: at_bound}))
    assert out.value["topic"] != "trigger.inbox.envelopes"
    [out] = started.add("source_rejected", word(**{name: beyond}, offset=1))
    assert (out.value["topic"], out.value["code"]) == ("trigger.inbox.envelopes", "rejected")
    assert out.value["reason"].startswith(f"INB-003: {name} has ")
