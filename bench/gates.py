"""What a gate costs: in throughput, beside the plain trigger in the same run, and in memory.

Each gate is there and lets everything pass; debounce and batch, which make fewer starts of many
events, are not compared.  A machine's speed wanders by more than a gate costs, so that many runs
alternate: a pass runs the plain trigger and then each gate, every gate as often first as last, and
compares each with the mean of the plain trigger's runs before and after the pass.  Rows beside
those of throughput say how much more processor time the roles and the broker took together, which
other work on the machine does not change.  Windows outlive the measurement: none is forgotten in a
run of somebody else.  Keys are so many that all partitions have as much to do: a run would end with
the one that has most, which is what few keys cost, and no gate.  Memory is what a process of its
own grows by while it folds.
"""

from __future__ import annotations

import ctypes
import gc
import json
import multiprocessing
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from statistics import mean
from typing import Any

import psutil

from bench.engine import Fetched
from bench.lab import Lab
from bench.orders import NOW_MS, bench_codec
from bench.pipeline import events_per_second
from bench.row import Row, at_most
from bench.serving import Serving, serving, wait_until_it_works
from streams.codec import Codec
from streams.core.wire import BindingDefinition
from streams.engine import Memory, fold_batch, settle
from streams.stages import bind
from streams.testing import builders

_PLAIN = "bench"
GATES = ("rate_limit", "throttle", "singleton", "concurrency")
_EVENTS = 8_000
_PASSES = 6
_WARM_UP = 2_500
_TENANTS = 1_000  # so many that each partition has about as many of them as the others
_KEYS = 100_000
_FULL_KEYS = 20_000
_MAX = 10
_HITS = 10_000
_BATCH = 500
_DAY_MS = 86_400_000
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Gives free memory back to the system; the C library of Linux has it."""


def measure(lab: Lab) -> list[Row]:
    """Passes over the plain trigger and each gate in turn; then memory."""
    codec = bench_codec()
    slower: dict[str, list[float]] = {gate: [] for gate in GATES}
    busier: dict[str, list[float]] = {gate: [] for gate in GATES}
    with serving(lab) as place:
        wait_until_it_works(place, codec)
        for kind in (_PLAIN, *GATES):
            events_per_second(lab, place, codec, _WARM_UP, kind, tenants=_TENANTS)
        after = _run(lab, place, codec, _PLAIN)
        for number in range(_PASSES * lab.rounds):
            before, first = after, number % len(GATES)
            order = (*GATES[first:], *GATES[:first])
            gated = {gate: _run(lab, place, codec, gate) for gate in order}
            after = _run(lab, place, codec, _PLAIN)
            for gate, (speed, cpu_s) in gated.items():
                slower[gate].append((1 - speed / mean((before[0], after[0]))) * 100)
                busier[gate].append((cpu_s / mean((before[1], after[1])) - 1) * 100)
    return [
        *(Row(f"gate_cost_{gate}", "% events/s", slower[gate], at_most(10)) for gate in GATES),
        *(Row(f"gate_cost_{gate}_cpu", "% CPU", busier[gate]) for gate in GATES),
        *_memory(lab, codec),
    ]


def _run(lab: Lab, place: Serving, codec: Codec, kind: str) -> tuple[float, float]:
    """Events per second of one run, and the processor time of roles and broker, seconds."""
    before_s = _cpu_s(lab, place)
    speed = events_per_second(lab, place, codec, _EVENTS, kind, tenants=_TENANTS)
    return speed, _cpu_s(lab, place) - before_s


def _cpu_s(lab: Lab, place: Serving) -> float:
    """Processor time that the roles, and a broker of the lab's own, have taken so far."""
    pids = (place.process.pid, lab.broker_pid)
    times = [psutil.Process(pid).cpu_times() for pid in pids if pid is not None]
    return sum(each.user + each.system for each in times)


def _memory(lab: Lab, codec: Codec) -> list[Row]:
    keys, full_keys, hits = lab.scaled(_KEYS), lab.scaled(_FULL_KEYS), lab.scaled(_HITS)
    windows = ("rate_limit", "throttle")
    asked = {f"memory_{gate}_live_key": (gate, keys, 1) for gate in windows}
    asked |= {f"memory_{gate}_full_key": (gate, full_keys, _MAX) for gate in windows}
    # In a process each: no memory that another measurement freed is used anew.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn, max_tasks_per_child=1) as processes:
        found = {name: processes.submit(_bytes_each, *what) for name, what in asked.items()}
    rows = [Row(name, "bytes", [each.result()], at_most(400)) for name, each in found.items()]
    return [*rows, Row("memory_rate_limit_hit", "bytes", [_bytes_a_hit(codec, hits)], at_most(10))]


