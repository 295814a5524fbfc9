"""What the tests of the event API send, and where it is found."""

from __future__ import annotations

from typing import Any

from streams.codec import Codec
from streams.core.record import Position
from streams.settings import Settings
from tests.support.mock_cluster import read

EVENT = {"provider": "github", "kind": "push", "payload": {"ref": "main"}}
BODY_BYTES_MAX = 2_000
CODEC = Codec()


def envelope(settings: Settings, position: str) -> tuple[dict[str, str], bytes, dict[str, Any]]:
    """The headers, key and value of one envelope."""
    at = Position.parse(position)
    record = read(settings, at.topic, at.partition, at.offset + 1)[-1]
    headers: dict[str, str] = {}
    for name, content in record.headers() or []:
        assert isinstance(content, bytes)
        headers[name] = content.decode()
    key, value = record.key(), record.value()
    assert isinstance(key, bytes)
    assert isinstance(value, bytes)
    return headers, key, CODEC.decode(value)[1]
