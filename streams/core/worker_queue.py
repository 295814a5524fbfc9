"""What `worker://<queue>` means: a durable job on the queue's topic, and a receipt for it.

    handler = "worker://triage"

Dispatch appends the job in the transaction that ends the dispatch: one dispatch that gets that far
enqueues exactly one job.  The job is known by its position on the topic and carries the id of the
dispatch; whoever drains the queue answers on the topic that the receipt names.

Source: SEMANTICS 5.1; seed trigger-dispatcher, "Handler URI resolution"; DESIGN decision A23.
"""

from __future__ import annotations

import json
import re
from typing import Final

from streams.core.dispatch_records import Dispatch, headers_of
from streams.core.record import Output
from streams.core.wire import (
    BindingDefinition,
    QueueSeen,
    RowDispatch,
    TriggerDispatch,
    TriggerEvent,
)

PRIORITIES: Final = ("high", "normal", "low")
"""Of a job; the middle one is the default."""

QUEUES = "worker.queues"

_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")


def canonical(queue: str, /) -> str:
    """The name under which a queue is known: that of its topic, which is all that identifies it."""
    return _ILLEGAL.sub("_", queue.strip())


def topic_of(queue: str, /) -> str:
    """The topic of a queue's jobs."""
    return f"worker.{canonical(queue)}"


def claims_of(queue: str, /) -> str:
    """The topic of what was decided about a queue's jobs."""
    return f"{topic_of(queue)}.claims"


def responses_of(queue: str, /) -> str:
    """The topic of what became of a queue's jobs."""
    return f"{topic_of(queue)}.responses"


def job(dispatch: Dispatch, event: TriggerEvent, queue: str, default_priority: str, /) -> Output:
    """Make the job of a dispatch."""
    row, binding = dispatch
    priority = _priority(event, default_priority)
    value: TriggerDispatch = {
        "queue": queue,
        "dispatch_id": row["dispatch_id"],
        "trigger_id": row["trigger_id"],
        "binding_key": row["binding_key"],
        "binding_version": binding["version"],
        "priority": priority,
        "replay_of_event_id": row["replay_of_event_id"],
        "event": event,
    }
    return Output(
        topic_of(queue), "trigger_dispatch", queue, value, headers=_headers(row, queue, priority)
    )


def _priority(event: TriggerEvent, default: str) -> str:
    """Return what the event's header says, if it is a priority; else the trigger's."""
    asked = event["headers"].get("priority", "").strip().lower()
    return asked if asked in PRIORITIES else default


def _headers(row: RowDispatch, queue: str, priority: str) -> tuple[tuple[str, str], ...]:
    said = {
        "binding_key": row["binding_key"],
        "event_id": row["event_id"],
        "priority": priority,
        "queue": queue,
        "trigger_id": row["trigger_id"],
    }
    return tuple(sorted((*headers_of(row), *said.items())))


def receipt(row: RowDispatch, queue: str, /) -> str:
    """Make the result of a dispatch that enqueued a job, as JSON text.

    `job_event_id` is the job's offset, which only the broker knows when it is appended; the job
    is found on `job_topic` by `dispatch_id`.
    """
    value = {
        "queue": queue,
        "dispatch_id": row["dispatch_id"],
        "job_event_id": None,
        "job_topic": topic_of(queue),
        "response_topic": responses_of(queue),
    }
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def seen(binding: BindingDefinition, /) -> Output:
    """Say that a trigger names a queue, for the catalog of queues."""
    queue = binding["handler"]
    value: QueueSeen = {"queue": queue}
    return Output(QUEUES, "queue_seen", queue, value)