def _bytes_a_hit(codec: Codec, hits: int) -> float:
    """Bytes of a full window's row, as it is stored, for each of its hits."""
    stage = bind(codec, lambda _topic: 1)["dispatch"]
    memory = Memory(stage, 0)
    log = _Log(codec, memory)
    log.fold(
        [("revision_published", _revision({"rate_limit": {"period_ms": _DAY_MS, "max": hits}}))]
    )
    _live_through(log, "rate_limit", ["one"] * hits, 0)
    (row,) = memory.rows.store.prefixed(b"w:")
    return len(row[1]) / hits


def _bytes_each(gate: str, keys: int, starts: int) -> float:
    """Bytes that a key with so many starts leaves behind in its partition.

    Measured over the second half: what is there once, such as the engine's cache, is full by then.
    """
    codec = bench_codec()
    stage = bind(codec, lambda _topic: 1)["dispatch"]
    log = _Log(codec, Memory(stage, 0))
    log.fold([("revision_published", _revision({gate: {"period_ms": _DAY_MS, "max": _MAX}}))])
    values = [f"tenant-{number:06d}" for number in range(keys) for _ in range(starts)]
    half = keys // 2
    _live_through(log, gate, values[: half * starts], 0)
    before = _bytes_now()
    _live_through(log, gate, values[half * starts :], half * starts)
    return max(0, _bytes_now() - before) / (keys - half)


def _bytes_now() -> int:
    """Resident bytes; what was freed, such as a dictionary before it grew, is nobody's any more."""
    gc.collect()
    if _trim is not None:
        _trim(0)
    return psutil.Process().memory_info().rss


def _live_through(log: _Log, gate: str, values: list[str], first: int) -> None:
    for at in range(0, len(values), _BATCH):
        part = enumerate(values[at : at + _BATCH], first + at)
        log.fold([word for number, value in part for word in _life(gate, f"{number}", value)])


class _Log:
    """The mailbox of one partition, folded as it is written."""

    def __init__(self, codec: Codec, memory: Memory) -> None:
        self._codec = codec
        self._memory = memory
        self._offset = 0

    def fold(self, words: list[tuple[str, Mapping[str, Any]]]) -> None:
        """Append records and fold them as one batch."""
        records: list[Fetched] = []
        for kind, value in words:
            schema = self._memory.stage.kinds[kind]
            content = self._codec.encode(schema, value)
            headers = [("kind", kind.encode())]
            records.append(Fetched(self._offset, NOW_MS + self._offset, b"", content, headers))
            self._offset += 1
        while records:
            step = fold_batch(self._memory, records)
            settle(self._memory, step)
            records = records[step.records :]


def _revision(flow: Mapping[str, Any]) -> dict[str, Any]:
    bound = builders.binding("gated", version=1)
    definition = json.loads(bound["definition"]) | flow
    added: BindingDefinition = {**bound, "definition": json.dumps(definition, sort_keys=True)}
    return {
        "revision": 1,
        "namespace": "bench",
        "added": [added],
        "drained": [],
        "policy": builders.policy(),
        "apply_id": "apply_1",
    }


def _life(gate: str, name: str, key: str) -> list[tuple[str, Mapping[str, Any]]]:
    """A dispatch that is matched, passes its gate and ends well."""
    matched = {
        "dispatch_id": f"dispatch-{name}",
        "trigger_id": "gated",
        "binding_key": "gated@v1",
        "accepted_at_ms": NOW_MS,
        "keys": {gate: key},
        "replay_of_event_id": None,
        "event": builders.event(f"event-{name}"),
    }
    completed = {
        "dispatch_id": f"dispatch-{name}",
        "attempt": 1,
        "fence": 1,
        "invoker_id": "invoker",
        "outcome": "success",
        "result": "null",
        "error": None,
        "error_class": "none",
        "retry_after_ms": None,
        "started_at_ms": NOW_MS,
        "completed_at_ms": NOW_MS,
    }
    return [("event_matched", matched), ("invocation_completed", completed)]
