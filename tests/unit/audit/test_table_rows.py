"""Rows as a changelog has them."""

from __future__ import annotations

import pytest

from streams.audit.memory_log import MemoryLog
from streams.audit.table_rows import busy_row
from streams.codec import Codec
from topology import TOPOLOGY

CODEC = Codec()
STAGE = TOPOLOGY.stage("inbox")


def changelog(*partitions: list[int | None]) -> MemoryLog:
    """Changelogs in which the row says these numbers, with other rows where it says none."""
    log = MemoryLog()
    log.create(STAGE.changelog, len(partitions))
    for number, said in enumerate(partitions):
        for each in said:
            value = CODEC.encode(
                "row_dedupe", {"duplicates": each or 0, "forgotten": 0, "active": 0}
            )
            key = b"other" if each is None else b"dedupe"
            log.append((STAGE.changelog, number), 0, key, value, [])
    return log


def found(log: MemoryLog) -> list[tuple[int, int]]:
    return [
        (row.partition, row.value["duplicates"]) for row in busy_row(log, CODEC, STAGE, "dedupe")
    ]


@pytest.mark.parametrize("others", [0, 1, 999, 1_000, 1_001, 9_000, 20_000])
def test_the_last_word_is_found_however_many_others_came_after_it(others: int) -> None:
    log = changelog([1, 2, *[None] * others], [None] * others, [])
    assert found(log) == [(0, 2)]


def test_what_compaction_has_left_is_found() -> None:
    log = changelog([1, *[None] * 30])
    [records] = log.topics[STAGE.changelog]
    log.topics[STAGE.changelog] = [[records[0], *records[20:]]]
    assert found(log) == [(0, 1)]
    log.cut((STAGE.changelog, 0), 1)
    assert found(log) == []
