"""Worker queues: jobs a second from one producer to their acks, start latency, and another tenant.

One process has relay and scheduler, with `drr`; workers are processes of their own, as `harn worker
run` starts them.  In the same run a bare client produces and consumes the same records.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from bench.journal import stable_end
from bench.lab import Lab
from bench.load import Pace
from bench.orders import bench_codec
from bench.process import running
from bench.row import Row, at_least, at_most, percentile
from bench.serving import serving
from streams.codec import Codec
from streams.core.wire import TriggerDispatch
from streams.edge.queue_creation import create_queue
from streams.edge.queue_standing import standings
from streams.kafka import make_admin, make_consumer, make_producer
from streams.settings import Settings
from streams.testing import builders

CONSUMER = Path(__file__).parent / "consumer" / "harn.toml"
_TENANTS = 100
_JOBS = 40_000
_WARM_UP = 15_000
_RATE, _SECONDS = 50, 10
_BACKLOG, _ADDED, _FEW_SLOTS = 5_000, 50, 4
_DEEP = 1_000_000
_STARVING_MS = 500
_TIMEOUT_S = 180.0
_SLEEP_S = 0.005
_POLL_S = 0.01


def measure(lab: Lab) -> list[Row]:
    """Throughput and latency with two workers, then the other tenant with one of four slots."""
    codec = bench_codec()
    fair = dataclasses.replace(
        lab, settings=dataclasses.replace(lab.settings, scheduler_strategy="drr")
    )
    with serving(fair, ("registry", "relay", "scheduler")):
        with _workers(fair, "bench", 2, 64):
            queue = _Queue(fair.settings, codec, "bench")
            queue.run(_bodies(codec, "quick", lab.scaled(_WARM_UP)))
            bodies = _bodies(codec, "quick", lab.scaled(_JOBS))
            runs = [queue.run(bodies) for _ in range(lab.rounds)]
            raw = [_raw_round(fair, bodies) for _ in range(lab.rounds)]
            times = [queue.latencies_ms(codec, lab.scaled(_SECONDS)) for _ in range(lab.rounds)]
        with _workers(fair, "shared", 1, _FEW_SLOTS):
            shared = _Queue(fair.settings, codec, "shared")
            shared.run(_bodies(codec, "slow", 100))
            backlog = lab.scaled(_BACKLOG)
            at_once = [shared.other_tenant_s(codec, backlog) for _ in range(lab.rounds)]
            waits = [shared.other_tenant_s(codec, backlog, queued=True) for _ in range(lab.rounds)]
        create_queue(fair.settings, codec, "deep", shards=1, shard_by="tenant")
        deep = _Queue(fair.settings, codec, "deep")
        deep.fill(_each_body(codec, "quick", lab.scaled(_DEEP)))
        with _workers(fair, "deep", 2, 64):
            deep.acked_per_second(lab.scaled(_WARM_UP))
            under = [deep.acked_per_second(lab.scaled(_JOBS)) for _ in range(lab.rounds)]
    starving = dataclasses.replace(
        fair.settings,
        scheduler_starvation_mode="key",
        scheduler_starvation_age_ms=_STARVING_MS,
    )
    aged = _aged_waits(dataclasses.replace(fair, settings=starving), codec)
    sent, done = zip(*runs, strict=True)
    return [
        Row("queue_enqueued", "jobs/s", sent, at_least(50_000)),
        Row("queue_done", "jobs/s", done, at_least(8_000)),
        Row("queue_done_with_backlog", "% of queue_done", _shares(under, done), at_least(90)),
        Row("queue_raw_loop", "jobs/s", raw),
        Row(f"queue_start_p50_at_{_RATE}", "ms", [percentile(t, 0.5) for t in times], at_most(18)),
        Row(f"queue_start_p99_at_{_RATE}", "ms", [percentile(t, 0.99) for t in times], at_most(60)),
        Row("queue_other_tenant", "s", waits, at_most(0.2)),
        Row("queue_other_tenant_at_once", "s", at_once),
        Row("queue_other_tenant_starving", "s", aged, at_most(0.2)),
    ]


def _aged_waits(lab: Lab, codec: Codec) -> list[float]:
    """How long another tenant waits behind a backlog whose jobs are all to be promoted by age."""
    backlog = lab.scaled(_BACKLOG)
    with (
        serving(lab, ("registry", "relay", "scheduler")),
        _workers(lab, "aged", 1, _FEW_SLOTS),
    ):
        queue = _Queue(lab.settings, codec, "aged")
        queue.run(_bodies(codec, "slow", 100))
        return [
            queue.other_tenant_s(codec, backlog, queued=True, aged_s=2 * _STARVING_MS / 1_000)
            for _ in range(lab.rounds)
        ]


def _shares(under: Sequence[float], done: Sequence[float]) -> list[float]:
    return [100 * each / statistics.median(done) for each in under]


@contextmanager
def _workers(lab: Lab, queue: str, count: int, slots: int) -> Iterator[None]:
    settings = dataclasses.replace(lab.settings, metrics_port=0, log_format="json")
    with ExitStack() as stack:
        for number in range(count):
            command = ["streams.cli.main", "worker", "run", queue, "--config", str(CONSUMER)]
            command += ["--concurrency", str(slots), "--consumer-id", f"{queue}-{number}"]
            worker = stack.enter_context(running(command, settings))
            worker.wait_for("ready")
        yield


def _body(codec: Codec, trigger_id: str, tenant: str, number: int) -> bytes:
    event = builders.event(
        f"trigger_evt_{number:08d}", kind=trigger_id, payload={"text": "x" * 200}, tenant_id=tenant
    )
    job: TriggerDispatch = {
        "queue": "bench",
        "dispatch_id": f"dispatch-{number:08d}",
        "trigger_id": trigger_id,
        "binding_key": f"{trigger_id}@v1",
        "binding_version": 1,
        "priority": "normal",
        "replay_of_event_id": None,
        "event": event,
    }
    return codec.encode("trigger_dispatch", job)


def _bodies(codec: Codec, trigger_id: str, count: int) -> list[bytes]:
    return list(_each_body(codec, trigger_id, count))


def _each_body(codec: Codec, trigger_id: str, count: int) -> Iterator[bytes]:
    for number in range(count):
        yield _body(codec, trigger_id, f"tenant-{number % _TENANTS:03d}", number)


class _Queue:
    """A queue, and its responses and acks from now on."""

    def __init__(self, settings: Settings, codec: Codec, name: str) -> None:
        self._settings = settings
        self._codec = codec
        self._name, self._topic = name, f"worker.{name}"
        self._acks = _Follower(settings, f"{self._topic}.claims", b"job_acked")
        self._responses = _Follower(settings, f"{self._topic}.responses", b"job_response")
        # Connected once: what a new client asks of the broker first is no part of what is measured.
        self._producer = make_producer(
            settings, linger_ms=5, queue_buffering_max_messages=4 * _JOBS
        )
        self._producer.list_topics(self._topic, timeout=_TIMEOUT_S)

    def run(self, bodies: Sequence[bytes]) -> tuple[float, float]:
        """Enqueue as fast as it goes; jobs enqueued, and jobs acked, a second since the first."""
        began_s = time.monotonic()
        self._append(bodies)
        sent_s = time.monotonic() - began_s
        self._acks.wait(len(bodies))
        done_s = time.monotonic() - began_s
        self._responses.wait(len(bodies))
        return len(bodies) / sent_s, len(bodies) / done_s

    def fill(self, bodies: Iterable[bytes]) -> None:
        """Enqueue jobs, and wait until the scheduler has all of them."""
        self._append(bodies)
        standings(self._settings, self._codec, [self._name], timeout_s=_TIMEOUT_S)

    def acked_per_second(self, count: int) -> float:
        """Jobs acked a second, of so many of those that are there."""
        self._acks.wait(1)
        began_s = time.monotonic()
        self._acks.wait(count)
        return count / (time.monotonic() - began_s)

    def latencies_ms(self, codec: Codec, seconds: int) -> list[float]:
        """From sending to the start of the handler, at a steady rate."""
        count = _RATE * seconds
        producer = make_producer(self._settings, linger_ms=0)
        pace, sent_ns = Pace(_RATE), dict[str, int]()
        for number in range(count):
            time.sleep(pace.wait_s)
            body = _body(codec, "quick", f"tenant-{number % _TENANTS:03d}", number)
            sent_ns[f"trigger_evt_{number:08d}"] = time.monotonic_ns()
            producer.produce(self._topic, body, "bench")
            producer.poll(0)
        producer.flush(30)
        self._acks.wait(count)
        values = [self._codec.decode(each)[1] for each in self._responses.wait(count)]
        return [(int(v["result"]) - sent_ns[v["event_id"]]) / 1e6 for v in values]

    def other_tenant_s(
        self, codec: Codec, backlog: int, *, queued: bool = False, aged_s: float = 0
    ) -> float:
        """How long it takes until jobs are done that are sent behind another tenant's backlog.

        `queued` waits until the scheduler knows all of that; otherwise it is still on its way.
        `aged_s` is how old all of it is at least when they are sent.
        """
        self._append([_body(codec, "slow", "tenant-a", n) for n in range(backlog)])
        seen = len(self._responses.wait(1))  # the backlog is being worked off
        if queued:
            standings(self._settings, codec, [self._name])
        time.sleep(aged_s)
        added = [_body(codec, "slow", "tenant-b", backlog + n) for n in range(_ADDED)]
        began_ns = time.monotonic_ns()
        self._append(added)
        last_ns, found = 0, 0
        while found < _ADDED:
            values = [self._codec.decode(each)[1] for each in self._responses.wait(1)]
            seen += len(values)
            ours = [v for v in values if int(v["event_id"].rpartition("_")[2]) >= backlog]
            found += len(ours)
            last_ns = max([last_ns, *(int(v["result"]) for v in ours)])
        self._responses.wait(backlog + _ADDED - seen)
        self._acks.wait(backlog + _ADDED)
        return (last_ns - began_ns) / 1e9 + _SLEEP_S

    def _append(self, bodies: Iterable[bytes]) -> None:
        producer = self._producer
        for number, body in enumerate(bodies):
            producer.produce(self._topic, body, "bench")
            if number % 1_000 == 0:
                producer.poll(0)
                while len(producer) > 2 * _JOBS:
                    producer.poll(_POLL_S)
        assert producer.flush(60) == 0, "the jobs could not be appended"


class _Follower:
    """Records of one kind on a topic of one partition, from now on."""

    def __init__(self, settings: Settings, topic: str, kind: bytes) -> None:
        self._kind = kind
        self._consumer = make_consumer(settings, group_id=None)
        end = stable_end(self._consumer, topic, 0)
        self._consumer.assign([TopicPartition(topic, 0, end)])
        self._ahead: list[bytes] = []

    def wait(self, count: int) -> list[bytes]:
        """Return the values of the next so many, and of what has come beyond where one is asked."""
        deadline_s = time.monotonic() + _TIMEOUT_S
        found, self._ahead = self._ahead, []
        while len(found) < count:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{len(found)} of {count} {self._kind.decode()} came")
            for message in self._consumer.consume(10_000, 0.02):
                if message.error() is None and dict(message.headers() or ())["kind"] == self._kind:
                    found.append(message.value() or b"")
        if count > 1:
            found, self._ahead = found[:count], found[count:]
        return found


def _raw_round(lab: Lab, bodies: Sequence[bytes]) -> float:
    """Jobs a second that a bare client appends to a topic and reads back."""
    topic = lab.new_name("raw")
    admin = make_admin(lab.settings)
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result()
    consumer = make_consumer(lab.settings, group_id=None)
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = make_producer(
        lab.settings, linger_ms=5, queue_buffering_max_messages=2 * len(bodies)
    )
    began_s = time.monotonic()
    for number, body in enumerate(bodies):
        producer.produce(topic, body, "bench")
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0, "the jobs could not be appended"
    count = 0
    while count < len(bodies):
        count += len(consumer.consume(10_000, 0.1))
    consumer.close()
    return count / (time.monotonic() - began_s)
