"""Rows as a changelog has them, and what is told of them at its end."""

from __future__ import annotations

from typing import Any

import pytest

from streams.audit.log import Span
from streams.audit.memory_log import MemoryLog
from streams.audit.table_rows import PartitionStanding, newest_rows, standings, table_rows
from streams.codec import Codec
from streams.engine import POSITION_KEY, STANDING
from topology import TOPOLOGY

CODEC = Codec()
STAGE = TOPOLOGY.stage("inbox")
POSITION = CODEC.encode(
    "row_position", {"seq": 1, "next_offset": 1, "now_ms": 1, "chain": b"", "state_hash": b""}
)


def changelog(partitions: int) -> MemoryLog:
    log = MemoryLog()
    log.create(STAGE.changelog, partitions)
    return log


def write(log: MemoryLog, key: str, expires_at_ms: int | None, partition: int = 0) -> None:
    """Write a row `s:<key>`, or remove it."""
    row: dict[str, Any] = {"event_id": key, "expires_at_ms": expires_at_ms}
    value = None if expires_at_ms is None else CODEC.encode("row_seen", row)
    log.append((STAGE.changelog, partition), 0, f"s:{key}".encode(), value, [])


def end(log: MemoryLog, said: bytes | None, partition: int = 0) -> None:
    """End a transaction."""
    headers = [] if said is None else [(STANDING, said)]
    log.append((STAGE.changelog, partition), 0, POSITION_KEY, POSITION, headers)


@pytest.mark.parametrize("more", [0, 1, 999, 1_000, 1_001, 9_000, 20_000])
def test_the_last_word_is_found_whatever_stands_behind_it(more: int) -> None:
    log = changelog(3)
    end(log, b'{"s":{"x":1}}')
    end(log, b'{"s":{"x":2}}')
    for number in range(more):  # of a transaction that a build without positions would have left
        write(log, f"k{number}", 1)
    end(log, None, partition=1)
    place = (STAGE.changelog, 0)
    assert list(standings(log, STAGE)) == [
        PartitionStanding(place, Span(0, 2 + more), {"s": {"x": 2}}),
        PartitionStanding((STAGE.changelog, 1), Span(0, 1), None),
        PartitionStanding((STAGE.changelog, 2), Span(0, 0), {}),
    ]


def test_rows_come_newest_first_and_each_as_it_was_left() -> None:
    log = changelog(1)
    for number in range(3_000):
        write(log, f"k{number}", 1)
    write(log, "k5", 2)
    write(log, "k2999", None)
    end(log, b"{}")
    [at] = standings(log, STAGE)
    rows = newest_rows(log, CODEC, at, "s:", within=at.span.end)
    first = next(rows)
    assert (first.key, first.value["expires_at_ms"]) == ("s:k5", 2)
    expected = [f"s:k{number}" for number in range(2_998, -1, -1) if number != 5]
    assert [row.key for row in rows] == expected
    assert {row.key for row in table_rows(log, CODEC, STAGE, "s:")} == {"s:k5", *expected}


@pytest.mark.parametrize(
    ("within", "found"), [(0, 0), (1, 0), (2, 1), (1_001, 1_000), (9_999, 3_000)]
)
def test_rows_are_looked_for_as_far_as_is_said(within: int, found: int) -> None:
    log = changelog(1)
    for number in range(3_000):
        write(log, f"k{number}", 1)
    end(log, b"{}")
    [at] = standings(log, STAGE)
    assert len(list(newest_rows(log, CODEC, at, "s:", within=within))) == found
