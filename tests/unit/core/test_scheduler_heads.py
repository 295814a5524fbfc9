"""The heap of names by a value that changes, against looking at all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.core.scheduler.heads import Heads

_NAMES = "abcd"
_MOVES = st.lists(
    st.tuples(st.sampled_from(_NAMES), st.one_of(st.none(), st.integers(0, 5))), max_size=40
)


def _applied(values: dict[str, int], heads: Heads, name: str, value: int | None) -> None:
    """Let a name leave, or give it a value: only what falls, or is new, is offered."""
    before = values.pop(name, None)
    if value is not None:
        values[name] = value
        if before is None or value < before:
            heads.offer(name, value)


@given(_MOVES)
def test_the_least_of_all_names_is_first_whatever_they_went_through(
    moves: list[tuple[str, int | None]],
) -> None:
    values: dict[str, int] = {}
    heads = Heads(values.get)
    for name, value in moves:
        _applied(values, heads, name, value)
        least = min(((each, name) for name, each in values.items()), default=None)
        assert heads.first() == least


@given(_MOVES, st.integers(-1, 6))
def test_that_nothing_may_reach_a_value_is_never_said_of_one_that_does(
    moves: list[tuple[str, int | None]], limit: int
) -> None:
    values: dict[str, int] = {}
    heads = Heads(values.get)
    for name, value in moves:
        _applied(values, heads, name, value)
        if any(each <= limit for each in values.values()):
            assert heads.may_reach(limit)
    heads.first()
    least = min(values.values(), default=None)
    assert heads.may_reach(limit) == (least is not None and least <= limit)


def test_names_that_leave_and_are_never_asked_for_do_not_pile_up() -> None:
    values: dict[str, int] = {}
    heads = Heads(values.get)
    for number in range(20_000):
        values[f"{number}"] = number
        heads.offer(f"{number}", number)
        if number >= 10:
            del values[f"{number - 10}"]
        assert len(heads) <= 1_024 + 2 * 11


def test_a_name_that_comes_again_and_again_takes_no_more_room() -> None:
    values = {"a": 0}
    heads = Heads(values.get)
    for number in range(10_000, 0, -1):
        values["a"] = number
        heads.offer("a", number)
        assert len(heads) <= 1_024 + 3
    assert heads.first() == (1, "a")
