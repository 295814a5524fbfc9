from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.agents.pump_book import RATE_OVER_S, STALE_AFTER_S, PumpBook, Sample, Standing


def sample(at_s: float, end: int, committed: int, invokers: int = 1) -> Sample:
    return Sample(at_s, {0: end}, {0: committed}, invokers)


def test_before_any_sample_as_much_goes_on_as_one_invoker_may_have() -> None:
    book = PumpBook()
    assert book.room(64, 0.0) == 64
    book.admitted(60)
    assert book.room(64, 0.0) == 4
    book.admitted(100)
    assert book.room(64, 0.0) == 0


def test_what_is_behind_the_group_takes_room_apart_from_the_mark_of_a_transaction() -> None:
    book = PumpBook()
    book.sampled(sample(0.0, 101, 100))
    assert book.standing(64, 0.0) == Standing(0, 64, 1)
    book.sampled(sample(0.2, 141, 100))
    assert book.room(64, 0.2) == 24
    book.admitted(30)
    assert book.room(64, 0.3) == 0


def test_each_live_invoker_adds_its_share_and_none_counts_as_one() -> None:
    book = PumpBook()
    book.sampled(sample(0.0, 0, 0, invokers=3))
    assert book.room(64, 0.0) == 192
    book.sampled(sample(0.2, 0, 0, invokers=0))
    assert book.room(64, 0.2) == 64


def test_fast_invokers_may_have_what_they_finish_in_two_seconds() -> None:
    book = PumpBook()
    for step in range(11):
        book.sampled(sample(step * 0.2, 1_000 + 600 * step, 600 * step))
    standing = book.standing(64, 2.0)
    assert standing.outstanding == 999
    assert standing.limit == 6_000


def test_invokers_that_stand_still_lose_that_within_a_second() -> None:
    book = PumpBook()
    for step in range(6):
        book.sampled(sample(step * 0.2, 600 * step, 600 * step))
    for step in range(6, 12):
        book.sampled(sample(step * 0.2, 3_500, 3_000))
    assert book.room(64, 2.2) == 0


def test_a_group_that_is_set_back_has_finished_nothing() -> None:
    book = PumpBook()
    book.sampled(sample(0.0, 5_000, 5_000))
    book.sampled(sample(0.5, 5_000, 0))
    assert book.standing(64, 0.5) == Standing(4_999, 64, 1)


def test_after_a_failed_sample_nothing_is_held_back_until_the_next_one() -> None:
    book = PumpBook()
    book.sampled(sample(0.0, 1_000, 0))
    assert book.room(64, 0.0) == 0
    book.failed()
    assert book.room(64, 0.1) is None
    book.sampled(sample(0.2, 1_000, 0))
    assert book.room(64, 0.2) == 0


def test_a_sample_of_long_ago_says_only_how_many_invokers_there_were() -> None:
    book = PumpBook()
    book.sampled(sample(0.0, 1_000, 0, invokers=2))
    assert book.room(64, STALE_AFTER_S + 0.1) == 128


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 300), st.integers(0, 300), st.booleans()),
        max_size=40,
    ),
    st.integers(1, 100),
)
def test_nothing_goes_on_beyond_the_limit(
    steps: list[tuple[int, int, int, bool]], max_outstanding: int
) -> None:
    """Against a reference that keeps every sample and looks through all of them each time."""
    book, now_s, done, issued = PumpBook(), 0.0, 0, 0
    samples: list[tuple[float, int]] = []
    admitted = 0
    for passed, finished, asked, sampled in steps:
        now_s += passed / 100
        done = min(issued, done + finished)
        if sampled:
            book.sampled(Sample(now_s, {0: issued + 1}, {0: done}, 1))
            samples.append((now_s, done))
            admitted = 0
        fresh = bool(samples) and samples[-1][0] >= now_s - STALE_AFTER_S
        behind = issued - admitted - samples[-1][1] if fresh else 0
        limit = max(max_outstanding, rate(samples) if fresh else 0)
        room = book.room(max_outstanding, now_s)
        assert room == max(0, limit - behind - admitted)
        going = min(asked, room or 0)
        book.admitted(going)
        admitted += going
        issued += going


def rate(samples: list[tuple[float, int]]) -> int:
    """The pace since the newest sample that is old enough, or else since the first one."""
    last_s, last = samples[-1]
    old = [each for each in samples[:-1] if each[0] <= last_s - RATE_OVER_S]
    first_s, first = old[-1] if old else samples[0]
    return 0 if last_s - first_s < 0.05 else int(2 * ((last - first) / (last_s - first_s)))
