from hypothesis import given
from hypothesis import strategies as st

from streams.engine import timers as module
from streams.engine.timers import Timers

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
DUE = st.none() | st.integers(0, 6) | st.integers(0, 5).map(lambda n: n * module._BUCKET_MS // 2)
CHANGES = st.lists(
    st.tuples(st.just("set"), KEYS, DUE)
    | st.tuples(st.just("drop"), KEYS, st.none())
    | st.tuples(st.just("fire"), KEYS, st.none())
)


def fire_all(timers: Timers) -> list[tuple[int, bytes]]:
    fired: list[tuple[int, bytes]] = []
    while (entry := timers.first()) is not None:
        timers.disarm_first()
        fired.append(entry)
    return fired


@given(CHANGES)
def test_timers_fire_in_order_whatever_happened_before(
    changes: list[tuple[str, bytes, int | None]],
) -> None:
    timers = Timers("due_ms", ticking=True)
    expected: dict[bytes, int | None] = {}
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


@given(st.dictionaries(st.binary(max_size=3), DUE))
def test_loaded_timers_are_those_of_the_rows(rows: dict[bytes, int | None]) -> None:
    timers = Timers("due_ms", ticking=True)
    timers.load(rows.items())
    armed = sorted((due_ms, key) for key, due_ms in rows.items() if due_ms is not None)
    assert len(timers) == len(rows)
    assert fire_all(timers) == armed


def test_renewals_do_not_pile_up() -> None:
    timers = Timers("due_ms", ticking=True)
    for due_ms in range(20_000):
        timers.set(b"lease", due_ms)
    assert timers.entries <= 2 + module._STALE_ALLOWED
    assert fire_all(timers) == [(19_999, b"lease")]


def test_a_row_that_is_written_again_with_its_due_time_fires_once() -> None:
    timers = Timers("due_ms", ticking=True)
    timers.set(b"a", 5)
    timers.set(b"a", 7)
    timers.set(b"a", 5)
    timers.set(b"a", 5)
    assert fire_all(timers) == [(5, b"a")]


def test_what_is_due_late_waits_without_an_entry_of_the_heap() -> None:
    timers = Timers("due_ms", ticking=True)
    day_ms = 86_400_000
    keys = [f"w:{number:04}".encode() for number in range(2_000)]
    for number, key in enumerate(keys):
        timers.set(key, day_ms + 60_000 * number)
    timers.set(b"soon", 5)
    assert len(timers.heap) == 1
    later = [(day_ms + 60_000 * number, key) for number, key in enumerate(keys)]
    assert fire_all(timers) == [(5, b"soon"), *later]


def test_one_that_is_due_soon_does_not_move_the_many_of_one_moment() -> None:
    timers = Timers("due_ms", ticking=True)
    keys = [f"r:{number:04}".encode() for number in range(2_000)]
    for key in keys:
        timers.set(key, 90_000)
    heap = timers.heap
    timers.set(b"soon", 5)
    assert timers.heap is heap
    assert fire_all(timers) == [(5, b"soon"), *((90_000, key) for key in keys)]


def test_one_that_is_put_off_within_its_bucket_keeps_its_entry() -> None:
    timers = Timers("due_ms", ticking=True)
    timers.set(b"soon", 5)
    last_ms = 3 * module._BUCKET_MS - 1
    for due_ms in range(last_ms - 100, last_ms + 1):
        timers.set(b"w", due_ms)
    assert timers.entries == 2
    assert fire_all(timers) == [(5, b"soon"), (last_ms, b"w")]
