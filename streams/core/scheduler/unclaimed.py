"""Jobs that were claimed before and are not now: they wait for time, for a slot, or for nothing.

Source: DESIGN "A job", decision A4.
"""

from __future__ import annotations

from streams.core.scheduler.book import Book, Claim, Queue
from streams.core.scheduler.endings import row_of
from streams.core.scheduler.job_id import place_by_id
from streams.core.scheduler.key import Key
from streams.core.scheduler.policy import RANKS, fairness_key
from streams.core.scheduler.returned import is_delayed
from streams.core.state import State
from streams.core.wire import RowJob, RowReturned


def store_returned(state: State, queue: Queue, job: str, returned: RowReturned, /) -> None:
    """Note what is to be remembered of a job that nobody has."""
    queue.returned[job] = returned
    state.rows.put(f"n:{queue.home}:{job}", returned)


def forget_returned(state: State, queue: Queue, job: str, /) -> RowReturned | None:
    """Forget what was remembered of a job; return it."""
    returned = queue.returned.pop(job)
    if returned is not None:
        state.rows.delete(f"n:{queue.home}:{job}")
    return returned


def key_of_job(state: State, book: Book, queue: Queue, job: str, /) -> Key:
    """Return the fairness key of a job that is in the queue."""
    name = fairness_key(book.policy["fairness_key"], row_of(state, queue, job))
    return queue.selection.key(name)


def make_ready(state: State, book: Book, queue: Queue, job: str, /) -> None:
    """A returned job waits for nothing any more."""
    returned: RowReturned = {
        **queue.returned[job],
        "parked": False,
        "gated": False,
        "not_before_ms": None,
    }
    store_returned(state, queue, job, returned)
    row, key = row_of(state, queue, job), key_of_job(state, book, queue, job)
    place = place_by_id(row["occurred_at_ms"], job)
    queue.selection.add(key, place, RANKS[row["priority"]])
    queue.selection.dirty.add(key.name)
    book.dirty[queue.home] = queue


def unpark(state: State, book: Book, consumer_id: str, /) -> None:
    """A worker that takes what there is has left: what it gave back is ready again."""
    for home in sorted(book.queues):
        queue = book.queues[home]
        for job in queue.returned.parked_of(consumer_id):
            make_ready(state, book, queue, job)


def take_returned(state: State, book: Book, queue: Queue, job: str, /) -> tuple[RowJob, Claim]:
    """Take a job out of those that nobody has; return it, and its last claim."""
    returned = forget_returned(state, queue, job)
    assert returned is not None, "a job that was claimed before is remembered"
    row, key = row_of(state, queue, job), key_of_job(state, book, queue, job)
    place, rank = place_by_id(row["occurred_at_ms"], job), RANKS[row["priority"]]
    if not is_delayed(returned):
        queue.selection.remove(key, place)
    queue.selection.dirty.add(key.name)
    book.dirty[queue.home] = queue
    last = (returned["fence"], returned["deliveries"], state.now_ms, returned["consumer_id"])
    return row, Claim(job, place, rank, key, *last)
