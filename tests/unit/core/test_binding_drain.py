from typing import Any

import pytest

from streams.engine import FoldFailed
from streams.testing import retry_policy
from tests.support.dispatch_log import DispatchLog
from tests.support.revisions import revision, versioned
from tests.support.stage_log import Out, kinds


def reached(log: DispatchLog, number: int, inbox_partition: int) -> list[Out]:
    word = {"revision": number, "inbox_partition": inbox_partition, "inbox_partitions": 2}
    return log.add("revision_reached", word)


def drain(log: DispatchLog, number: int = 2, **options: Any) -> list[Out]:
    return log.add("revision_published", revision(number, drained=["triage@v1"], **options))


def test_an_idle_binding_ends_once_every_inbox_partition_has_moved_on() -> None:
    log = DispatchLog(partition=1, partitions=2)
    assert drain(log) == []
    assert reached(log, 2, 0) == []
    assert reached(log, 2, 0) == []
    [out] = reached(log, 2, 1)
    assert (out.topic, out.kind, out.partition) == ("triggers.registry", "binding_ended", 0)
    assert out.value == {
        "binding_key": "triage@v1",
        "revision": 2,
        "partition": 1,
        "partitions": 2,
    }
    assert "b:triage@v1" not in log.rows


def test_a_word_about_an_older_revision_does_not_end_it() -> None:
    log = DispatchLog(partitions=2)
    drain(log)
    assert reached(log, 1, 0) == []
    assert reached(log, 1, 1) == []
    assert "b:triage@v1" in log.rows


def test_a_word_about_a_later_revision_does() -> None:
    log = DispatchLog(partitions=2)
    drain(log)
    log.add("revision_published", revision(3))
    reached(log, 3, 0)
    assert kinds(reached(log, 3, 1)) == ["binding_ended"]


def test_a_binding_ends_with_the_last_dispatch_that_is_live() -> None:
    log = DispatchLog(partitions=2)
    log.match("d1")
    drain(log)
    log.match("d2")  # matched before its inbox partition had reached the revision
    reached(log, 2, 0)
    assert reached(log, 2, 1) == []
    assert "binding_ended" not in kinds(log.complete("success", dispatch_id="d1"))
    assert kinds(log.complete("success", dispatch_id="d2"))[-1] == "binding_ended"


def test_a_dispatch_that_waits_keeps_its_binding() -> None:
    log = DispatchLog(retry_policy("svix", max_attempts=2), partitions=2)
    log.match("d1")
    log.complete("failed")
    drain(log)
    reached(log, 2, 0)
    assert reached(log, 2, 1) == []
    assert kinds(log.tick(after_ms=5_000))[-1] == "invoke"
    assert kinds(log.complete("failed", attempt=2, fence=2))[-1] == "binding_ended"


def test_a_binding_that_comes_back_while_it_drains_stays() -> None:
    log = DispatchLog(partitions=2)
    log.match("d1")
    drain(log)
    reached(log, 2, 0)
    log.add("revision_published", revision(3, added=[versioned()]))
    assert reached(log, 2, 1) == []
    log.complete("success", dispatch_id="d1")
    assert log.rows["b:triage@v1"]["drained_at"] is None
    assert kinds(log.match("d2"))[-1] == "invoke"
    drain(log, 4)
    reached(log, 4, 0)
    assert reached(log, 4, 1) == []  # d2 is live
    assert kinds(log.complete("success", dispatch_id="d2"))[-1] == "binding_ended"


def test_what_is_live_is_counted_alike_after_a_reload() -> None:
    log = DispatchLog(partitions=2)
    for dispatch_id in ("d1", "d2", "d3"):
        log.match(dispatch_id)
    log.complete("success", dispatch_id="d1")
    drain(log)
    log.match("d4")
    reached(log, 2, 0)
    reached(log, 2, 1)
    for dispatch_id in ("d2", "d3", "d4"):
        log.complete("success", dispatch_id=dispatch_id)
    assert "b:triage@v1" not in log.rows
    log.assert_replays([1], reload_at=frozenset(range(20)))


def test_draining_a_binding_that_is_not_here_does_nothing() -> None:
    log = DispatchLog(partitions=2)
    assert log.add("revision_published", revision(2, drained=["other@v1"])) == []
    assert reached(log, 2, 0) == []
    assert reached(log, 2, 1) == []


def test_a_missing_revision_stops_the_partition() -> None:
    log = DispatchLog()
    with pytest.raises(FoldFailed, match="revision 3 follows 1: 2 is missing"):
        log.add("revision_published", revision(3))
