"""What the catalog says of a queue, and which of it counts."""

from __future__ import annotations

import pytest

from streams.core.ready_jobs import SHARDS_MAX
from streams.edge.queue_catalog import is_usable


@pytest.mark.parametrize(
    ("shards", "usable"),
    [(-1, False), (0, False), (1, True), (SHARDS_MAX, True), (SHARDS_MAX + 1, False)],
)
def test_a_word_of_more_shards_than_a_queue_can_have_is_none(shards: int, usable: bool) -> None:
    word = {"queue": "q", "shards": shards, "shard_by": "tenant", "numbers": []}
    assert is_usable({**word, "configured_at": "", "configured_by": ""}) is usable  # type: ignore[typeddict-item]
