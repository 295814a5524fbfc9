from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from streams.edge.invoker.lease_book import WORD_INVOCATIONS_MAX, Invocation, LeaseBook

LEASE_MS = 15_000


@dataclass(eq=False)
class Running:
    dispatch_id: str = "d"
    attempt: int = 1
    fence: int = 1
    home_partition: int = 0


def test_nothing_is_due_while_nothing_runs() -> None:
    book = LeaseBook(LEASE_MS)
    assert book.next_due_ms() is None
    assert book.due(1_000_000) == ([], 0)


def test_an_invocation_is_announced_after_a_second_and_renewed_every_third_of_the_lease() -> None:
    book, one = LeaseBook(LEASE_MS), Running()
    book.started(one, 0)
    said: list[int] = []
    while (due_ms := book.next_due_ms()) is not None and due_ms < 20_000:
        words, late_ms = book.due(due_ms)
        assert [(word.home_partition, word.invocations) for word in words] == [(0, (one,))]
        assert late_ms == 0
        said.append(due_ms)
    assert said == [1_000, 6_000, 11_000, 16_000]


def test_a_lease_below_three_seconds_is_announced_within_its_third() -> None:
    book = LeaseBook(1_500)
    book.started(Running(), 0)
    assert book.next_due_ms() == 500


def test_one_that_ends_within_a_second_is_never_named() -> None:
    book, one = LeaseBook(LEASE_MS), Running()
    book.started(one, 0)
    book.ended(one)
    assert book.next_due_ms() is None


def test_one_that_ended_is_not_renewed() -> None:
    book, one, two = LeaseBook(LEASE_MS), Running("a"), Running("b")
    for each in (one, two):
        book.started(each, 0)
    book.due(1_000)
    book.ended(one)
    assert book.due(6_000).words == [(0, (two,))]
    book.ended(two)
    assert book.next_due_ms() is None


def test_one_that_is_started_twice_is_one() -> None:
    book, one, two = LeaseBook(LEASE_MS), Running("a"), Running("b")
    book.started(one, 0)
    book.started(two, 500)
    book.started(one, 900)
    assert book.due(1_000).words == [(0, (one,))]
    book.started(one, 1_100)
    book.ended(one)
    assert book.due(6_000).words == [(0, (two,))]


def test_a_renewal_is_one_record_for_each_home_partition() -> None:
    book = LeaseBook(LEASE_MS)
    running = [Running(f"d{n}", home_partition=n % 2) for n in range(4)]
    for each in running:
        book.started(each, 0)
    book.due(1_000)
    assert book.due(6_000).words == [(0, (running[0], running[2])), (1, (running[1], running[3]))]


def test_an_announcement_between_renewals_names_only_what_is_new() -> None:
    book, old, new = LeaseBook(LEASE_MS), Running("old"), Running("new")
    book.started(old, 0)
    book.due(1_000)
    book.started(new, 2_000)
    assert book.due(3_000).words == [(0, (new,))]
    assert book.due(6_000).words == [(0, (old, new))]


def test_a_word_in_vain_is_said_again_soon() -> None:
    book, one = LeaseBook(LEASE_MS), Running()
    book.started(one, 0)
    book.due(1_000)
    book.said_in_vain(1_200)
    assert book.next_due_ms() == 1_700
    assert book.due(1_700).words == [(0, (one,))]


def test_announce_starts_the_lease_of_a_young_one_at_once() -> None:
    book, one = LeaseBook(LEASE_MS), Running()
    book.started(one, 0)
    assert book.announce([one], 10) == [(0, (one,))]
    assert book.next_due_ms() == 5_010


def test_a_renewal_beyond_the_lease_says_how_late_it_is() -> None:
    book, one = LeaseBook(LEASE_MS), Running()
    book.started(one, 0)
    book.due(1_000)
    assert book.due(21_000) == ([(0, (one,))], 5_000)
    assert book.due(26_000).late_ms == 0


def test_a_word_names_no_more_than_its_bound() -> None:
    book = LeaseBook(LEASE_MS)
    for n in range(WORD_INVOCATIONS_MAX + 1):
        book.started(Running(f"d{n}"), 0)
    assert [len(word.invocations) for word in book.due(1_000).words] == [WORD_INVOCATIONS_MAX, 1]


@given(st.data())
def test_every_invocation_is_named_in_time_and_none_after_its_end(data: st.DataObject) -> None:
    """Whatever starts and ends when: `due`, called when the book asks for it, is never late."""
    lease_ms = data.draw(st.integers(30, 60_000))
    book = LeaseBook(lease_ms)
    last_named_ms: dict[Invocation, int] = {}
    live: list[Running] = []
    now_ms = 0

    def pass_time(until_ms: int) -> None:
        while (due_ms := book.next_due_ms()) is not None and due_ms <= until_ms:
            for word in book.due(due_ms).words:
                for each in word.invocations:
                    assert each in live
                    assert each.home_partition == word.home_partition
                    last_named_ms[each] = due_ms

    for _ in range(data.draw(st.integers(1, 40))):
        if live and data.draw(st.booleans()):
            ended = data.draw(st.sampled_from(live))
            live.remove(ended)
            book.ended(ended)
        else:
            started = Running(home_partition=data.draw(st.integers(0, 2)))
            live.append(started)
            book.started(started, now_ms)
            last_named_ms[started] = now_ms
        now_ms += data.draw(st.integers(0, lease_ms))
        pass_time(now_ms)
        third_ms = max(1, lease_ms // 3)
        for each in live:
            assert now_ms - last_named_ms[each] <= third_ms
