"""Lists that are dropped between their fetch and their fold: no record is passed over."""

from __future__ import annotations

import asyncio
import logging
import threading
from functools import partial
from typing import Any

import pytest
from faust.types import TP

from streams.agents.batch import BatchQueue
from streams.agents.transaction import BEFORE_OFFSETS
from tests.support.broker import Kafka
from tests.support.fleet import wait_until
from tests.support.live_toy import LiveToy, Member
from tests.support.toy import command

pytestmark = [pytest.mark.broker]


class Gate:
    """Holds up commits inside their transactions, on their threads."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.reached = threading.Event()

    def __call__(self, point: str) -> None:
        if point == BEFORE_OFFSETS:
            self.reached.set()
            assert self._open.wait(60), "somebody opens it"

    def open(self) -> None:
        self._open.set()


def queue_of(member: Member) -> BatchQueue:
    """What waits for the fold of partition 0."""
    (agent,) = member.app.agents.values()
    actor: Any = agent._actor_by_partition[TP(member.app.live.source, 0)]
    return actor.stream.channel.queue


async def queued(toy: LiveToy, member: Member, gate: Gate) -> None:
    """Return once one list is being committed, and others wait behind it."""
    toy.append(command("emit", text="first"))
    await asyncio.to_thread(gate.reached.wait, 60)
    for waiting in (5, 10, 15):
        toy.append(*(command("emit", text=f"{waiting}-{n}") for n in range(5)))
        held = partial(_holds, member, waiting)
        await asyncio.to_thread(wait_until, f"{waiting} records wait", held)


def _holds(member: Member, records: int) -> bool:
    return queue_of(member).qsize() == records


async def test_what_was_fetched_before_flow_goes_on_is_folded(kafka: Kafka) -> None:
    toy, gate = LiveToy(kafka.settings), Gate()
    async with toy.member(faults=gate) as member:
        await queued(toy, member, gate)
        member.app.flow_control.resume()  # as after each rebalance, when partitions were sought
        gate.open()
        await toy.everything_folded()
    toy.assert_every_record_was_folded_once()


async def test_a_list_that_something_dropped_is_fetched_again(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    toy, gate = LiveToy(kafka.settings), Gate()
    caplog.set_level(logging.WARNING)
    async with toy.member(faults=gate) as member:
        await queued(toy, member, gate)
        queue_of(member).get_nowait()
        toy.append(command("emit", text="last"))
        gate.open()
        await toy.everything_folded()
    toy.assert_every_record_was_folded_once()
    assert "records_fetched_again" in {record.msg for record in caplog.records}
