"""The fleet: who is there, by the last that was heard."""

from __future__ import annotations

import pytest

from streams.codec import Codec
from streams.core.turn.fleet import (
    HEARTBEAT_MS,
    SESSIONS_SHOWN_MAX,
    WORKER_TTL_MS,
    Presence,
    alive,
    is_alive,
)
from streams.core.wire import FleetWorker

NOW_MS = 1_000_000


def presence(worker_id: str = "w") -> Presence:
    return Presence(
        worker_id=worker_id,
        token=f"{worker_id}:1",
        host="hostB",
        capacity=4,
        queue_backend="kafka",
        started_at_ms=5,
    )


def beat(age_ms: int, worker_id: str = "w") -> FleetWorker:
    return presence(worker_id).heartbeat(active_sessions=(), now_ms=NOW_MS - age_ms)


def test_8_24_a_later_heartbeat_has_the_newest_values_and_the_first_start() -> None:
    first = presence().heartbeat(active_sessions=["a"], now_ms=10)
    second = presence().heartbeat(active_sessions=["b"], partitions=[3, 1], now_ms=20)

    assert first["worker_id"] == second["worker_id"]
    assert (second["started_at_ms"], second["last_heartbeat_ms"]) == (5, 20)
    assert (second["active_sessions"], second["partitions"]) == (["b"], [1, 3])


@pytest.mark.parametrize(
    ("age_ms", "there"),
    [
        pytest.param(WORKER_TTL_MS, True, id="at the limit"),
        pytest.param(WORKER_TTL_MS + 1, False, id="past it"),
        pytest.param(900_000, False, id="8-25"),
        pytest.param(-5, True, id="ahead of the clock"),
    ],
)
def test_a_worker_that_was_not_heard_of_is_not_there(age_ms: int, there: bool) -> None:
    assert is_alive(beat(age_ms), NOW_MS) is there


def test_two_heartbeats_may_be_lost_before_a_worker_is_missed() -> None:
    assert 3 * HEARTBEAT_MS <= WORKER_TTL_MS


def test_8_26_workers_are_listed_the_last_heard_of_first() -> None:
    found = alive(
        [beat(50, "b"), beat(50, "a"), beat(10, "c"), beat(WORKER_TTL_MS + 1, "d")], NOW_MS
    )

    assert [worker["worker_id"] for worker in found] == ["c", "a", "b"]
    assert found[0]["host"] == "hostB"


def test_a_heartbeat_names_a_bounded_number_of_sessions_in_their_order() -> None:
    sessions = [f"s{number:05}" for number in reversed(range(SESSIONS_SHOWN_MAX + 5))]

    found = presence().heartbeat(active_sessions=sessions, now_ms=1)

    assert found["active_sessions"] == sorted(sessions)[:SESSIONS_SHOWN_MAX]
    assert Codec().decode(Codec().encode("fleet_worker", found)) == ("fleet_worker", found)
