"""Taking partitions on a real broker: one at a time, fenced anew in doubt, the right mailbox."""

from __future__ import annotations

import asyncio
import logging
import struct
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from streams.agents.app import StageApp
from streams.agents.changelog import offset_metadata
from streams.agents.live import LiveStage
from streams.agents.owned import Owned
from streams.agents.rocks import RocksStore
from streams.audit.log import LogRecord
from streams.engine import fold_batch, settle
from streams.errors import BrokerError, TopologyError
from streams.kafka import make_admin
from streams.provision import provision_topics
from tests.support.broker import Kafka
from tests.support.fleet import wait_until
from tests.support.live_toy import PARTITIONS, LiveToy
from tests.support.toy import command

pytestmark = [pytest.mark.broker]

ALL = range(PARTITIONS)


def rows_of(live: LiveStage) -> dict[int, int]:
    owned = live.owned.items()
    return {p: len(each.memory.rows.store.snapshot()) for p, each in owned if each.memory}


async def test_a_taking_that_is_overtaken_ends_before_the_next_begins(
    kafka: Kafka, tmp_path: Path
) -> None:
    toy = LiveToy(kafka.settings)
    for partition in ALL:
        toy.append(command("put", "p:1", text="a row"), partition=partition)
    async with toy.member():
        await toy.everything_folded()
    app = toy.app(store="rocksdb", state_dir=tmp_path)
    try:
        for moments in range(6):
            overtaken = asyncio.create_task(app.live._taking.take(ALL, doubtful=False))
            await asyncio.wait([overtaken], timeout=moments * 0.03)
            overtaken.cancel()
            owned = await app.live._taking.take(ALL, doubtful=False)
            assert sorted(owned) == list(ALL)
            assert rows_of(app.live) == dict.fromkeys(ALL, 1)
            stores: list[Any] = [each.memory and each.memory.rows.store for each in owned.values()]
            assert all(isinstance(store, RocksStore) for store in stores)
            await app.live._taking.take((), doubtful=False)
    finally:
        await app.live.close()


async def commit(app: StageApp, entry: Owned, offset: int) -> None:
    """Fold and commit one record, outside any generation of the group."""
    memory = entry.memory
    assert memory is not None
    value = app.live.bound.codec.encode("toy_command", command("put", f"p:{offset}"))
    record = LogRecord(offset, 1_000, b"k", value, [("kind", b"command")])
    step = fold_batch(memory, [record])
    nobody = b"CGMDv2:" + struct.pack("=i", -1) + app.conf.id.encode() + b"\0\0\x01"
    metadata = offset_metadata(step.position.seq, 0, b"")
    await asyncio.to_thread(entry.producer.commit, step, metadata, nobody)
    settle(memory, step)


async def test_in_doubt_a_partition_that_stays_is_fenced_anew(kafka: Kafka) -> None:
    toy = LiveToy(kafka.settings)
    toy.append(*(command("put", f"p:{n}") for n in range(3)))
    ours, other = toy.app(), toy.app()
    try:
        owned = await ours.live._taking.take((0,), doubtful=False)
        await commit(ours, owned[0], 0)
        memory = owned[0].memory
        await other.live._taking.take((0,), doubtful=False)
        kept = await ours.live._taking.take((0,), doubtful=True)
        assert kept[0].memory is memory, "nobody has committed meanwhile: the memory is good"
        await commit(ours, kept[0], 1)
        with pytest.raises(BrokerError, match="transaction 2"):
            await commit(other, other.live.owned[0], 1)
    finally:
        await ours.live.close()
        await other.live.close()


def make_anew(toy: LiveToy, topic: str) -> None:
    admin = make_admin(toy.settings)
    admin.delete_topics([topic])[topic].result(30)
    wait_until("it is gone", lambda: topic not in admin.list_topics(timeout=30).topics)
    provision_topics(toy.settings, declared=toy.topology)


async def test_a_mailbox_that_was_made_anew_is_refused(kafka: Kafka) -> None:
    toy = LiveToy(kafka.settings)
    toy.append(*(command("emit", text=f"old {n}") for n in range(3)))
    async with toy.member():
        await toy.everything_folded()
    await asyncio.to_thread(make_anew, toy, toy.mailbox)
    toy.append(command("emit", text="new"))
    app = toy.app()
    try:
        with pytest.raises(TopologyError, match=r"ends at offset 1.*up to offset 3.*made anew"):
            await app.live._taking.take(ALL, doubtful=False)
    finally:
        await app.live.close()


async def test_records_that_went_unfolded_are_told(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    toy = LiveToy(kafka.settings)
    toy.append(*(command("emit", text=f"{n}:") for n in range(2)))
    async with toy.member():
        await toy.everything_folded()
    toy.append(*(command("emit", text=f"{n}:") for n in range(2, 8)))
    admin = make_admin(kafka.settings)
    for cut in admin.delete_records([TopicPartition(toy.mailbox, 0, 5)]).values():
        cut.result(30)
    with caplog.at_level(logging.ERROR):
        async with toy.member():
            await toy.everything_folded()
    [told] = [each for each in caplog.records if each.message == "mailbox_begins_later"]
    said = vars(told)
    assert (said["position"], said["first_offset"]) == (2, 5)
    assert toy.texts() == ["0:0", "1:0", "5:0", "6:0", "7:0"]
