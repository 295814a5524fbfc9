"""What the catalog says of queues, and which of it counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streams.codec import Codec
from streams.core.ready_jobs import SHARDS_MAX
from streams.edge.queue_catalog import Catalog, read_catalog
from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.mock_cluster import mock_cluster
from tests.support.queue_summaries import summary

CODEC = Codec()
CONFIGURED = {"shard_by": "tenant", "numbers": [], "configured_at": "", "configured_by": ""}


def catalog_of(*words: tuple[str, Mapping[str, Any]]) -> Catalog:
    """Read a catalog in which these words stand, by kind."""
    with mock_cluster() as bootstrap:
        settings = Settings(bootstrap=bootstrap)
        producer = make_producer(settings)
        for kind, value in words:
            encoded = CODEC.encode(kind, value)
            producer.produce("worker.queues", encoded, b"k", 0, headers=[("kind", kind.encode())])
        assert producer.flush(30) == 0
        return read_catalog(settings, CODEC)


def test_a_word_of_more_shards_than_a_queue_can_have_is_none() -> None:
    said = [
        ("queue_configured", {**CONFIGURED, "queue": "q", "shards": shards})
        for shards in (0, -1, SHARDS_MAX + 1, (1 << 31) - 1, SHARDS_MAX, 2)
    ]
    found = catalog_of(*said).configured
    assert {queue: word["shards"] for queue, word in found.items()} == {"q": SHARDS_MAX}


@pytest.mark.parametrize("queue", ["", "a:b", "q#1", "q.claims", "requests", "x" * 300])
def test_a_summary_of_what_can_be_no_queue_is_none(queue: str) -> None:
    good, bad = (("queue_summary", summary(each)) for each in ("q", queue))
    assert [each["queue"] for each in catalog_of(bad, good).summaries] == ["q"]
