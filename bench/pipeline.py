"""Events per second from the inbox's mailbox to the outbox, and the audit of what that left.

One producer appends events of one kilobyte as fast as it can; the clock runs from the first append
until the last success is visible.  Two members of every group share two cores with the broker, as
one Python process cannot use more than a core; a row beside it says what one member does alone.
Afterwards `harn audit verify` judges the whole log.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from bench.lab import Lab
from bench.orders import bench_codec
from bench.row import Row, at_least
from bench.serving import Outbox, Serving, event_json, serving, wait_until_it_works
from streams.codec import Codec
from streams.core.inbox import mailbox_key
from streams.edge.ingest.body import parse_body
from streams.edge.ingest.envelopes import ENVELOPES
from streams.edge.ingest.events import normalize
from streams.edge.ingest.trace import begin_trace
from streams.kafka import make_producer
from streams.settings import Settings

_EVENTS = 45_000
_WARM_UP = 10_000  # until then the broker's JVM compiles what it runs
_PAYLOAD_BYTES = 900
_TIMEOUT_S = 300.0

Envelope = tuple[bytes, bytes, list[tuple[str, bytes]]]  # key, value, headers


def measure(lab: Lab) -> list[Row]:
    """Rounds of the pipeline, then rounds of the audit of all that they left."""
    codec = bench_codec()
    runs = {members: _rounds(lab, codec, members) for members in (1, 2)}
    audits = [_audit(lab.settings) for _ in range(lab.rounds)]
    return [
        Row("ingest_to_outbox", "events/s", runs[2], at_least(3_000)),
        Row("ingest_to_outbox_one_member", "events/s", runs[1]),
        Row("audit_verify", "records/s", audits, at_least(20_000)),
    ]


def _rounds(lab: Lab, codec: Codec, members: int) -> list[float]:
    with serving(lab, others=members - 1) as place:
        wait_until_it_works(place, codec)
        _events_per_second(lab, place, codec, _WARM_UP)
        return [_events_per_second(lab, place, codec, _EVENTS) for _ in range(lab.rounds)]


def _events_per_second(lab: Lab, place: Serving, codec: Codec, events: int) -> float:
    count = lab.scaled(events)
    envelopes = [_envelope(codec) for _ in range(count)]
    outbox = Outbox(place.settings, codec)
    producer = make_producer(lab.settings, linger_ms=5, queue_buffering_max_messages=2 * count)
    began_s = time.monotonic()
    for number, (key, value, headers) in enumerate(envelopes):
        producer.produce(ENVELOPES, value, key, headers=[*headers])
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0, "the events could not be appended"
    outbox.read_until(count, _TIMEOUT_S, decode=False)
    seconds = time.monotonic() - began_s
    outbox.close()
    return count / seconds


def _envelope(codec: Codec) -> Envelope:
    """One event as ingest appends it."""
    trace = begin_trace()
    event = normalize(parse_body(event_json(payload_bytes=_PAYLOAD_BYTES)).events[0], trace)
    envelope = {
        "trigger_id": None,
        "binding_version": None,
        "replay_of_event_id": None,
        "event": event,
    }
    headers = [("kind", b"event_ingested"), ("traceparent", trace.traceparent.encode())]
    return mailbox_key(event).encode(), codec.encode("event_ingested", envelope), headers


def _audit(settings: Settings) -> float:
    """Records judged per second; RuntimeError when the log does not verify."""
    command = [sys.executable, "-m", "streams.cli.main", "audit", "verify", "--json"]
    environment = {**os.environ, **settings.environment()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the audit ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return float(json.loads(done.stdout)["records_per_second"])
