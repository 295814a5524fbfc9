"""A feed on a real broker: what is read, paused, dropped, and read anew under another ticket."""

from __future__ import annotations

from typing import Any

import pytest

from streams.edge.turns.kafka.feed import Feed, Fetched
from tests.support.broker import Kafka
from tests.support.eventually import eventually
from tests.support.topics import append, new_topic

pytestmark = [pytest.mark.broker]


async def test_a_place_is_read_paused_dropped_and_read_anew(kafka: Kafka) -> None:
    topic = new_topic(kafka.settings)
    place = (topic, 0)
    append(kafka.settings, topic, [b"0", b"1"])
    found: list[Fetched] = []
    failed: list[Any] = []
    feed = Feed(
        kafka.settings,
        name="test",
        isolation="read_committed",
        take=found.extend,
        fail=failed.append,
        ends=True,
    )
    feed.start()
    try:
        feed.read({place: 1}, 1)
        await eventually(lambda: any(each.at_end for each in found), "the end is told")
        assert [(each.offset, each.value) for each in found if not each.at_end] == [(1, b"1")]
        assert next(each.offset for each in found if each.at_end) == 2
        feed.pause(place, 1, paused=True)
        feed.drop([place], 1)
        feed.drop([place], 1)  # it is gone already
        found.clear()
        feed.read({place: 0}, 2)
        await eventually(lambda: len(found) >= 3, "it is read anew, paused no more")
        assert [(each.offset, each.ticket) for each in found[:2]] == [(0, 2), (1, 2)]
        feed.drop([place], 1)  # of the assignment before: this one goes on
        append(kafka.settings, topic, [b"2"])
        await eventually(lambda: found[-1].offset >= 2 and len(found) > 3, "it goes on")
    finally:
        await feed.stop()
    assert failed == []
