"""What `harn orchestrator queue` does, in a process that has loaded the application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import typer
from prometheus_client import CollectorRegistry, generate_latest

from streams.audit.kafka_log import KafkaLog
from streams.cli.hosting import with_queues_served
from streams.cli.options import notice
from streams.cli.queue_text import lines_of_listing, summary_line
from streams.core import scheduler_policy, worker_queue
from streams.core.queue_report import (
    fairness_document,
    policy_document,
    summary_document,
)
from streams.core.scheduler.requests import PURGE_MAX
from streams.edge.codecs import codec_of
from streams.edge.dispatcher_report import dispatcher_report
from streams.edge.ingest.trace import new_uuid
from streams.edge.queue_catalog import queue_topics, read_catalog
from streams.edge.queue_standing import ANSWER_S, Ask, Standing, answers_of, keys_of, standings
from streams.edge.registry_view import read_registry
from streams.edge.topic_reader import topic_names
from streams.edge.worker.plan import default_consumer_id
from streams.observe.scheduler_metrics import QueueSummaries
from streams.settings import Settings

__all__ = [
    "NOBODY_MADE",
    "is_there",
    "print_json",
    "print_metrics",
    "purge",
    "show",
    "summary_of",
]

_PURGED_BY = "harn orchestrator queue purge"

NOBODY_MADE = (
    "there is no queue {0} yet: its first job or `harn queue create {0}` makes it, "
    "`harn queue list` names those that are there"
)
"""Said of a name that may be one still to come: it is no error, and nothing was there to do."""


# ---------------------------------------------------------------------- ls
def show(settings: Settings, *, as_json: bool) -> None:
    """Print how everything stands."""
    document = with_queues_served(settings, listing)
    if as_json:
        print_json(document)
        return
    for line in lines_of_listing(document):
        typer.echo(line)


def listing(settings: Settings) -> dict[str, Any]:
    """Return the document of `ls`.  Raises HarnError when the scheduler does not answer."""
    codec = codec_of(settings)
    found = standings(settings, codec)
    with KafkaLog(settings) as log:
        dispatcher = dispatcher_report(log, codec)
    summaries = [summary for each in found for summary in each.shards]
    in_force = read_registry(settings, codec).policy.get("scheduler") or scheduler_policy.DEFAULT
    return {
        "dispatcher": dispatcher,
        "worker_queues": [_summary(each) for each in found],
        "scheduler": {
            "policy": policy_document(in_force),
            "per_queue": [fairness_document(each) for each in summaries],
        },
    }


def _summary(standing: Standing) -> dict[str, Any]:
    return summary_document(standing.queue, standing.shards, standing.responses)


def summary_of(settings: Settings, queue: str) -> dict[str, Any]:
    """Return how one queue stands; zeros for one that nobody has made."""
    found = standings(settings, codec_of(settings), [queue])
    return _summary(found[0]) if found else summary_document(queue, (), 0)


# ---------------------------------------------------------------------- purge
def purge(settings: Settings, name: str, *, as_json: bool) -> None:
    """Remove what is ready, and print how much that was."""
    queue = worker_queue.canonical(name)
    document = with_queues_served(settings, partial(_purged, queue=queue))
    if as_json:
        print_json(document)
        return
    typer.echo(f"purged {document['purged']} jobs of {queue}")
    typer.echo(summary_line(document["summary"]))


def _purged(settings: Settings, *, queue: str) -> dict[str, Any]:
    purged = 0
    if not is_there(settings, queue):
        notice(NOBODY_MADE.format(queue))
    else:
        codec = codec_of(settings)
        # What was enqueued before the command counts: the relay passes it first.
        standings(settings, codec, [queue])
        keys = keys_of(settings, codec, [queue])[queue]
        answered = ("worker.deliveries", "purge_answered")
        while keys:  # one request removes a bounded number
            asks = _purge_asks(keys)
            deadline_s = time.monotonic() + ANSWER_S
            answers = asyncio.run(answers_of(settings, codec, asks, answered, deadline_s))
            purged += sum(each["purged"] for each in answers.values())
            keys = [each["queue"] for each in answers.values() if each["purged"] >= PURGE_MAX]
    return {"queue": queue, "purged": purged, "summary": summary_of(settings, queue)}


def is_there(settings: Settings, queue: str) -> bool:
    """Whether somebody has made a queue of this canonical name."""
    return queue in queue_topics(topic_names(settings))


def _purge_asks(keys: Sequence[str]) -> list[Ask]:
    purged_by = default_consumer_id()
    asks: list[Ask] = []
    for key in keys:
        request_id = f"purge_{new_uuid()}"
        value = {
            "queue": key,
            "request_id": request_id,
            "purged_by": purged_by,
            "reason": _PURGED_BY,
            "deliveries_partition": 0,
        }
        asks.append(Ask("purge_requested", key, request_id, value))
    return asks


def print_metrics(settings: Settings) -> None:
    """Print what the scheduler last published of each queue, as Prometheus has it."""
    registry = CollectorRegistry()
    summaries = QueueSummaries(registry)
    for summary in read_catalog(settings, codec_of(settings)).summaries:
        summaries.take(summary)
    typer.echo(generate_latest(registry).decode(), nl=False)


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON object."""
    typer.echo(msgspec.json.format(msgspec.json.encode(document)).decode())
