"""Events per second from the inbox's mailbox to the outbox, and the audit of what that left.

One producer appends events of one kilobyte as fast as it can; the clock runs from the first append
until the last success is visible.  Two members of every group share two cores with the broker, as
one Python process cannot use more than a core; a row beside it says what one member does alone,
another what is left with a predicate and two gates.  A handler that does nothing holds its slot for
a turn of the event loop: members have 512, and a row says what the default of 64 makes of it.
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
from streams.testing import builders

_SLOTS, _FEW_SLOTS = 512, 64
_EVENTS = 45_000
_WARM_UP = 10_000  # until then the broker's JVM compiles what it runs
_PAYLOAD_BYTES = 900
_TENANTS = 100
_TIMEOUT_S = 300.0
_JUDGED = "mailbox records folded again, and outputs, rows and journal entries compared"

Envelope = tuple[bytes, bytes, list[tuple[str, bytes]]]  # key, value, headers


def measure(lab: Lab) -> list[Row]:
    """Rounds of the pipeline, then rounds of the audit of all that they left."""
    codec = bench_codec()
    plain = {members: _rounds(lab, codec, members, "bench") for members in (1, 2)}
    few = _rounds(lab, codec, 2, "full", slots=_FEW_SLOTS)
    full = _rounds(lab, codec, 2, "full")
    audits = [_audit(lab.settings) for _ in range(lab.rounds)]
    folded, compared = zip(*audits, strict=True)
    return [
        Row("ingest_to_outbox", "events/s", plain[2], at_least(3_000)),
        Row("ingest_to_outbox_one_member", "events/s", plain[1]),
        Row("ingest_to_outbox_predicate_and_gates", "events/s", full, at_least(3_000)),
        Row("ingest_to_outbox_predicate_and_gates_64_slots", "events/s", few, at_least(3_000)),
        Row("audit_verify", "records/s", compared, at_least(20_000), note=_JUDGED),
        Row("audit_verify_mailbox_records", "records/s", folded),
    ]


def _rounds(lab: Lab, codec: Codec, members: int, kind: str, *, slots: int = _SLOTS) -> list[float]:
    with serving(lab, others=members - 1, slots=slots) as place:
        wait_until_it_works(place, codec)
        events_per_second(lab, place, codec, _WARM_UP, kind)
        return [events_per_second(lab, place, codec, _EVENTS, kind) for _ in range(lab.rounds)]


def events_per_second(
    lab: Lab,
    place: Serving,
    codec: Codec,
    events: int,
    kind: str = "bench",
    *,
    tenants: int = _TENANTS,
) -> float:
    """Append that many events of a kind, scaled, and wait for their successes."""
    count = lab.scaled(events)
    bodies = (event_json(None, _PAYLOAD_BYTES, kind=kind, tenant=n % tenants) for n in range(count))
    outbox = Outbox(place.settings, codec)
    seconds = append_all(lab.settings, [envelope(codec, body) for body in bodies])
    began_s = time.monotonic()
    outbox.read_until(count, _TIMEOUT_S, decode=False)
    outbox.close()
    return count / (seconds + time.monotonic() - began_s)


def append_all(settings: Settings, envelopes: list[Envelope]) -> float:
    """Append envelopes as fast as they go; seconds until the broker had them all."""
    producer = make_producer(settings, linger_ms=5, queue_buffering_max_messages=2 * len(envelopes))
    began_s = time.monotonic()
    for number, (key, value, headers) in enumerate(envelopes):
        producer.produce(ENVELOPES, value, key, headers=[*headers])
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0, "the events could not be appended"
    return time.monotonic() - began_s


def envelope(codec: Codec, body: bytes) -> Envelope:
    """One event as ingest appends it."""
    trace = begin_trace()
    event = normalize(parse_body(body).events[0], trace)
    headers = [("kind", b"event_ingested"), ("traceparent", trace.traceparent.encode())]
    value = codec.encode("event_ingested", builders.envelope(event))
    return mailbox_key(event).encode(), value, headers


def _audit(settings: Settings) -> tuple[float, float]:
    """Mailbox records, and all records, judged per second; RuntimeError when it does not verify."""
    command = [sys.executable, "-m", "streams.cli.main", "audit", "verify", "--json"]
    environment = {**os.environ, **settings.environment()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the audit ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    report = json.loads(done.stdout)
    return float(report["records_per_second"]), report["records_read"] / report["seconds"]
