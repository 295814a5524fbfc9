"""Marks of jobs, whatever they are called."""

from __future__ import annotations

import tracemalloc

from hypothesis import example, given
from hypothesis import strategies as st

from streams.audit.job_marks import JobMarks

IDS = st.one_of(
    st.integers(0, 20_000).map(str),
    st.tuples(st.integers(0, 3), st.integers(0, 20_000)).map(lambda each: f"{each[0]}-{each[1]}"),
    st.sampled_from(
        ["", "-", "007", "00", "0-07", "1-", "-1", "²", "a-1", "1-a", "9" * 30, "9" * 5_000]
    ),
)


@example([("1", 0), ("-1", 1)], [])
@given(st.lists(st.tuples(IDS, st.integers(0, 3)), max_size=60), st.lists(IDS, max_size=20))
def test_a_job_has_the_mark_that_it_was_given_last(
    given_marks: list[tuple[str, int]], asked: list[str]
) -> None:
    marks, expected = JobMarks(), dict[str, int]()
    for job_id, mark in given_marks:
        marks.mark(job_id, mark)
        expected[job_id] = mark
    for job_id in [*expected, *asked]:
        assert marks.of(job_id) == expected.get(job_id, 0)


def test_a_job_takes_a_byte() -> None:
    marks = JobMarks()
    tracemalloc.start()
    for number in range(100_000):
        marks.mark(str(5_000_000_000 + number), 1)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 200_000
