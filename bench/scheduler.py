"""The scheduler's core alone: selecting, leasing and saying so, as values; no Avro, no Kafka.

Also what a backlog of a million jobs takes of memory, how long it is to load, and how evenly
tenants fare that are equal.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import psutil

from bench.lab import Lab
from bench.orders import NOW_MS, bench_codec
from bench.row import Row, at_least, at_most
from streams.codec import Codec
from streams.collector import look_seldom
from streams.core import scheduler, scheduler_policy
from streams.core.record import Record
from streams.core.state import State
from streams.engine import Memory, MemoryStore
from streams.engine.store import RowChange
from streams.stages import bind
from streams.testing import builders

_QUEUE = "bench"
_JOBS = 40_000
_BATCH = 500
_HELD = 1_000
_BODY = b"x" * 300
_BACKLOG = 1_000_000
_DECISIONS = 100_000
_FAIR_WORKERS, _FAIR_SLOTS, _FAIR_TENANTS = 10, 4, 100
_FAIR_TURNS = 200  # of each tenant; fairness is judged from the hundredth on


class _Rows:
    """Rows as values: what is measured is the fold, not how they are kept."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.get = self.values.get
        self.put = self.values.__setitem__

    def delete(self, key: str, /) -> None:
        """Remove a row."""
        self.values.pop(key, None)

    def scan(self, prefix: str, /) -> Iterator[tuple[str, Any]]:
        """Yield the rows of a prefix, in order."""
        yield from sorted(item for item in self.values.items() if item[0].startswith(prefix))

    each = scan

    def count(self, prefix: str, /) -> int:
        """Count the rows of a prefix."""
        return sum(1 for _ in self.scan(prefix))

    def oldest(self, prefix: str, /) -> str | None:  # noqa: ARG002 - nothing is due here
        """Return nothing: no timer fires."""
        return None


class _Scheduler:
    """One partition with one queue and one worker."""

    def __init__(self, strategy: str, keys: int) -> None:
        policy = {**scheduler_policy.DEFAULT, "strategy": strategy, "starvation_age_ms": 0}
        self._state = State(_Rows(), 0, 1, now_ms=NOW_MS)
        self._state.index = scheduler.FOLD.build_index(self._state)
        self._offset = self._seq = self._next = 0
        self._keys = keys
        revision = {"revision": 1, "namespace": "bench", "added": [], "drained": []}
        in_force = {**builders.policy(), "scheduler": policy}
        self.fold("revision_published", {**revision, "policy": in_force, "apply_id": "a"})

    def fold(self, kind: str, value: dict[str, Any]) -> Sequence[Any]:
        """Fold one record."""
        self._offset += 1
        record = Record("worker.requests", 0, self._offset, NOW_MS, b"", kind, value, {})
        return list(scheduler.FOLD.on_record(self._state, record))

    def ready(self, count: int) -> None:
        """Let jobs come, of every key in turn."""
        for first in range(self._next, self._next + count, _BATCH):
            self.fold("jobs_ready", jobs_ready(first, min(_BATCH, count), self._keys))
        self._next += count

    def beat(self, held: Sequence[str], *, draining: bool = False) -> list[str]:
        """Say what the worker has; return the claims that it is given."""
        return _claimed(self.join("worker", _HELD, held, draining=draining))

    def join(
        self, name: str, slots: int, held: Sequence[str] = (), *, draining: bool = False
    ) -> Sequence[Any]:
        """Say that a worker is there and what it has; return what comes of it."""
        self._seq += 1
        claims = [_claim(each) | {"queue": _QUEUE} for each in held]
        heartbeat = {
            "consumer_id": name,
            "incarnation": "i",
            "deliveries_partition": 0,
            "queues": [_QUEUE],
            "capacity": slots - len(held),
            "claims": claims,
            "claim_ttl_ms": 300_000,
            "draining": draining,
            "once": False,
            "divided": False,
            "seq": self._seq,
            "granted_at_ms": None,
        }
        return self.fold("worker_heartbeat", heartbeat)

    def ack(self, claims: Sequence[str], name: str = "worker") -> Sequence[Any]:
        """Say that jobs are done; return what comes of it."""
        word = {"queue": _QUEUE, "consumer_id": name, "incarnation": "i"}
        return self.fold("ack_requested", {**word, "acks": [_claim(each) for each in claims]})


def jobs_ready(first: int, count: int, keys: int) -> dict[str, Any]:
    """Jobs as the relay tells them."""
    jobs = [
        {
            "offset": number,
            "occurred_at_ms": NOW_MS + number,
            "priority": "normal",
            "tenant_id": f"tenant-{number % keys:06d}",
            "binding_key": "bench@v1",
            "trigger_id": "bench",
            "event_id": f"trigger_evt_{number}",
            "traceparent": None,
            "body": _BODY,
        }
        for number in range(first, first + count)
    ]
    place = {"queue": _QUEUE, "shard": None, "shards": 1, "source_partition": 0}
    return {**place, "first_offset": first, "next_offset": first + count, "jobs": jobs}


