"""Stray offsets are let go of within a bound, whatever the broker does not answer."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator

import pytest

from streams.agents.transaction import Overdue, TransactionalProducer
from streams.errors import BrokerError
from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.mock_cluster import mock_cluster
from tests.support.slow_network import (
    FIND_COORDINATOR,
    TXN_OFFSET_COMMIT,
    SlowNetwork,
    slow_network,
)

TOPIC = "turns"
FAILED = f"stray offsets of owner at {TOPIC}/0 could not be ended: "


def nobody(group: str) -> bytes:
    """Return the metadata of a group without its members."""
    return b"CGMDv2:" + struct.pack("=i", -1) + group.encode() + b"\0\0\x01"


@pytest.fixture
def network() -> Iterator[SlowNetwork]:
    with mock_cluster() as broker, slow_network(broker) as network:
        yield network


def owner(network: SlowNetwork) -> TransactionalProducer:
    settings = Settings(bootstrap=network.bootstrap, transaction_timeout_ms=1_000)
    make_producer(settings).list_topics(TOPIC, timeout=30)  # makes it
    made = TransactionalProducer(settings, "owner")
    made.fence()
    return made


def test_a_broker_that_does_not_take_offsets_fails_the_call_and_the_next_owner_is_served(
    network: SlowNetwork,
) -> None:
    before = owner(network)
    network.hold(TXN_OFFSET_COMMIT)
    with pytest.raises(BrokerError, match=FAILED) as caught:
        before.end_stray_offsets_at(TOPIC, 0, nobody("group"))
    assert caught.value.retryable
    network.release()
    owner(network).end_stray_offsets_at(TOPIC, 0, nobody("group"))


def test_a_client_that_waits_for_the_group_s_coordinator_for_ever_is_left_alone(
    network: SlowNetwork,
) -> None:
    """It looks for the coordinator without any limit of its own."""
    hanging = owner(network)
    network.hold(FIND_COORDINATOR)
    with pytest.raises(Overdue, match=f"{FAILED}the client does not come back after 3 s") as caught:
        hanging.end_stray_offsets_at(TOPIC, 0, nobody("group"))
    assert caught.value.retryable
    left = [each for each in threading.enumerate() if each.name == "stray offsets of owner"]
    assert [each.daemon for each in left] == [True], "a process that ends does not wait for it"
    network.release()
    left[0].join(30)
    assert not left[0].is_alive(), "it was the answer that it waited for"
