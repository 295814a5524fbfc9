"""What a job is called, and its place among the jobs of its queue, as one number.

    place = enqueue time (ms) · 2^80 + source partition · 2^64 + offset

Places compare as (enqueue time, partition, offset) and take a third of the memory of a tuple: a
queue may hold a million of them.  The id is the offset in partition 0, which is the only one of our
own topics, and `partition-offset` in another.

Source: DESIGN "Partitions"; SEMANTICS 5.3 "Ordering", 10.2.13.
"""

from __future__ import annotations

from typing import Final

_TIME_BITS: Final = 80
_OFFSET_BITS: Final = 64
_OFFSET: Final = (1 << _OFFSET_BITS) - 1
_PARTITION: Final = (1 << (_TIME_BITS - _OFFSET_BITS)) - 1


def place_of(occurred_at_ms: int, partition: int, offset: int, /) -> int:
    """Return the place of a job among those of its queue; a time before the epoch counts as it."""
    return (max(occurred_at_ms, 0) << _TIME_BITS) | (partition << _OFFSET_BITS) | offset


def enqueued_ms(place: int, /) -> int:
    """Return when the job at a place was enqueued, ms since epoch."""
    return place >> _TIME_BITS


def job_id(partition: int, offset: int, /) -> str:
    """Return the id of the job of a position in its queue's topic."""
    return f"{partition}-{offset}" if partition else str(offset)


def id_at(place: int, /) -> str:
    """Return the id of the job at a place."""
    partition, offset = (place >> _OFFSET_BITS) & _PARTITION, place & _OFFSET
    return f"{partition}-{offset}" if partition else str(offset)


def place_by_id(occurred_at_ms: int, job: str, /) -> int:
    """Return the place of a job by its id."""
    partition, dash, offset = job.partition("-")
    if not dash:
        return place_of(occurred_at_ms, 0, int(partition))
    return place_of(occurred_at_ms, int(partition), int(offset))


def claim_id(job: str, fence: int, /) -> str:
    """Return the id of a job's claim: derived, so that a repeat names the same one."""
    return f"{job}.{fence}"
