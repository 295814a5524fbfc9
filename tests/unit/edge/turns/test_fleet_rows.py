"""Heartbeats of workers, as the database keeps them: vectors of SEMANTICS 8.11 by number."""

from __future__ import annotations

from streams.edge.turns.turn_store import (
    FleetWorker,
)
from tests.support.sql_turns import Place


def test_8_24_two_heartbeats_of_a_worker_are_one_row_with_the_newest_values(place: Place) -> None:
    store = place.open().store
    beat = FleetWorker(
        worker_id="w", host="h", capacity=1, active_sessions=(), queue_backend="sqlite"
    )
    store.beat(beat)
    (first,) = store.workers()
    place.pass_time(30_000)
    store.beat(
        FleetWorker(
            worker_id="w", host="i", capacity=2, active_sessions=("s",), queue_backend="kafka"
        )
    )

    (found,) = store.workers()
    assert (found.host, found.capacity, found.active_sessions) == ("i", 2, ("s",))
    assert found.started_at_ms == first.started_at_ms
    assert found.last_heartbeat_ms >= first.last_heartbeat_ms


def test_8_25_a_worker_that_was_last_heard_of_long_ago_is_not_listed(place: Place) -> None:
    store = place.open().store
    store.beat(
        FleetWorker(worker_id="w", host="h", capacity=1, active_sessions=(), queue_backend="sqlite")
    )
    place.pass_time(900_000)

    assert store.workers() == []
