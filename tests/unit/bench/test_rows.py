import pytest

from bench.journal import Entry, longest_silence_s, rate_of
from bench.row import Row, at_least, at_most, percentile


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1), (0.501, 51)]
)
def test_a_percentile_is_one_of_the_values(share: float, expected: float) -> None:
    assert percentile([*range(100, 0, -1)], share) == expected


def test_a_row_is_its_median_and_keeps_every_round() -> None:
    row = Row("r", "s", [3.0, 9.0, 1.0], at_most(5))

    assert row.as_json() == {
        "name": "r",
        "value": 3.0,
        "unit": "s",
        "target": "<= 5",
        "holds": True,
        "runs": [3.0, 9.0, 1.0],
    }


def test_a_row_about_the_worst_is_its_worst() -> None:
    row = Row("r", "s", [3.0, 9.0, 1.0], at_most(5), pick=max)

    assert row.value == 9.0
    assert row.holds is False


def test_more_is_better_where_the_target_says_so() -> None:
    assert Row("r", "/s", [30_000], at_least(30_000)).holds
    assert not Row("r", "/s", [29_999], at_least(30_000)).holds
    assert Row("r", "/s", [1]).holds is None


def test_a_rate_counts_what_came_after_the_first_transaction() -> None:
    entries = [Entry("s", 0, 2_000, 500, 0), Entry("s", 1, 1_000, 900, 0)]

    assert rate_of(entries) == 500


def test_silence_is_the_longest_gap_of_the_partition() -> None:
    entries = [Entry("s", 0, at_ms, 1, 0) for at_ms in (100, 3_100, 200)]
    entries += [Entry("s", 1, 9_000, 1, 0)]

    assert longest_silence_s(entries, 0) == 2.9
    assert longest_silence_s(entries, 1) == 0
