"""`harn orchestrator queue ls` as text: a line for each thing that can be asked about.

Source: SEMANTICS 6.7, plain-text ls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["lines_of_listing", "summary_line"]

_COUNTS = (
    "dispatcher_in_flight",
    "dispatcher_retry_queue_depth",
    "inferred_in_flight",
    "inferred_pending_retries",
    "inbox_claims_written",
    "inbox_envelopes_written",
    "inbox_duplicates_rejected",
    "inbox_active_entries",
)


def lines_of_listing(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a listing, as its JSON has it."""
    dispatcher = document["dispatcher"]
    counts = " ".join(f"{name}={dispatcher[name]}" for name in _COUNTS)
    yield f"dispatcher {counts}"
    for queue in document["worker_queues"]:
        yield summary_line(queue)
    yield from _names("in flight", dispatcher, "in_flight_dispatches", "dispatcher_in_flight")
    depth = "dispatcher_retry_queue_depth"
    yield from _names("pending retry", dispatcher, "pending_retries", depth)
    for each in dispatcher["stranded_envelopes"]:
        yield (
            f"stranded envelope inbox_offset={each['inbox_offset']} event_id={each['event_id']} "
            f"trigger_id={each['trigger_id'] or '-'} provider={each['provider']} "
            f"kind={each['kind']} age={_age(each['age_ms'])}"
        )
    yield from _scheduler(document["scheduler"])


def _names(what: str, dispatcher: Mapping[str, Any], names: str, count: str) -> Iterator[str]:
    listed = dispatcher[names]
    for name in listed:
        yield f"{what} {name}"
    if dispatcher[count] > len(listed):
        yield f"{what}: {dispatcher[count] - len(listed)} more"


def summary_line(queue: Mapping[str, Any]) -> str:
    """Return the line of one queue."""
    return (
        f"queue {queue['queue']} ready={queue['ready']} in_flight={queue['in_flight']} "
        f"acked={queue['acked']} purged={queue['purged']} responses={queue['responses']} "
        f"oldest_unclaimed_age={_age(queue['oldest_unclaimed_age_ms'])}"
        f"{_more(queue, ('delayed', 'dead'))}"
    )


def _scheduler(scheduler: Mapping[str, Any]) -> Iterator[str]:
    policy = scheduler["policy"]
    strategy = policy["strategy"]
    parts = [f"strategy={strategy['kind']}", f"fairness_key={policy['fairness_key']}"]
    if strategy["kind"] != "fifo":
        parts.append(f"quantum={strategy['quantum']}")
        parts.append(f"starvation_age={_age(strategy['starvation_age_ms'])}")
        parts.append(f"starvation_mode={strategy['starvation_mode']}")
    parts.append(f"max_concurrent_per_key={policy['max_concurrent_per_key']}")
    parts.append(f"default_weight={policy['default_weight']}")
    parts.append(f"weights={_weights(policy['weights'])}")
    yield f"scheduler {' '.join(parts)}"
    for queue in scheduler["per_queue"]:
        yield (
            f"scheduler queue {queue['queue']} strategy={queue['strategy']} "
            f"fairness_key={queue['fairness_key']} rounds={queue['rounds_completed']} "
            f"starvation_promotions={queue['starvation_promotions_total']}"
        )
        for key in queue["keys"]:
            yield (
                f"  {key['fairness_key']} weight={key['weight']} ready={key['ready_jobs']} "
                f"in_flight={key['in_flight']} deficit={key['deficit']} "
                f"selected={key['selected_total']} deferred={key['deferred_total']} "
                f"oldest_eligible={_age(key['oldest_ready_age_ms'] or None)}"
            )


def _weights(weights: Mapping[str, int]) -> str:
    return ",".join(f"{key}:{weight}" for key, weight in weights.items()) or "-"


def _more(queue: Mapping[str, Any], names: Sequence[str]) -> str:
    """Say what is seldom: nothing where it is 0."""
    return "".join(f" {name}={queue[name]}" for name in names if queue[name])


def _age(milliseconds: int | None) -> str:
    """Return an age in seconds, to the millisecond; `-` when there is none."""
    return "-" if milliseconds is None else f"{milliseconds / 1_000:.3f}s"
