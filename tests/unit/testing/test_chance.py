from collections import Counter

from streams.testing.chance import Chance


def test_a_seed_makes_the_choices_of_the_published_generator() -> None:
    chance = Chance(0)
    drawn = [chance.below(1 << 64) for _ in range(3)]
    assert drawn == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_choices_are_about_equally_frequent() -> None:
    chance = Chance(1)
    counts = Counter(chance.below(10) for _ in range(20_000))
    assert set(counts) == set(range(10))
    assert min(counts.values()) > 1_800


def test_what_happens_never_or_always_needs_no_luck() -> None:
    chance = Chance(1)
    assert not any(chance.happens(0) for _ in range(100))
    assert all(chance.happens(1_000) for _ in range(100))


def test_every_item_can_be_picked() -> None:
    chance = Chance(3)
    assert {chance.pick("abc") for _ in range(100)} == set("abc")
