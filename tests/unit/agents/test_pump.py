from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from streams.agents import pump as pump_module
from streams.agents.pump import Pump
from streams.agents.pump_book import Sample, Standing
from streams.agents.pump_reports import PumpReports
from streams.codec import Codec
from streams.errors import BrokerError
from streams.settings import Settings
from tests.support.eventually import eventually


class Invokers:
    """A backlog that the test sets."""

    def __init__(self) -> None:
        self.end = self.committed = 0
        self.failure: BrokerError | None = None
        self.measured = 0
        self.closed = False
        self.asked = threading.Event()

    def measure(self) -> Sample:
        self.measured += 1
        self.asked.set()
        if self.failure is not None:
            raise self.failure
        return Sample(0.0, {0: self.end}, {0: self.committed}, 1)

    def close(self) -> None:
        self.closed = True


class Told(PumpReports):
    """Reports that the test reads."""

    def __init__(self) -> None:
        super().__init__(Settings(), Codec(), "trigger.inbox.envelopes")
        self.kinds: list[str] = []
        self.admitted = 0
        self.cursors: dict[int, int] = {}

    def paused(self, standing: Standing) -> None:
        assert standing.outstanding >= standing.limit
        self.kinds.append("paused")

    def resumed(self, standing: Standing, paused_ms: int) -> None:
        assert paused_ms >= 0
        assert standing.invokers == 1
        self.kinds.append("resumed")

    def acked(self, admitted: int, next_offsets: Mapping[int, int]) -> None:
        self.kinds.append("acked")
        self.admitted += admitted
        self.cursors.update(next_offsets)


class Seen:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.appended: list[int] = []
        self.lags: Mapping[int, int] = {}

    def outstanding(self, count: int) -> None:
        self.counts.append(count)

    def admitted(self, appended_ms: int) -> None:
        self.appended.append(appended_ms)

    def backlog(self, lags: Mapping[int, int]) -> None:
        self.lags = lags


class Rig:
    def __init__(self) -> None:
        self.invokers, self.told, self.seen = Invokers(), Told(), Seen()
        self.pump = Pump(self.invokers, self.told, self.seen)
        self.wanted = True

    async def admit(self, asked: int, **options: Any) -> int:
        return await self.pump.admit(
            asked,
            max_outstanding=options.get("max_outstanding", 10),
            appended_ms=7,
            wanted=lambda: self.wanted,
        )


@pytest_asyncio.fixture
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(pump_module, "SAMPLE_EVERY_S", 0.001)
    monkeypatch.setattr(pump_module, "PAUSE_REPORTED_AFTER_S", 0.0)
    made = Rig()
    yield made
    await made.pump.close()
    assert made.invokers.closed or not made.invokers.measured


async def waits(admitting: asyncio.Future[int], rig: Rig) -> None:
    """Return once several samples have let nothing go on."""
    seen = rig.invokers.measured
    await eventually(lambda: rig.invokers.measured > seen + 3, "samples are taken")
    assert not admitting.done()


async def test_what_there_is_room_for_goes_on_and_the_rest_waits_for_the_invokers(
    rig: Rig,
) -> None:
    rig.invokers.end = 8  # seven intents, and the mark of their transaction
    await rig.admit(1)
    await eventually(lambda: bool(rig.seen.counts), "a first sample")
    assert await rig.admit(100) <= 10
    rig.invokers.end = 30
    admitting = asyncio.ensure_future(rig.admit(5))
    await eventually(lambda: rig.told.kinds == ["paused"], "the pause is reported")
    await waits(admitting, rig)
    rig.invokers.committed = 29
    assert await admitting == 5
    assert rig.told.kinds == ["paused", "resumed"]
    assert rig.seen.appended == [7, 7, 7]


async def test_who_is_not_wanted_any_more_waits_no_longer(rig: Rig) -> None:
    rig.invokers.end = 1_000
    await rig.admit(1)
    await eventually(lambda: bool(rig.seen.counts), "a first sample")
    admitting = asyncio.ensure_future(rig.admit(5))
    await waits(admitting, rig)
    rig.wanted = False
    assert await admitting == 0


async def test_an_outage_holds_nothing_back_and_is_logged(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.invokers.end = 1_000
    rig.invokers.failure = BrokerError("no answer", retryable=True)
    assert await rig.admit(10) == 10
    assert await rig.admit(500) == 500
    assert "pump_unsampled" in {each.message for each in caplog.records}


async def test_nothing_is_sampled_while_nothing_comes(rig: Rig) -> None:
    await rig.admit(1)
    await eventually(lambda: bool(rig.seen.counts), "a sample is taken")
    rig.invokers.asked.clear()
    assert not await asyncio.to_thread(rig.invokers.asked.wait, 0.05)
    await rig.admit(1)
    assert await asyncio.to_thread(rig.invokers.asked.wait, 30)


async def test_how_far_partitions_have_come_is_told_in_sums(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.admit(3)
    rig.pump.folded(0, 13)
    rig.pump.folded(1, 40)
    assert rig.told.kinds == []
    monkeypatch.setattr(pump_module, "REPORT_EVERY_S", 0.0)
    await rig.admit(2)
    rig.pump.folded(0, 15)
    assert (rig.told.kinds, rig.told.admitted) == (["acked"], 5)
    assert rig.told.cursors == {0: 15, 1: 40}
    await rig.admit(1)
    rig.pump.folded(1, 41)
    assert rig.told.admitted == 6, "each is told once"


async def test_what_waits_before_the_pump_is_observed(rig: Rig) -> None:
    rig.pump.waiting({0: 3, 1: 4})
    assert rig.seen.lags == {0: 3, 1: 4}
