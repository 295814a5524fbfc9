"""A group's place is asked for again when a broker says nothing."""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import OFFSET_INVALID, TopicPartition

from streams.kafka import make_asker, places_of
from streams.settings import Settings
from tests.support.mock_cluster import mock_cluster
from tests.support.slow_network import OFFSET_FETCH, slow_network


def test_a_request_that_nobody_answers_is_asked_again() -> None:
    """A broker that makes its offsets topic forgets the request that came meanwhile."""
    with mock_cluster() as broker, slow_network(broker) as network:
        settings = Settings(bootstrap=network.bootstrap)
        with closing(make_asker(settings, "group", stable=True)) as asker:
            network.hold(OFFSET_FETCH, count=1)
            [place] = places_of(asker, [TopicPartition("any", 0)], 30)
            assert network.wait_held(), "one is still without an answer"
    assert place.offset == OFFSET_INVALID, "the group stands nowhere yet"
