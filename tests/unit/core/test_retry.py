import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core import retry
from streams.core.wire import Backoff
from streams.testing import retry_policy


def delays(backoff: Backoff, attempts: int, **options: int) -> list[int | None]:
    policy = retry_policy(backoff, max_attempts=attempts, **options)
    return [retry.delay_ms(policy, failed) for failed in range(1, attempts + 1)]


def test_svix_waits_as_published() -> None:  # vectors 2-01, 2-05
    hours_10 = 36_000_000
    assert delays("svix", 11) == [
        5_000,
        300_000,
        1_800_000,
        7_200_000,
        18_000_000,
        hours_10,
        hours_10,
        hours_10,
        hours_10,
        hours_10,
        None,
    ]


def test_linear_waits_the_same_each_time() -> None:  # vector 2-02
    assert delays("linear", 4, delay_ms=2_500) == [2_500, 2_500, 2_500, None]


def test_the_seventh_attempt_of_the_default_is_the_last() -> None:  # vector 2-04
    policy = retry_policy("svix")
    assert policy["max_attempts"] == 7
    assert retry.delay_ms(policy, 6) == 36_000_000
    assert retry.delay_ms(policy, 7) is None


@pytest.mark.parametrize(("attempts", "total_ms"), [(7, 63_305_000), (5, 9_305_000)])
def test_svix_sleeps_so_long_in_all(attempts: int, total_ms: int) -> None:  # vector 2-06
    waited = [delay_ms for delay_ms in delays("svix", attempts) if delay_ms is not None]
    assert sum(waited) == total_ms


def test_immediate_does_not_wait() -> None:
    assert delays("immediate", 3) == [0, 0, None]


@given(
    base=st.integers(1, 10**9),
    cap=st.integers(1, 10**10),
    failed=st.integers(1, 98),
)
def test_exponential_doubles_up_to_its_cap(base: int, cap: int, failed: int) -> None:
    policy = retry_policy("exponential", max_attempts=100, delay_ms=base, cap_ms=cap)
    first, second = retry.delay_ms(policy, failed), retry.delay_ms(policy, failed + 1)
    assert first is not None
    assert second is not None
    assert retry.delay_ms(policy, 1) == min(base, cap)
    assert second == min(2 * first, cap) or failed > 62
    assert first <= second <= cap