def _claim(claim_id: str) -> dict[str, str]:
    return {"job_event_id": claim_id.partition(".")[0], "claim_id": claim_id}


def _claimed(outputs: Sequence[Any]) -> list[str]:
    return [out.value["claim_id"] for out in outputs if out.kind == "job_claimed"]


def _decisions_per_second(lab: Lab, strategy: str, keys: int) -> float:
    """Jobs selected, leased and told a second of processor time; what acks cost is left out."""
    place = _Scheduler(strategy, keys)
    place.ready(max(lab.scaled(_JOBS), keys) + _HELD)
    count = lab.scaled(_JOBS) // 2
    gc.collect()
    seconds, done = 0.0, 0
    while done < count:
        began_s = time.process_time()
        held = place.beat([])
        seconds += time.process_time() - began_s
        done += len(held)
        place.beat(held, draining=True)
        place.ack(held)
    return done / seconds


def _fairness() -> float:
    """The least Jain index of equal tenants' selections, at any moment once each had some.

    Ten workers of four slots each are done with one job at a time, in turn.
    """
    place = _Scheduler("drr", _FAIR_TENANTS)
    place.ready(2 * _FAIR_TURNS * _FAIR_TENANTS)
    selected: Counter[str] = Counter()
    held: dict[str, list[str]] = {f"worker-{number}": [] for number in range(_FAIR_WORKERS)}
    least = 1.0

    def take(outputs: Sequence[Any]) -> None:
        nonlocal least
        for out in outputs:
            if out.kind == "job_claimed":
                held[out.value["consumer_id"]].append(out.value["claim_id"])
                selected[out.value["fairness_key"]] += 1
                if selected.total() >= _FAIR_TURNS * _FAIR_TENANTS // 2:
                    least = min(least, _jain(selected))

    for name in held:
        take(place.join(name, _FAIR_SLOTS))
    while selected.total() < _FAIR_TURNS * _FAIR_TENANTS:
        for name, claims in held.items():
            take(place.ack([claims.pop(0)], name))
    return least


def _jain(selected: Counter[str]) -> float:
    squares = sum(count * count for count in selected.values())
    return selected.total() ** 2 / (_FAIR_TENANTS * squares)


def _backlog(codec: Codec, count: int) -> tuple[float, float]:
    """Bytes of each ready job over its body, and seconds to load them."""
    stage = bind(codec, lambda _topic: 1)["scheduler"]
    encode = codec.encoder("row_job")
    gc.collect()
    before = psutil.Process().memory_info().rss
    store = MemoryStore()
    for first in range(0, count, _BATCH):
        rows: list[RowChange] = []
        for job in jobs_ready(first, min(_BATCH, count - first), 1_000)["jobs"]:
            offset = job.pop("offset")
            rows.append((f"j:{_QUEUE}:{offset}".encode(), encode(job)))
        store.apply(rows, b"")
    began_s = time.monotonic()
    memory = Memory(stage, 0, store)
    assert memory.state.index.queue(_QUEUE).selection.ready == count
    seconds = time.monotonic() - began_s
    gc.collect()
    return (psutil.Process().memory_info().rss - before) / count - len(_BODY), seconds


def measure(lab: Lab) -> list[Row]:
    """The backlog once, then rounds of each strategy in turn."""
    look_seldom()  # as a process that runs stages does
    # First of all: memory that was used before and is free would hide what the backlog takes.
    size, seconds = _backlog(bench_codec(), lab.scaled(_BACKLOG))
    runs: dict[tuple[str, int], list[float]] = {}
    for _ in range(lab.rounds):
        for keys in (100, 1_000, 100_000):
            for strategy in ("fifo", "drr"):
                found = _decisions_per_second(lab, strategy, keys)
                runs.setdefault((strategy, keys), []).append(found)
    costs = {
        keys: [
            (1 - fair / plain) * 100
            for fair, plain in zip(runs["drr", keys], runs["fifo", keys], strict=True)
        ]
        for keys in (1_000, 100_000)
    }
    return [
        Row("scheduler_core", "decisions/s", runs["drr", 100], at_least(_DECISIONS)),
        Row("scheduler_core_fifo", "decisions/s", runs["fifo", 100]),
        Row("scheduler_core_drr_cost_1000_keys", "%", costs[1_000], at_most(5)),
        Row("scheduler_core_drr_cost_100000_keys", "%", costs[100_000], at_most(15)),
        Row("scheduler_backlog_job", "bytes over its body", [size], at_most(600)),
        Row("scheduler_backlog_loaded", "s", [seconds], at_most(20)),
        Row("scheduler_fairness", "Jain index", [_fairness()], at_least(0.9995)),
    ]
