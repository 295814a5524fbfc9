"""Which partitions stand still, told from notices and committed offsets alone."""

from __future__ import annotations

from typing import Any

import pytest

from streams.audit.memory_log import MemoryLog
from streams.codec import Codec
from streams.edge.halts import halted_partitions
from topology import TOPOLOGY
from topology.topics import LIFECYCLE, PARTITION_HALTED

STAGE = TOPOLOGY.stage("dispatch")
MAILBOX = STAGE.source
PARTITIONS = 3
CODEC = Codec()
HOUR_MS = 3_600_000
NOW_MS = 500 * HOUR_MS


def log_with(*records: int, committed: int | None = None) -> MemoryLog:
    """A log whose mailbox partition 1 has records appended at these times."""
    log = MemoryLog()
    log.create(MAILBOX, PARTITIONS)
    log.create(LIFECYCLE, PARTITIONS)
    for at_ms in records:
        log.append((MAILBOX, 1), at_ms, b"k", b"v", [])
    if committed is not None:
        log.groups[STAGE.group, MAILBOX, 1] = committed
    return log


def tell(log: MemoryLog, at_ms: int, offset: int, **changes: Any) -> dict[str, Any]:
    notice = {
        "stage": STAGE.name,
        "fold": STAGE.fold_id,
        "topic": MAILBOX,
        "partition": 1,
        "offset": offset,
        "timer": None,
        "reason": "KeyError('x')",
        "member": "host-1",
        **changes,
    }
    value = CODEC.encode("partition_halted", notice)
    log.append((LIFECYCLE, 1), at_ms, b"k", value, [("kind", PARTITION_HALTED.encode())])
    return notice


def halted(log: MemoryLog) -> list[Any]:
    return list(halted_partitions(log, CODEC, [STAGE]))


def test_a_partition_is_halted_until_its_record_is_behind() -> None:
    log = log_with(NOW_MS, NOW_MS, NOW_MS, committed=1)
    notice = tell(log, NOW_MS, 1)
    assert halted(log) == [notice]
    log.groups[STAGE.group, MAILBOX, 1] = 2
    assert halted(log) == []


def test_a_stage_that_has_committed_nothing_may_be_halted_at_its_first_record() -> None:
    log = log_with(NOW_MS)
    notice = tell(log, NOW_MS, 0)
    assert halted(log) == [notice]


def test_offsets_without_records_before_the_halt_do_not_hide_it() -> None:
    log = log_with(NOW_MS, NOW_MS, NOW_MS, NOW_MS, committed=1)
    records = log.topics[MAILBOX][1]
    del records[1:3]  # ends of transactions
    notice = tell(log, NOW_MS, 3)
    assert halted(log) == [notice]


def test_the_last_notice_counts_and_others_are_passed_over() -> None:
    log = log_with(NOW_MS, NOW_MS, committed=1)
    tell(log, NOW_MS, 0, reason="over by now")
    tell(log, NOW_MS, 1, reason="first try")
    tell(log, NOW_MS, 1, stage="inbox", reason="of a stage that is not asked about")
    last = tell(log, NOW_MS, 1, timer="d:1", reason="second try")
    log.append((LIFECYCLE, 1), NOW_MS, b"member", b"\xc3\x01", [("kind", b"pump_acked")])
    for value in (b"junk", CODEC.encode("tick", {"due_ms": 1}), None):
        log.append((LIFECYCLE, 1), NOW_MS, b"k", value, [("kind", PARTITION_HALTED.encode())])
    assert halted(log) == [last]


@pytest.mark.parametrize(("skew_ms", "seen"), [(HOUR_MS, True), (HOUR_MS + 1, False)])
def test_a_member_s_clock_may_be_an_hour_behind_the_broker_s(skew_ms: int, seen: bool) -> None:
    log = log_with(NOW_MS, NOW_MS, committed=1)
    tell(log, NOW_MS - skew_ms, 1)
    assert bool(halted(log)) is seen


def test_a_record_that_retention_took_halts_nothing_any_more() -> None:
    log = log_with(NOW_MS, NOW_MS, NOW_MS, committed=1)
    tell(log, NOW_MS, 1)
    log.cut((MAILBOX, 1), 2)
    assert halted(log) == []


def test_a_partition_that_is_only_late_is_not_halted() -> None:
    assert halted(log_with(NOW_MS, NOW_MS, committed=0)) == []


def test_a_cluster_of_an_older_release_may_lack_the_topic() -> None:
    log = log_with(NOW_MS)
    del log.topics[LIFECYCLE]
    assert halted(log) == []
