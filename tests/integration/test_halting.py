"""A partition whose fold raises waits for one word at a time, and obeys exactly what is said."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streams.audit.kafka_log import KafkaLog
from streams.core.record import Position, Record
from streams.core.state import Answer, Fold, State
from streams.core.wire import PartitionHalted
from streams.edge.halts import halted_partitions
from tests.support import toy
from tests.support.broker import Kafka
from tests.support.eventually import eventually
from tests.support.fleet import wait_until
from tests.support.live_toy import LiveToy, Member
from tests.support.toy import command

pytestmark = [pytest.mark.broker]

TIMERS = ["t:1", "t:2"]


class Tries:
    """Counts how often each text was folded; raises on those in `bad`."""

    def __init__(self, *bad: str) -> None:
        self.bad = set(bad)
        self.of: dict[str, int] = {}

    def __call__(self, value: dict[str, Any]) -> None:
        text = value["text"]
        self.of[text] = self.of.get(text, 0) + 1
        if text in self.bad:
            raise RuntimeError(text)


async def halt(member: Member) -> Position:
    """Where the first partition halts."""
    await eventually(member.halted, "it halts")
    halted = member.app.live.owned[0].halted_at
    assert halted is not None
    return halted


def emit(text: str) -> dict[str, Any]:
    return command("emit", text=text)


async def test_a_word_to_resume_is_obeyed_once(kafka: Kafka) -> None:
    live = LiveToy(kafka.settings)
    tries = Tries("bad")
    live.append(emit("a"), emit("bad"), emit("b"))
    async with live.member(live.fold(tries)) as member:
        await eventually(member.halted, "the partition halts")
        assert tries.of["bad"] == 1
        live.tell("stage_resume")
        await eventually(lambda: tries.of["bad"] == 2, "it is tried again")
        await eventually(member.halted, "it halts again")
        live.tell("stage_skip", topic=live.mailbox, offset=0, timer=None, reason="another record")
        live.tell("stage_skip", topic="other", offset=1, timer=None, reason="another topic")
        live.tell("stage_skip", topic=live.mailbox, offset=1, timer="t:1", reason="a timer")
        live.tell("stage_skip", topic=live.mailbox, offset=1, timer=None, reason="this one")
        await live.everything_folded()
        assert not member.halted()
    assert tries.of["bad"] == 2, "one word to resume, one more try"
    assert live.texts() == ["a0", "b0"]
    assert [(q["offset"], q["code"]) for q in live.values(live.quarantine)] == [(1, "skipped")]
    live.assert_every_record_was_folded_once()


async def test_a_halt_is_told_to_any_host_until_it_is_over(kafka: Kafka) -> None:
    live = LiveToy(kafka.settings)
    tries = Tries("bad")
    live.append(emit("a"), emit("bad"), emit("b"))
    live.append(emit("c"), partition=1)

    def told() -> list[PartitionHalted]:
        with KafkaLog(live.settings) as log:
            stages = [live.topology.stage(live.name)]
            return list(halted_partitions(log, live.codec, stages))

    async with live.member(live.fold(tries)) as member:
        await eventually(member.halted, "the partition halts")
        [halt] = await asyncio.to_thread(wait_until, "the log tells it", told)
        assert (halt["stage"], halt["topic"], halt["partition"], halt["offset"]) == (
            live.name,
            live.mailbox,
            0,
            1,
        )
        assert (halt["reason"], halt["timer"]) == ("RuntimeError('bad')", None)
    assert await asyncio.to_thread(told) == [halt], "it still holds when nobody runs the stage"
    async with live.member():
        await live.everything_folded()
    assert await asyncio.to_thread(told) == []


async def test_a_mended_fold_goes_on_where_it_stood(kafka: Kafka) -> None:
    live = LiveToy(kafka.settings)
    tries = Tries("bad")
    live.append(emit("a"), emit("bad"), emit("b"))
    async with live.member(live.fold(tries)) as member:
        await eventually(member.halted, "the partition halts")
        live.append(emit("c"), partition=1)
        await eventually(lambda: live.texts().count("c0") == 1, "the other partition goes on")
        tries.bad.clear()
        live.tell("stage_resume")
        await live.everything_folded()
    assert sorted(live.texts()) == ["a0", "b0", "bad0", "c0"]
    live.assert_every_record_was_folded_once()


async def test_timers_that_fail_are_passed_over_one_by_one(kafka: Kafka) -> None:
    live = LiveToy(kafka.settings)
    live.append(
        command("put", "t:1", due_ms=0, text="poison"),
        command("put", "t:2", due_ms=0, text="poison"),
        emit("a"),
    )
    async with live.member() as member:
        for offset, timer in ((1, "t:1"), (2, "t:2")):
            await eventually(member.halted, f"it halts at {timer}")
            live.tell("stage_skip", topic=live.mailbox, offset=offset, timer=timer, reason="poison")
            await eventually(
                lambda timer=timer: (
                    [timer.encode()] == [q["key"] for q in live.values(live.quarantine)][-1:]
                ),
                f"{timer} is passed over",
            )
        await live.everything_folded()
    assert [q["code"] for q in live.values(live.quarantine)] == ["timer_skipped"] * 2
    assert live.texts() == ["a0"]
    assert [e["skipped_timers"] for e in live.journal() if e["skipped_timers"]] == [
        ["t:1"],
        ["t:2"],
    ]
    live.assert_every_record_was_folded_once()


async def test_two_timers_that_fail_at_one_record_take_two_words(kafka: Kafka) -> None:
    live = LiveToy(kafka.settings)

    def arm(state: State, record: Record, /) -> Answer:
        if record.offset == 0:
            for timer in TIMERS:
                state.rows.put(timer, {"due_ms": 0, "text": "poison"})
        return ()

    live.append(emit("arms both"), emit("fires both"))
    async with live.member(Fold(on_record=arm, on_due=toy.FOLD.on_due)) as member:
        for timer in TIMERS:
            halted = await halt(member)
            assert halted.offset == 1
            live.tell("stage_skip", topic=live.mailbox, offset=1, timer=timer, reason="poison")
            await eventually(
                lambda at=halted: member.app.live.owned[0].halted_at is not at, "the word is heard"
            )
        await live.everything_folded()
    [entry] = [e for e in live.journal() if e["skipped_timers"]]
    assert entry["skipped_timers"] == TIMERS
    live.assert_every_record_was_folded_once()


async def test_a_row_that_cannot_be_written_halts_at_its_own_record(kafka: Kafka) -> None:
    live = LiveToy(kafka.settings)
    live.append(*(emit(f"row {n}") for n in range(20)), emit("bad"), emit("after"))

    def write(state: State, record: Record, /) -> Answer:
        text = record.value["text"]
        state.rows.put(f"p:{record.offset}", {"due_ms": "never" if text == "bad" else None, **row})
        return ()

    row = {"text": "a row"}
    async with live.member(Fold(on_record=write)) as member:
        assert (await halt(member)).offset == 20
        live.tell("stage_skip", topic=live.mailbox, offset=20, timer=None, reason="no number")
        await live.everything_folded()
    assert sum(entry["rows"] for entry in live.journal()) == 21
    live.assert_every_record_was_folded_once()
