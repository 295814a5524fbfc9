"""Retries that wait: what they cost while they do, at a restart, and when they come due at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from statistics import mean

from confluent_kafka import TopicPartition

from bench.journal import stable_end
from bench.lab import Lab
from bench.orders import PARTITIONS, bench_codec
from bench.pipeline import append_all, envelope, events_per_second
from bench.row import Row, at_least, at_most
from bench.serving import Outbox, event_json, serving, wait_until_it_works
from streams.codec import Codec
from streams.kafka import make_consumer
from streams.settings import Settings

_PENDING = 100_000
_DUE = 10_000
_DUE_IN_S = 25.0
_EVENTS = 20_000
_WARM_UP = 10_000
_APPENDED_AT_ONCE = 20_000
_TIMEOUT_S = 300.0
_ATTEMPTS = "trigger.attempts"


def measure(lab: Lab) -> list[Row]:
    """Due at once first; then a heap of waiting ones, which stays."""
    codec = bench_codec()
    with serving(lab) as place:
        wait_until_it_works(place, codec)
        events_per_second(lab, place, codec, _WARM_UP)
        due = [_due_at_once(lab, codec) for _ in range(lab.rounds)]
        before = [events_per_second(lab, place, codec, _EVENTS) for _ in range(lab.rounds)]
        _pile_up(lab, codec)
        after = [events_per_second(lab, place, codec, _EVENTS) for _ in range(lab.rounds)]
    ready = [_ready_s(lab) for _ in range(lab.rounds)]
    ratios = [with_them / mean(before) for with_them in after]
    return [
        Row("retries_due_at_once_started", "s", due, at_most(5)),
        Row("throughput_with_100k_pending", "ratio", ratios, at_least(0.95)),
        Row("ready_with_100k_pending_from_exec", "s", ready, at_most(10)),
    ]


def _ready_s(lab: Lab) -> float:
    """Seconds from the start of a process until all its roles are ready."""
    with serving(lab) as place:
        ready = place.process.wait_for("ready")
        return ready["heard_s"] - place.process.started_s


def _due_at_once(lab: Lab, codec: Codec) -> float:
    """Seconds from the moment at which all are due until the last of them has started."""
    count = lab.scaled(_DUE)
    due_ms = time.monotonic_ns() // 1_000_000 + int(_DUE_IN_S * 1_000)
    outbox = Outbox(lab.settings, codec)
    bodies = (event_json(None, kind="fails_until", due_ms=due_ms) for _ in range(count))
    append_all(lab.settings, [envelope(codec, body) for body in bodies])
    outbox.read_until(count, _TIMEOUT_S)
    outbox.close()
    return max(outbox.started_ns.values()) / 1e9 - due_ms / 1e3


def _pile_up(lab: Lab, codec: Codec) -> None:
    """Let events fail whose next attempt is hours away."""
    count = lab.scaled(_PENDING)
    planned = _retries_planned(lab.settings)
    next(planned)  # counts from here on
    for at in range(0, count, _APPENDED_AT_ONCE):
        bodies = (event_json(kind="fails") for _ in range(min(_APPENDED_AT_ONCE, count - at)))
        append_all(lab.settings, [envelope(codec, body) for body in bodies])
    _wait_until(lambda: next(planned) >= count)
    planned.close()


def _retries_planned(settings: Settings) -> Generator[int, None, None]:
    """Yield how many retries have been planned since the first call's beginning."""
    with make_consumer(settings, group_id=None) as consumer:
        consumer.assign(
            [
                TopicPartition(_ATTEMPTS, each, stable_end(consumer, _ATTEMPTS, each))
                for each in range(PARTITIONS)
            ]
        )
        count = 0
        while True:
            for message in consumer.consume(10_000, 0.2):
                kind = dict(message.headers() or ()).get("kind")
                count += message.error() is None and kind == b"retry_scheduled"
            yield count


def _wait_until(done: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not done():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not within {_TIMEOUT_S:.0f} s")
