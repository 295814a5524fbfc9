"""What `harn orchestrator queue drain` does.

Source: SEMANTICS 5.4; seed worker-dispatch, "Drain one queue manually".
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from streams.cli.hosting import with_queues_served
from streams.cli.options import manifest_of, notice
from streams.cli.queue_commands import NOBODY_MADE, is_there, print_json, summary_of
from streams.cli.worker import claim_ttl_ms_of, consumer_id_of
from streams.core import worker_queue
from streams.core.wire import JobResponse
from streams.edge.codecs import codec_of
from streams.edge.queue_standing import standings
from streams.edge.worker import WorkerPlan
from streams.edge.worker.consumer import Consumer
from streams.settings import Settings
from streams.working import Drained, Stop, drain_queue, queue_keys

__all__ = ["document_of", "drain", "lines_of_drain"]


def drain(
    settings: Settings,
    name: str,
    *,
    manifest: Path | None,
    consumer_id: str | None,
    claim_ttl: str,
    concurrency: int,
    as_json: bool,
) -> None:
    """Run what is ready, and print what became of it.  Raises HarnError."""
    queue = worker_queue.canonical(name)
    claim_ttl_ms, consumer_name = claim_ttl_ms_of(claim_ttl), consumer_id_of(consumer_id)
    consumer = Consumer.load(manifest_of(settings, manifest))
    stop = Stop()

    def work(running: Settings) -> dict[str, Any]:
        codec = codec_of(running)
        drained = Drained(queue, consumer_name, claim_ttl_ms)
        if not is_there(running, queue):
            notice(NOBODY_MADE.format(queue))
        else:
            # What was enqueued before the command is there when the worker asks for it.
            standings(running, codec, [queue])
            plan = WorkerPlan(
                consumer_id=consumer_name,
                queue_keys=queue_keys(running, codec, [queue]),
                concurrency=concurrency,
                claim_ttl_ms=claim_ttl_ms,
                once=True,
            )
            drained = asyncio.run(drain_queue(running, codec, consumer, plan, stop=stop))
        return document_of(drained, summary_of(running, queue))

    with _asked_to_end_as_by_ctrl_c():
        document = with_queues_served(settings, work, partial(stop.set_result, None))
    if as_json:
        print_json(document)
        return
    for line in lines_of_drain(document):
        typer.echo(line)


@contextmanager
def _asked_to_end_as_by_ctrl_c() -> Iterator[None]:
    """Take SIGTERM for a Ctrl-C: what has not begun is given back, instead of running out."""

    def interrupted(_number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)  # of the event loop that runs, if one does
        if not callable(handler):  # started where a Ctrl-C is ignored
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)

    before = signal.signal(signal.SIGTERM, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def document_of(drained: Drained, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a drain came to as its JSON has it."""
    return {
        "queue": drained.queue,
        "consumer_id": drained.consumer_id,
        "claim_ttl_ms": drained.claim_ttl_ms,
        "drained": drained.drained,
        "acked": drained.acked,
        "deferred": drained.deferred,
        "responses": [_response(each) for each in drained.responses],
        "summary": dict(summary),
    }


def _response(response: JobResponse) -> dict[str, Any]:
    job_id = response["job_event_id"]
    status = None if response["outcome"] == "none" else response["outcome"]
    # A job's id is a number wherever its topic has one partition, and so the seed shows it.
    return {
        **response,
        "job_event_id": int(job_id) if job_id.isdecimal() else job_id,
        "outcome": None if status is None else {"status": status, "result": response["result"]},
    }


def lines_of_drain(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a drain's lines: its summary, then each response."""
    summary = document["summary"]
    yield (
        f"drained {document['queue']} jobs={document['drained']} acked={document['acked']} "
        f"deferred={document['deferred']} ready={summary['ready']} "
        f"in_flight={summary['in_flight']} responses={summary['responses']}"
    )
    for each in document["responses"]:
        status = "error" if each["outcome"] is None else each["outcome"]["status"]
        yield (
            f"job_event_id={each['job_event_id']} status={status} "
            f"trigger_id={each['trigger_id'] or '-'} error={each['error'] or '-'}"
        )
