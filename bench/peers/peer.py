"""One of the other queues: how its workers are started, and what is measured of it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers.apps import marks
from bench.peers.environment import APPS, Environment
from bench.row import percentile

_TIMEOUT_S = 180.0
_LOOK_S = 0.002
_STOP_S = 20.0
_WARM_UP = 20


@dataclass(frozen=True, slots=True)
class Peer:
    """A queue.

    `worker` is the command of a worker process with so many slots; `jobs` how many are drained;
    `setup` is run once, before anything else.
    """

    name: str
    module: str
    jobs: int
    worker: Callable[[int], list[str]]
    setup: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Latency:
    """Of jobs at a steady rate, from being sent to their start, ms."""

    p50: float
    p99: float


class Measured:
    """Measures one peer on running servers."""

    def __init__(self, peer: Peer, environment: Environment) -> None:
        self._peer = peer
        self._environment = environment
        self._path = Path(environment.variables["BENCH_MARKS"])
        if peer.setup:
            environment.run(*peer.setup)

    def enqueued_and_drained(self, jobs: int, workers: int, slots: int) -> tuple[float, float]:
        """Jobs sent a second by one sender, and then run a second by workers, start to start."""
        with self._marks(jobs) as seen:
            seconds = self._send(0, jobs, 0)[0]
            with self._workers(workers, slots):
                started_ns = self._wait(seen, range(jobs))
        run_s = (max(started_ns) - min(started_ns)) / 1e9
        return jobs / seconds, (jobs - 1) / run_s

    def latency(self, rate: int, seconds: int, slots: int) -> Latency:
        """From sending to start, at a steady rate, once the worker has shown that it works."""
        jobs = rate * seconds
        with self._marks(_WARM_UP + jobs) as seen, self._workers(1, slots):
            self._send(0, _WARM_UP, 0)
            self._wait(seen, range(_WARM_UP))
            sent_ns = self._send(_WARM_UP, jobs, 0, rate)[1]
            started_ns = self._wait(seen, range(_WARM_UP, _WARM_UP + jobs))
        pairs = zip(sent_ns, started_ns, strict=True)
        times_ms = [(started - sent) / 1e6 for sent, started in pairs]
        return Latency(percentile(times_ms, 0.5), percentile(times_ms, 0.99))

    def other_tenant_s(self, backlog: int, added: int, sleep_ms: int, slots: int) -> float:
        """How long it takes until jobs are done that are sent behind somebody else's backlog."""
        with self._marks(backlog + added) as seen:
            self._send(0, backlog, sleep_ms)
            with self._workers(1, slots):
                self._wait(seen, range(slots))
                sent_ns = self._send(backlog, added, sleep_ms)[1]
                started_ns = self._wait(seen, range(backlog, backlog + added))
                self._wait(seen, range(backlog))
        return (max(started_ns) - min(sent_ns)) / 1e9 + sleep_ms / 1e3

    # ------------------------------------------------------------------ parts
    @contextmanager
    def _marks(self, jobs: int) -> Iterator[marks.Marks]:
        marks.make(self._path, jobs)
        seen = marks.Marks(self._path)
        yield seen
        seen.close()

    def _send(
        self, first: int, count: int, sleep_ms: int, rate: int = 0
    ) -> tuple[float, list[int]]:
        arguments = (str(first), str(count), str(sleep_ms), str(rate))
        said = self._environment.run("python", "client.py", self._peer.module, *arguments)
        answer = json.loads(said.splitlines()[-1])
        return answer["seconds"], answer["sent_ns"]

    @contextmanager
    def _workers(self, count: int, slots: int) -> Iterator[None]:
        program, *arguments = self._peer.worker(slots)
        with ExitStack() as stack:
            for _ in range(count):
                worker = subprocess.Popen(
                    [self._environment.program(program), *arguments],
                    env=self._environment.variables,
                    cwd=APPS,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                stack.callback(_end, worker)
            yield

    def _wait(self, seen: marks.Marks, jobs: range) -> list[int]:
        """Wait until all of these have started; return when each did."""
        deadline_s = time.monotonic() + _TIMEOUT_S
        waiting = list(jobs)
        while waiting := [job for job in waiting if not seen.started_ns[job]]:
            if time.monotonic() > deadline_s:
                name = self._peer.name
                raise TimeoutError(f"{name}: {len(waiting)} jobs did not start in {_TIMEOUT_S} s")
            time.sleep(_LOOK_S)
        return [seen.started_ns[job] for job in jobs]


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.terminate()
    try:
        worker.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
