"""Jobs that were given back: what is counted as they change is what counting anew would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.core.scheduler.book import SUMMARY_EVERY_MS, SUMMARY_KEYS_PER_MS
from streams.core.scheduler.returned import Returned, is_delayed
from streams.core.wire import RowReturned
from tests.support.scheduler_log import SchedulerLog, ready_job

WORKERS = ("w1", "w2")

_ROWS = st.builds(
    lambda worker, parked, gated, not_before_ms: row(
        worker, parked=parked, gated=gated, not_before_ms=not_before_ms
    ),
    st.sampled_from(WORKERS),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 5]),
)
_MOVES = st.lists(st.tuples(st.sampled_from("abcde"), st.one_of(st.none(), _ROWS)), max_size=60)


def row(worker: str, *, parked: bool, gated: bool, not_before_ms: int | None) -> RowReturned:
    return {
        "fence": 1,
        "deliveries": 1,
        "consumer_id": worker,
        "incarnation": "i1",
        "open": False,
        "parked": parked,
        "not_before_ms": not_before_ms,
        "gated": gated,
    }


@given(moves=_MOVES)
def test_counts_and_parked_jobs_are_those_of_the_rows(
    moves: list[tuple[str, RowReturned | None]],
) -> None:
    returned, slow = Returned(), dict[str, RowReturned]()
    for job, now in moves:
        if now is None:
            assert returned.pop(job) == slow.pop(job, None)
        else:
            returned[job] = slow[job] = now
        assert returned.delayed == sum(is_delayed(each) for each in slow.values())
        assert {each: returned[each] for each in returned} == slow
        assert returned.delayed_jobs() == sorted(
            name for name, each in slow.items() if is_delayed(each)
        )
        for worker in WORKERS:
            assert returned.parked_of(worker) == sorted(
                name
                for name, each in slow.items()
                if each["parked"] and each["consumer_id"] == worker
            )


def published(log: SchedulerLog, after_ms: int) -> bool:
    return "queue_summary" in [out.kind for out in log.tick(after_ms)]


def test_a_queue_of_many_keys_publishes_less_often() -> None:
    few, many = SchedulerLog(strategy="drr"), SchedulerLog(strategy="drr")
    few.ready("a")
    assert published(few, SUMMARY_EVERY_MS)
    count = 2 * SUMMARY_EVERY_MS * SUMMARY_KEYS_PER_MS
    for first in range(0, count, 500):
        jobs = [ready_job(n, f"t{n:06d}") for n in range(first, first + 500)]
        many.relay(jobs, first)
        many.next_offset = first + 500
    assert published(many, SUMMARY_EVERY_MS), "due since its first keys"
    many.ready("a")
    assert not published(many, 2 * SUMMARY_EVERY_MS - 1)
    assert published(many, 1)
