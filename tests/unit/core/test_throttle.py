"""The throttle: first come, first served, never too many in a window, whoever is cancelled.

Source: SEMANTICS 3.5, vectors 3-04 to 3-06.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.engine import Memory, MemoryStore
from tests.support.gate_log import GateLog
from tests.support.stage_log import CODEC

S = 1_000


@pytest.mark.parametrize(
    ("limit", "period", "arrivals", "starts"),
    [
        (1, 30, (0, 0), (0, 30)),
        (1, 30, (0, 5, 10), (0, 30, 60)),
        (2, 10, (0, 0, 1, 2, 3), (0, 0, 10, 10, 20)),
        (1, 10, (0, 25, 26), (0, 25, 35)),
    ],
)
def test_a_throttle_delays_in_order_and_drops_nothing(
    limit: int, period: int, arrivals: tuple[float, ...], starts: tuple[float, ...]
) -> None:
    log = GateLog({"throttle": {"period_ms": period * S, "max": limit}})
    names = [f"d{number}" for number in range(len(arrivals))]
    for name, at in zip(names, arrivals, strict=True):
        log.arrive(name, at)
    log.pass_time(1_000)
    assert [log.starts()[name] for name in names] == list(starts)
    assert not log.skips
    assert log.kinds().count("throttle_acquired") == len(arrivals)


def test_a_late_start_pushes_the_next_one_back_so_that_no_window_holds_too_many() -> None:
    log = GateLog({"throttle": {"period_ms": 10 * S, "max": 1}})
    for name in ("a", "b", "c"):
        log.arrive(name, 0)
    log.now_ms += 13 * S  # nobody ticked at 10: the owner was away
    log.pass_time(100)
    assert [log.starts()[name] for name in ("a", "b", "c")] == [0, 13, 23]


def test_what_is_too_much_for_a_throttle_takes_no_start_from_what_comes_later() -> None:
    log = GateLog({"throttle": {"period_ms": 10 * S, "max": 1}, "max_waiting": 2})
    for number in range(20):
        log.arrive(f"d{number}", 0)
    assert set(log.dead.values()) == {"gate_full"}
    assert len(log.dead) == 17
    log.arrive("later", 25)
    log.pass_time(1_000)
    assert log.starts() == {"d0": 0, "d1": 10, "d2": 20, "later": 30}
    assert log.kinds().count("throttle_wait") == 3, "nobody waits who is dead"


def test_a_throttle_forgets_the_starts_of_those_who_were_cancelled() -> None:
    log = GateLog({"throttle": {"period_ms": 10 * S, "max": 1}})
    for number in range(20):
        log.arrive(f"d{number}", 0)
    for number in range(1, 20):
        log.cancel(f"d{number}", 5)
    log.arrive("later", 6)
    log.pass_time(1_000)
    assert log.starts() == {"d0": 0, "later": 10}
    log.assert_replays([3, 1, 4], reload_at=frozenset({1, 2, 3}))


@pytest.mark.parametrize(
    ("cancelled", "starts"),
    [
        ((1,), {0: 0, 1.5: 0, 2: 10, 3: 10, 4: 20, 5: 20}),
        ((3,), {0: 0, 1.5: 0, 1: 10, 2: 10, 4: 20, 5: 20}),
        ((1, 2, 3), {0: 0, 1.5: 0, 4: 10, 5: 10}),
        ((5, 4), {0: 0, 1.5: 0, 1: 10, 2: 10, 3: 20}),
    ],
)
def test_those_behind_a_cancelled_waiter_of_a_throttle_move_up(
    cancelled: tuple[int, ...], starts: dict[float, float]
) -> None:
    log = GateLog({"throttle": {"period_ms": 10 * S, "max": 2}})
    for number in (0, 1.5, 1, 2, 3, 4, 5):
        log.arrive(f"d{number}", 0)
    for number in cancelled:
        log.cancel(f"d{number}", 4)
    log.pass_time(1_000)
    assert log.starts() == {f"d{number}": at for number, at in starts.items()}
    log.assert_replays([3, 1, 4], reload_at=frozenset({1, 2, 3}))


def test_a_throttle_lets_those_start_first_who_came_first_whatever_their_ids() -> None:
    log = GateLog({"throttle": {"period_ms": 10 * S, "max": 3}})
    names = [f"d{number}" for number in (0, 9, 4, 8, 1, 7, 2, 5)]
    for name in names:
        log.arrive(name, 0)
    log.pass_time(1_000)
    assert list(log.starts()) == names
    assert list(log.starts().values()) == [0, 0, 0, 10, 10, 10, 20, 20]


def test_of_those_who_come_to_a_throttle_at_once_the_first_arrival_goes_first() -> None:
    log = GateLog(
        {
            "debounce": {"key": "k", "period_ms": 10 * S},
            "throttle": {"period_ms": 60 * S, "max": 1},
        }
    )
    log.arrive("first", 0, keys={"debounce": "first"})
    for number, name in enumerate("cab"):  # timers that are due at once fire by name
        log.arrive(name, 1, keys={"debounce": str(number)})
    log.pass_time(1_000)
    assert log.starts() == {"first": 10, "c": 70, "a": 130, "b": 190}
    log.assert_replays([3, 1, 4], reload_at=frozenset({1, 2, 3}))


@given(
    period_ms=st.sampled_from([700, 1_000]),
    limit=st.integers(1, 4),
    gaps=st.lists(st.integers(0, 600), min_size=1, max_size=25),
)
def test_a_throttle_keeps_what_it_says_of_delays(
    period_ms: int, limit: int, gaps: list[int]
) -> None:
    log = GateLog({"throttle": {"period_ms": period_ms, "max": limit}})
    at_ms, said = 0, dict[str, int]()
    for number, gap_ms in enumerate(gaps):
        at_ms += gap_ms
        log.arrive(f"d{number}", at_ms / 1_000)
        told = [out.value for out in log.decisions if out.kind == "throttle_wait"]
        delays = {each["dispatch_id"]: each["delay_ms"] for each in told}
        said[f"d{number}"] = at_ms + delays.get(f"d{number}", 0)
    log.pass_time(1_000)
    assert {name: round(start * 1_000) for name, start in log.starts().items()} == said


def test_a_throttle_whose_waiters_were_cancelled_is_stored_as_if_they_had_not_come() -> None:
    flow = {"throttle": {"period_ms": 10 * S, "max": 1}}
    alone, left = GateLog(flow), GateLog(flow)
    for log in (alone, left):
        log.arrive("a", 0)
    left.arrive("b", 1)
    left.cancel("b", 2)
    assert left.rows == alone.rows


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("away_s", [0, 7, 25, 500])
def test_waiters_that_an_earlier_build_gave_a_due_time_each_start_in_order(
    limit: int, away_s: int
) -> None:
    log = GateLog({"throttle": {"period_ms": 10 * S, "max": limit}})
    names = [f"d{number}" for number in range(9)]
    for name in names:
        log.arrive(name, 0)
    store = dict(log.memory.rows.store.items())
    for number, name in enumerate(names[limit:], limit):
        row = log.rows[f"d:{name}"]
        planned_ms = row["since_ms"] + number // limit * 10 * S
        written = {**row, "since_ms": 0, "due_ms": planned_ms}
        store[f"d:{name}".encode()] = CODEC.encode("row_dispatch", written)
    log.memory = Memory(log.stage, 0, MemoryStore(store), log.memory.position)
    log.now_ms += away_s * S  # the owner was away: some are due while those before start
    log.arrive("later", away_s)
    log.pass_time(1_000)
    assert list(log.starts()) == [*names, "later"]
    starts = list(log.starts().values())
    assert all(after - before >= 10 for before, after in zip(starts, starts[limit:], strict=False))
    assert starts[limit] == max(away_s, 10), "nobody waits longer than for those before"
    assert starts[-1] == starts[limit] + (len(names) - limit) // limit * 10


def test_a_queue_that_never_empties_does_not_grow() -> None:
    log = GateLog({"throttle": {"period_ms": 1 * S, "max": 1}})
    for number in range(600):
        log.arrive(f"d{number}", number * 0.95)
    (waiting,) = log.memory.state.index.slots.waiting.values()
    assert waiting.live
    assert len(waiting.heap) <= 2 * len(waiting.live) + 64
