"""Bad records go into quarantine, each once, and nothing else notices."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from streams.core import dispatch
from streams.core.record import Output, Position, Record
from streams.core.state import State
from streams.engine import FoldFailed
from streams.testing import Chaos, PipelineDriver, binding, event, policy, retry_policy
from tests.support import history

MAILBOXES = ("trigger.inbox.envelopes", "trigger.dispatches", "triggers.registry")
BAD: tuple[tuple[bytes | None, list[tuple[str, bytes]], str], ...] = (
    (b"garbage", [("kind", b"event_ingested")], "undecodable"),
    (None, [("kind", b"tick")], "undecodable"),
    (b"\xc3\x01", [("kind", b"revision_published")], "undecodable"),
    (b"x" * 600_001, [], "oversized"),
)


def chaos(seed: int) -> Chaos:
    """A storm without repeats: each bad record is there once."""
    return Chaos(seed=seed, crash_per_mille=40, zombie_per_mille=20, lose_invoker_per_mille=10)


@pytest.mark.parametrize("seed", range(5))
def test_bad_records_of_every_sort_are_quarantined_once(seed: int) -> None:
    driver = PipelineDriver(handlers={"on_event": lambda _event: 1}, chaos=chaos(seed))
    driver.apply([binding("all", retry=retry_policy("immediate"))])
    expected: Counter[tuple[Position, str]] = Counter()
    for number in range(12):
        driver.emit(event(f"e{number}"))
        mailbox = MAILBOXES[number % 3]
        value, headers, code = BAD[number // 3]
        expected[driver.kafka.append(mailbox, value, headers=headers, partition=0), code] += 1
        driver.step()
        foreign = driver.codec.encode("row_position", POSITION)
        position = driver.kafka.append(mailbox, foreign, headers=[("kind", b"row_position")])
        expected[position, "unknown_kind"] += 1
    driver.finish()
    found = Counter(
        (
            Position(seen.value["topic"], seen.value["partition"], seen.value["offset"]),
            seen.value["code"],
        )
        for seen in driver.records("trigger.dlq", "record_quarantined")
    )
    assert found == expected
    history.every_event_has_one_terminal_outcome(driver)
    history.the_audit_is_clean(driver)
    assert len(driver.records("trigger.outbox", "dispatch_succeeded")) == 12


POSITION = {"seq": 1, "next_offset": 1, "now_ms": 1, "chain": b"", "state_hash": b""}


@pytest.mark.parametrize("seed", range(3))
def test_an_operators_skip_is_part_of_the_log_and_of_the_audit(seed: int) -> None:
    driver = PipelineDriver(handlers={"on_event": lambda _event: 1}, chaos=chaos(seed))
    driver.apply([binding("all")])
    value = {
        "revision": 9,
        "namespace": "default",
        "added": [],
        "drained": [],
        "policy": policy(),
        "apply_id": "x",
    }
    poison = driver.append("trigger.dispatches", "revision_published", value, partition=0)
    for number in range(8):
        driver.emit(event(f"e{number}"))
    with pytest.raises(FoldFailed):
        driver.run_until_idle()
    driver.resume(poison, skip=True)
    driver.finish()
    [skipped] = driver.records("trigger.dlq", "record_quarantined")
    assert (skipped.value["code"], skipped.value["offset"]) == ("skipped", poison.offset)
    history.every_event_has_one_terminal_outcome(driver)
    history.the_audit_is_clean(driver)


def test_a_timer_that_cannot_fire_is_passed_over_on_an_operators_word() -> None:
    def on_due(state: State, key: str, row: Any, record: Record) -> Iterable[Output]:
        if row["event_id"] == "bad":
            raise RuntimeError("poison")
        return dispatch.FOLD.on_due(state, key, row, record)

    def fails(event: Any, context: Any) -> None:
        if context.attempt == 1:
            raise ValueError(event.id)

    driver = PipelineDriver(
        handlers={"on_event": fails},
        partitions=1,
        folds={"dispatch": replace(dispatch.FOLD, on_due=on_due)},
    )
    driver.apply([binding("all")])
    for name in ("a", "bad", "c"):
        driver.emit(event(name))
    with pytest.raises(FoldFailed, match="the timer of row"):
        driver.advance(5_000)
    [(halted_at, failure)] = driver.members.halted().items()
    assert failure.timer is not None
    driver.resume(halted_at)
    with pytest.raises(FoldFailed, match="the timer of row"):
        driver.run_until_idle()
    driver.resume(halted_at, skip=True)
    driver.finish()
    done = {seen.key for seen in driver.records("trigger.outbox", "dispatch_succeeded")}
    assert done == {"a", "c"}
    [passed] = driver.records("trigger.dlq", "record_quarantined")
    assert (passed.value["code"], passed.value["key"]) == (
        "timer_skipped",
        failure.timer.encode(),
    )
    assert driver.codec.decode(passed.value["raw"])[1]["event_id"] == "bad"
    history.the_audit_is_clean(driver)
