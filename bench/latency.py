"""Milliseconds from sending an event over HTTP to the start of its handler, at several rates.

The handler reports when it started, on the clock that all processes of the machine share; the
report comes back as its result, through the outbox.
"""

from __future__ import annotations

import asyncio
import time

import aiohttp

from bench.lab import Lab
from bench.load import Pace
from bench.orders import bench_codec
from bench.row import Row, at_most, percentile
from bench.serving import Outbox, Serving, event_json, serving, wait_until_it_works
from streams.codec import Codec

_RATES = (50, 100, 200)
_SECONDS = 12
_TENANTS = 100
_WARM_UP_RATE = 100
_WARM_UP_ROUNDS = 2  # until then the broker's JVM compiles what it runs
_SETTLE_S = 2
_TIMEOUT_S = 60.0
_FULL = "predicate_and_gates"


def measure(lab: Lab) -> list[Row]:
    """Rounds of every rate in turn, then of a trigger with all on, on one process of all roles."""
    codec = bench_codec()
    # The lowest rate has a target, and is asked for again with a predicate and two gates.
    loads = [(f"{rate}", rate, "bench") for rate in _RATES]
    loads.append((f"{_RATES[0]}_{_FULL}", _RATES[0], "full"))
    p50: dict[str, list[float]] = {name: [] for name, _, _ in loads}
    p99: dict[str, list[float]] = {name: [] for name, _, _ in loads}
    transactions: dict[str, list[float]] = {name: [] for name, _, _ in loads}
    with serving(lab) as place:
        wait_until_it_works(place, codec)
        for number in range(_WARM_UP_ROUNDS):
            for kind in ("bench", "full"):
                _round(lab, place, codec, _WARM_UP_RATE, kind, f"warm-{kind}-{number}")
        for number in range(lab.rounds):
            for name, rate, kind in loads:
                times_ms, per_second = _round(lab, place, codec, rate, kind, f"{name}-{number}")
                p50[name].append(percentile(times_ms, 0.50))
                p99[name].append(percentile(times_ms, 0.99))
                transactions[name].append(per_second)
    rows: list[Row] = []
    for name, rate, _ in loads:
        targets = (at_most(25), at_most(100)) if rate == _RATES[0] else (None, None)
        rows += [
            Row(f"http_to_handler_p50_at_{name}", "ms", p50[name], targets[0]),
            Row(f"http_to_handler_p99_at_{name}", "ms", p99[name], targets[1]),
            Row(f"transactions_at_{name}", "per s", transactions[name]),
        ]
    return rows


def _round(
    lab: Lab, place: Serving, codec: Codec, rate: int, kind: str, name: str
) -> tuple[list[float], float]:
    """Times of one round without its first seconds, ms; and transactions per second."""
    outbox = Outbox(place.settings, codec)
    count = lab.scaled(rate * _SECONDS)
    began_s, began = time.monotonic(), place.transactions()
    sent_ns = asyncio.run(_send(place.events_url, rate, count, kind, name))
    per_second = (place.transactions() - began) / (time.monotonic() - began_s)
    outbox.read_until(count, _TIMEOUT_S)
    outbox.close()
    warm = {event_id for event_id, _ in list(sent_ns.items())[: min(rate * _SETTLE_S, count // 2)]}
    times_ms = [
        (outbox.started_ns[event_id] - at_ns) / 1e6
        for event_id, at_ns in sent_ns.items()
        if event_id not in warm
    ]
    return times_ms, per_second


async def _send(url: str, rate: int, count: int, kind: str, name: str) -> dict[str, int]:
    """Send events at a rate, none waiting for another's answer; when each was sent, ns."""
    pace = Pace(rate)
    sent_ns: dict[str, int] = {}
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(headers=headers) as session, asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(pace.wait_s)
            event_id = f"latency-{name}-{number}"
            sent_ns[event_id] = time.monotonic_ns()
            body = event_json(event_id, kind=kind, tenant=number % _TENANTS)
            group.create_task(_post(session, url, body))
    return sent_ns


async def _post(session: aiohttp.ClientSession, url: str, body: bytes) -> None:
    async with session.post(url, data=body) as answer:
        answer.raise_for_status()
        await answer.read()
