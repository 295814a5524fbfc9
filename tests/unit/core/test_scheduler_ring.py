"""The ring of names against a sorted list, whatever is asked and removed in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.scheduler import ring as module
from streams.core.scheduler.ring import Ring

NAMES = [f"k{number:04d}" for number in range(3_000)]


def following(names: list[str], name: str | None) -> str | None:
    """The slow answer: the first greater one, else the first of all."""
    if not names:
        return None
    return next((each for each in names if name is None or each > name), names[0])


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove", "after"]), st.sampled_from(NAMES[:12])),
        max_size=60,
    )
)
def test_a_ring_answers_as_a_sorted_list_does(steps: list[tuple[str, str]]) -> None:
    ring, names = Ring(), set[str]()
    for step, name in steps:
        if step == "add" and name not in names:
            ring.add(name)
            names.add(name)
        elif step == "remove" and name in names:
            ring.remove(name)
            names.discard(name)
        else:
            assert ring.after(name) == following(sorted(names), name)
        assert ring.after(None) == following(sorted(names), None)
        assert bool(ring) == bool(names)


@given(st.integers(0, 7), st.booleans())
def test_what_was_found_is_removed_though_its_block_was_split_or_emptied(
    stride: int, taken_from_the_front: bool
) -> None:
    ring = Ring()
    for name in NAMES[stride::2]:
        ring.add(name)
    left, last = sorted(NAMES[stride::2]), None
    while left:
        name = ring.after(last)
        assert name == following(left, last)
        assert name is not None
        if not taken_from_the_front and len(left) % 3 == 0:
            ring.add(name + "x")  # moves what stands behind it, or splits the block
            ring.remove(name)
            ring.remove(name + "x")
        else:
            ring.remove(name)
        left.remove(name)
        last = name
    assert ring.after(last) is None
    assert len(NAMES) > module._BLOCK * 2, "blocks were split"


@pytest.mark.parametrize("step", [1, 7, 1_009, 2_999])
def test_a_walk_round_a_ring_of_many_blocks_meets_each_name_once(step: int) -> None:
    mixed = [NAMES[at * step % len(NAMES)] for at in range(len(NAMES))]
    ring = Ring()
    for name in mixed:
        ring.add(name)
    met, name = list[str](), None
    for _ in NAMES:
        name = ring.after(name)
        assert name is not None
        met.append(name)
    assert met == NAMES
    for name in reversed(mixed):
        ring.remove(name)
    assert not ring
