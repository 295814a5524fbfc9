from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streams.core.clock import rfc3339

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = int((datetime(9999, 12, 31, tzinfo=UTC) - EPOCH) / timedelta(milliseconds=1))
FIRST_MS = int((datetime(1, 1, 1, tzinfo=UTC) - EPOCH) / timedelta(milliseconds=1))


@given(st.integers(FIRST_MS, LAST_MS))
@example(0)
@example(951_782_400_000)  # 2000-02-29, a leap day of a century
@example(4_107_542_400_000)  # 2100-03-01, after a century without one
@example(-1)
def test_a_time_reads_as_datetime_writes_it(at_ms: int) -> None:
    expected = (EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds")
    assert rfc3339(at_ms) == expected.replace("+00:00", "Z")


@pytest.mark.parametrize("at_ms", [-(2**62), 2**62])
def test_a_time_that_nobody_can_mean_is_still_text(at_ms: int) -> None:
    assert rfc3339(at_ms).endswith("Z")
