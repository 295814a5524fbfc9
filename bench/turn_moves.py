"""Agent turns while workers come and go: takeover after a kill and after SIGTERM, and affinity.

Takeover is the time from a worker's end until each of its partitions has begun a turn at another's,
under a steady load of all partitions; worst of the partitions.  Affinity is the share of turns that
find what their worker keeps of their session, through one, four and three workers.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count

from bench.lab import Lab
from bench.load import Pace
from bench.process import Process, running
from bench.row import Row, at_least, at_most
from bench.turn_load import JOBS, Task, TurnLoad, Words, worker_command, workers
from streams.codec import Codec
from streams.edge.codecs import codec_of
from streams.provision import provision_topics

_SLOTS = 16
_RATE = 120
_STEADY_S = 3.0
_SERVED_S = 60.0
_SESSIONS_EACH = 50
_SETTLED = 3
"""So often in a row the same workers must have all partitions."""


def measure(lab: Lab) -> list[Row]:
    """Takeovers, then affinity."""
    provision_topics(lab.settings)
    codec = codec_of(lab.settings)
    moves = _Moves(lab, codec)
    rounds = 1 if lab.quick else lab.rounds
    kills = [moves.takeover(signal.SIGKILL) for _ in range(rounds)]
    stops = [moves.takeover(signal.SIGTERM) for _ in range(rounds)]
    shares = [moves.affinity() for _ in range(rounds)]
    joined, left = zip(*shares, strict=True)
    return [
        Row("turn_takeover_after_kill", "s", [s for s, _ in kills], at_most(8), pick=max),
        Row("turn_takeover_after_sigterm", "s", [s for s, _ in stops], at_most(2), pick=max),
        Row("turns_begun_twice_by_sigterm", "turns", [n for _, n in stops], at_most(0), pick=max),
        Row("turn_affinity_1_to_4", "%", joined, at_least(95)),
        Row("turn_affinity_4_to_3", "%", left, at_least(95)),
    ]


class _Moves:
    """One lab's workers."""

    def __init__(self, lab: Lab, codec: Codec) -> None:
        self._lab = lab
        self._codec = codec
        self._load = TurnLoad(lab.settings, codec)
        self._numbers = count()
        self._partitions = range(lab.settings.agent_turns_partitions)
        self._sessions = {
            each: self._load.sessions_of(each, _SESSIONS_EACH, "kept") for each in self._partitions
        }

    # ------------------------------------------------------------------ takeover
    def takeover(self, how: signal.Signals) -> tuple[float, int]:
        """End one of two workers; how long, s, and how many turns were begun twice."""
        words = Words(self._lab.settings)
        with workers(self._lab, 2, _SLOTS) as pair, self._steadily():
            owners = self._settled(words, 2)
            victim = pair[0]
            moved = [each for each, worker in owners.items() if _is_of(worker, victim)]
            assert moved, f"nothing is of {victim.pid}: {owners}"
            self._read_for(words, _STEADY_S)
            fated_ms = time.time() * 1_000
            victim.signal(how)
            begun: Counter[str] = Counter()
            served: dict[int, int] = {}
            deadline_s = time.monotonic() + _SERVED_S
            while len(served) < len(moved):
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"{served} of {moved}:\n{pair[1].tail()}")
                for partition, said, at_ms in self._begun(words):
                    begun[said["job_id"]] += 1
                    if partition in moved and not _is_of(said["claimed_by"], victim):
                        served.setdefault(partition, at_ms)
            for _, said, _ in self._read_for(words, _STEADY_S):
                begun[said["job_id"]] += 1
        words.close()
        return (max(served.values()) - fated_ms) / 1_000, sum(n - 1 for n in begun.values())

    @contextmanager
    def _steadily(self) -> Iterator[None]:
        """Enqueue turns in every partition in turn while the block runs."""
        stop = threading.Event()

        def enqueue() -> None:
            load, pace = TurnLoad(self._lab.settings, self._codec), Pace(_RATE)
            while not stop.wait(pace.wait_s):
                number = next(self._numbers)
                sessions = self._sessions[number % len(self._sessions)]
                task = Task(f"m-{number}", sessions[number // 6 % len(sessions)], "nothing")
                load.create([task])
                load.enqueue(task)
                load.flush()

        thread = threading.Thread(target=enqueue, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _begun(self, words: Words) -> Iterator[tuple[int, dict[str, str], int]]:
        """Yield the claims that have come: partition, value, and when."""
        for word in words.read():
            if word.kind == "turn_claimed":
                yield word.partition, self._codec.decode(word.value)[1], word.at_ms

    def _read_for(self, words: Words, seconds: float) -> list[tuple[int, dict[str, str], int]]:
        found: list[tuple[int, dict[str, str], int]] = []
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            found += self._begun(words)
        return found

    # ------------------------------------------------------------------ affinity
    def affinity(self) -> tuple[float, float]:
        """Share of turns that found their worker's memory, % of those that could.

        As three workers join the only one, those of the partitions that a fair share leaves it; as
        one of four leaves, those of the partitions that it did not have.
        """
        words, jobs = Words(self._lab.settings), Words(self._lab.settings, JOBS)
        with ExitStack() as stack:
            several = [self._start(stack) for _ in range(1)]
            self._settled(words, 1)
            self._known(jobs)  # now each session is known to the only worker
            several += [self._start(stack) for _ in range(3)]
            self._settled(words, 4)
            joined = sum(self._known(jobs).values())
            before = self._settled(words, 4)
            leaver = several[-1]
            leaver.stop()
            self._settled(words, 3)
            left = self._known(jobs)
        words.close()
        jobs.close()
        fair = len(self._partitions) // 4 * _SESSIONS_EACH
        stayed = [each for each, worker in before.items() if not _is_of(worker, leaver)]
        found = sum(left[each] for each in stayed)
        return min(100.0, 100 * joined / fair), 100 * found / (len(stayed) * _SESSIONS_EACH)

    def _start(self, stack: ExitStack) -> Process:
        worker = stack.enter_context(running(worker_command(_SLOTS), self._lab.settings))
        worker.wait_for("ready")
        return worker

    def _known(self, jobs: Words) -> Counter[int]:
        """Run a turn of every session; how many of each partition found what their worker knows."""
        name = f"a-{next(self._numbers)}"
        tasks = {
            f"{name}-{session}": Task(f"{name}-{session}", session, "remember")
            for sessions in self._sessions.values()
            for session in sessions
        }
        self._load.create(tasks.values())
        for each in tasks.values():
            self._load.enqueue(each)
        self._load.flush()
        results = self._results(jobs, set(tasks))
        return Counter(
            self._load.partition_of(task.session_id)
            for job_id, task in tasks.items()
            if results[job_id] == "known"
        )

    def _results(self, jobs: Words, wanted: set[str]) -> dict[str, str]:
        """What the agents of these jobs said."""
        found: dict[str, str] = {}
        deadline_s = time.monotonic() + _SERVED_S
        while len(found) < len(wanted):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{len(found)} of {len(wanted)} turns ended")
            for word in jobs.read():
                value = self._codec.decode(word.value)[1] if word.kind == "agent_job" else {}
                if value.get("job_id") in wanted and value["status"] == "completed":
                    found[value["job_id"]] = value["result"]
        return found

    def _settled(self, words: Words, count_of: int) -> dict[int, str]:
        """Wait until so many workers share all partitions, and keep them; return who has which."""
        seen: list[dict[int, str]] = []
        deadline_s = time.monotonic() + _SERVED_S
        while True:
            probes = {f"p-{next(self._numbers)}": each for each in self._partitions}
            tasks = [
                Task(job_id, self._load.sessions_of(each, 1, "probe")[0], "nothing")
                for job_id, each in probes.items()
            ]
            self._load.create(tasks)
            for each in tasks:
                self._load.enqueue(each)
            self._load.flush()
            owners: dict[int, str] = {}
            while len(owners) < len(probes):
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"{count_of} workers did not settle: {seen[-3:]}")
                for partition, said, _ in self._begun(words):
                    if said["job_id"] in probes:
                        owners[partition] = said["claimed_by"]
            seen.append(owners)
            last = seen[-_SETTLED:]
            settled = len(last) == _SETTLED and all(each == owners for each in last)
            if settled and len(set(owners.values())) == count_of:
                return owners


def _is_of(token: str, worker: Process) -> bool:
    """Whether a claim is a worker's."""
    return str(worker.pid) in token.split(":")
