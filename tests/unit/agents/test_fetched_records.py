"""What a stage's consumer fetches: every record, whatever its headers are called."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record import default_records

from streams.agents.fetched_records import FetchedRecords

GOOD = [("kind", b"v"), ("é", None)]


class Bytes(str):
    """A name that goes over the wire as no UTF-8."""

    __slots__ = ()

    def encode(self, *_: str) -> bytes:
        return b"\xff\xfe"


BAD = [("kind", b"v"), (Bytes("x"), b"y")]


def batch(*headers: list[tuple[str, bytes | None]], base: int = 0, compression: int = 0) -> bytes:
    """A batch as a producer sends it: a record for each list of headers."""
    build: Any = default_records._DefaultRecordBatchBuilderPy  # type: ignore[attr-defined]
    builder = build(2, compression, False, -1, -1, 0, 1 << 20)
    for number, each in enumerate(headers):
        builder.append(number, 1_000, f"k{number}".encode(), b"v" * 50, each)
    data = builder.build()
    data[:8] = base.to_bytes(8, "big")
    return bytes(data)


def read(data: bytes) -> list[tuple[int, bytes, list[Any]]]:
    """Read as aiokafka's fetcher does."""
    records, found = FetchedRecords(data), []
    while records.has_next():
        following = records.next_batch()
        assert following is not None
        assert following.validate_crc()
        found += [(each.offset, each.key, each.headers) for each in following]
    assert records.next_batch() is None
    return found


@pytest.mark.parametrize("compression", [0, 1])
def test_a_record_with_a_name_that_is_no_utf_8_has_no_headers(compression: int) -> None:
    first = batch(GOOD, BAD, GOOD, BAD, [], compression=compression)
    second = batch(BAD, base=5, compression=compression)
    third = batch(GOOD, base=6, compression=compression)
    headers = [GOOD, [], GOOD, [], [], [], GOOD]
    keys = [b"k0", b"k1", b"k2", b"k3", b"k4", b"k0", b"k0"]
    assert read(first + second + third) == list(zip(range(7), keys, headers, strict=True))


def test_what_stays_of_a_batch_is_aiokafka_s() -> None:
    records = FetchedRecords(batch(GOOD, base=7) + b"\0" * 5)
    assert records.size_in_bytes() > 50
    following = records.next_batch()
    assert following is not None
    assert (following.base_offset, following.next_offset) == (7, 8)
    assert not following.is_control_batch
    assert next(following).key == b"k0", "so the fetcher looks into an abort marker"
    assert not records.has_next()
