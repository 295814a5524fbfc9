"""Whether what a word names can be answered: names are copied into rows, keys and several fields.

A word with a name that is longer than any of ours, or that is none, is quarantined; answered, it
would make a record above the engine's bound, and halt its partition.  So is one of jobs at places
that no topic has: they could not be told apart, or not be found again.

Source: DESIGN laws 8, 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from streams.core.bounds import ID_CHARS_MAX
from streams.core.ready_jobs import REASON_CHARS_MAX, SHARDS_MAX

__all__ = ["problem_of"]

_TEXTS: Final = {
    "topic": ID_CHARS_MAX,
    "consumer_id": ID_CHARS_MAX,
    "incarnation": ID_CHARS_MAX,
    "request_id": ID_CHARS_MAX,
    "purged_by": ID_CHARS_MAX,
    "digest": ID_CHARS_MAX,
    "reason": REASON_CHARS_MAX,
}
_CLAIMS: Final = {
    "ack_requested": "acks",
    "renew_requested": "claims",
    "release_requested": "claims",
    "gates_requested": "jobs",
}
_PARTITIONS_MAX: Final = 1 << 16
_OFFSETS_MAX: Final = 1 << 62
_CHECKED_ELSEWHERE: Final = frozenset({"worker_heartbeat", "revision_published"})


def problem_of(kind: str, word: Mapping[str, Any], /) -> str | None:
    """Return what of a word's names is no name, or too long; None when it can be answered."""
    if kind in _CHECKED_ELSEWHERE:
        return None
    if "queue" in word and (problem := _queue_problem(word["queue"])) is not None:
        return problem
    for name, chars_max in _TEXTS.items():
        text = word.get(name)
        if text is not None and len(text) > chars_max:
            return f"{name} has {len(text)} characters, expected at most {chars_max}"
    if "source_partition" in word and (problem := _place_problem(word)) is not None:
        return problem
    return _claims_problem(word.get(_CLAIMS.get(kind, ""), ()))


def _place_problem(word: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the places of jobs, or of what is none."""
    if not 0 <= word["source_partition"] < _PARTITIONS_MAX:
        return f"source_partition is {word['source_partition']}, of no topic"
    if not 1 <= word["shards"] <= SHARDS_MAX:
        return f"shards is {word['shards']}, expected 1 to {SHARDS_MAX}"
    jobs: Sequence[Mapping[str, Any]] = word.get("jobs", (word,))
    following: int = word.get("next_offset", _OFFSETS_MAX)
    last = -1
    for job in jobs:
        if job["offset"] <= last:
            return f"offset {job['offset']} comes after {last}"
        last = job["offset"]
    if last < following <= _OFFSETS_MAX:
        return None
    return f"offset {last} is not before {following}"


def _claims_problem(claims: Sequence[Mapping[str, Any]]) -> str | None:
    for claim in claims:
        if len(claim["job_event_id"]) > ID_CHARS_MAX or len(claim["claim_id"]) > ID_CHARS_MAX:
            return f"a job or claim has more than {ID_CHARS_MAX} characters"
        if "queue" in claim and (problem := _queue_problem(claim["queue"])) is not None:
            return problem
    return None


def _queue_problem(queue: str) -> str | None:
    if ":" not in queue and len(queue) <= ID_CHARS_MAX and queue.partition("#")[0].strip():
        return None
    return f"queue: {queue[:80]!r}, expected the name of a queue's topic"
