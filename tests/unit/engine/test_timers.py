from hypothesis import given
from hypothesis import strategies as st

from streams.engine import timers as module
from streams.engine.timers import Timers

KEYS = st.sampled_from(["a", "b", "c", "d"])
DUE = st.none() | st.integers(0, 6)
CHANGES = st.lists(
    st.tuples(st.just("set"), KEYS, DUE)
    | st.tuples(st.just("drop"), KEYS, st.none())
    | st.tuples(st.just("fire"), KEYS, st.none())
)


def fire_all(timers: Timers) -> list[tuple[int, str]]:
    fired: list[tuple[int, str]] = []
    while (entry := timers.first()) is not None:
        timers.disarm_first()
        fired.append(entry)
    return fired


@given(CHANGES)
def test_timers_fire_in_order_whatever_happened_before(
    changes: list[tuple[str, str, int | None]],
) -> None:
    timers = Timers("due_ms", ticking=True)
    expected: dict[str, int | None] = {}
    for change, key, due_ms in changes:
        if change == "set":
            timers.set(key, due_ms)
            expected[key] = due_ms
        elif change == "drop":
            timers.drop(key)
            expected.pop(key, None)
        elif (entry := timers.first()) is not None:
            timers.disarm_first()
            expected[entry[1]] = None
        assert len(timers) == len(expected)
        armed = sorted((due_ms, key) for key, due_ms in expected.items() if due_ms is not None)
        assert timers.first() == (armed[0] if armed else None)
    assert fire_all(timers) == armed if changes else fire_all(timers) == []


@given(st.dictionaries(st.text(max_size=3), DUE))
def test_loaded_timers_are_those_of_the_rows(rows: dict[str, int | None]) -> None:
    timers = Timers("due_ms", ticking=True)
    timers.load(rows.items())
    armed = sorted((due_ms, key) for key, due_ms in rows.items() if due_ms is not None)
    assert len(timers) == len(rows)
    assert fire_all(timers) == armed


def test_renewals_do_not_pile_up() -> None:
    timers = Timers("due_ms", ticking=True)
    for due_ms in range(20_000):
        timers.set("lease", due_ms)
    assert len(timers.heap) <= 2 + module._STALE_ALLOWED
    assert fire_all(timers) == [(19_999, "lease")]


def test_a_row_that_is_written_again_with_its_due_time_fires_once() -> None:
    timers = Timers("due_ms", ticking=True)
    timers.set("a", 5)
    timers.set("a", 7)
    timers.set("a", 5)
    timers.set("a", 5)
    assert fire_all(timers) == [(5, "a")]
