from __future__ import annotations

import asyncio

import pytest

from streams.agents.backlog import KafkaBacklog
from streams.agents.pump_book import Sample
from streams.errors import BrokerError
from streams.handler_api import Context, Event
from tests.support.broker import Kafka
from tests.support.eventually import eventually
from tests.support.invoker_group import PARTITIONS, InvokerGroup

pytestmark = pytest.mark.broker


async def measured(backlog: KafkaBacklog) -> Sample:
    """Measure; a new cluster takes a while to have a coordinator for groups."""
    for _ in range(10):
        try:
            return await asyncio.to_thread(backlog.measure)
        except BrokerError:
            continue
    return await asyncio.to_thread(backlog.measure)


async def test_what_is_before_the_invokers_is_measured_as_they_go_on(kafka: Kafka) -> None:
    open_gate = asyncio.Event()

    async def wait(_event: Event, _context: Context) -> None:
        await open_gate.wait()

    group = InvokerGroup(kafka.settings, wait=wait)
    backlog = KafkaBacklog(kafka.settings, PARTITIONS, topic=group.invocations, group=group.group)
    empty = await measured(backlog)
    assert (sum(empty.ends.values()), sum(empty.committed.values()), empty.invokers) == (0, 0, 0)
    group.invoke("wait", [f"w{n}" for n in range(40)])
    full = await measured(backlog)
    assert sum(full.ends.values()) - sum(full.committed.values()) == 40
    try:
        await group.join()
        await eventually(lambda: len(group.functions.running) == 40, "40 handlers run")
        open_gate.set()
        await group.outcomes(40)
        await group.all_committed()
        fresh = KafkaBacklog(kafka.settings, PARTITIONS, topic=group.invocations, group=group.group)
        done = await measured(fresh)
        assert done.ends == done.committed
        assert done.invokers == 1
    finally:
        await group.stop()


async def test_a_topic_that_is_missing_is_an_error_of_the_broker(kafka: Kafka) -> None:
    backlog = KafkaBacklog(kafka.settings, 1, topic="no.such.topic", group="no.such.group")
    with pytest.raises(BrokerError, match="the backlog of "):
        await asyncio.to_thread(backlog.measure)
