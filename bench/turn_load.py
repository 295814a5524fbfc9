"""Turns as an API enqueues them, and what their partitions say of them afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import TopicPartition

from bench.journal import stable_end
from bench.lab import Lab
from bench.process import Process, running
from streams.codec import Codec
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.partition_key import partition_of_session, session_key
from streams.core.turn.record import job_key, new_job, session_record_key
from streams.core.turn.session import new_session
from streams.core.turn.words import CLAIMS, TURNS
from streams.edge.turns.turn_codec import encode_turn
from streams.kafka import make_consumer, make_producer
from streams.settings import Settings

AGENTS = Path(__file__).parent / "agents" / "harn.toml"
JOBS, SESSIONS = "agent.jobs", "agent.sessions"
_TIMEOUT_S = 120.0


def worker_command(slots: int) -> list[str]:
    """What starts a worker, after the interpreter."""
    return ["streams.cli.turn_worker", "--workers", str(slots), "--config", str(AGENTS)]


@contextmanager
def workers(lab: Lab, count: int, slots: int) -> Iterator[list[Process]]:
    """So many workers, each a process; ready when the block begins."""
    with ExitStack() as stack:
        found = [
            stack.enter_context(running(worker_command(slots), lab.settings)) for _ in range(count)
        ]
        for each in found:
            each.wait_for("ready")
        yield found


class Task(NamedTuple):
    """A turn to be: its job, whose turn it is, and the agent that runs it."""

    job_id: str
    session_id: str
    agent: str
    description: str = ""


class TurnLoad:
    """Writes sessions, tasks and their turns to the partitions where they belong."""

    def __init__(self, settings: Settings, codec: Codec) -> None:
        self._codec = codec
        self._partitions = settings.agent_turns_partitions
        # Connected once: what a new client asks of the broker first is no part of what is measured.
        self._producer = make_producer(
            settings, linger_ms=1, queue_buffering_max_messages=1_000_000
        )
        self._producer.list_topics(TURNS, timeout=_TIMEOUT_S)
        self._sessions: set[str] = set()

    def partition_of(self, session_id: str) -> int:
        """Where a session lives."""
        return partition_of_session(session_id, self._partitions)

    def sessions_of(self, partition: int, count: int, name: str = "beside") -> list[str]:
        """Names of so many sessions that live in a partition."""
        found: list[str] = []
        number = 0
        while len(found) < count:
            if self.partition_of(f"{name}-{number}") == partition:
                found.append(f"{name}-{number}")
            number += 1
        return found

    def create(self, tasks: Iterable[Task]) -> None:
        """Make tasks and their sessions durable, as they are before their turns are enqueued."""
        now_ms = time.time_ns() // 1_000_000
        for each in tasks:
            if each.session_id not in self._sessions:
                self._sessions.add(each.session_id)
                session = new_session(each.session_id, now_ms=now_ms)
                key = session_record_key(each.session_id)
                self._append(SESSIONS, "agent_session", key, each, session)
            job = new_job(
                each.job_id,
                each.session_id,
                each.description,
                agent_name=each.agent,
                now_ms=now_ms,
            )
            self._append(JOBS, "agent_job", job_key(each.job_id), each, job)
        self.flush()

    def enqueue(self, task: Task) -> None:
        """Append a task's turn."""
        envelope = AgentTurnEnvelope(
            job_id=task.job_id,
            session_id=task.session_id,
            kind="orchestrator_task",
            payload_ref=task.job_id,
            agent_name=task.agent,
            enqueued_at_ms=time.time_ns() // 1_000_000,
        )
        value = encode_turn(self._codec, envelope)
        self._produce(TURNS, "agent_turn", session_key(task.session_id), task, value)

    def flush(self) -> None:
        """Wait until the broker has it all."""
        assert self._producer.flush(_TIMEOUT_S) == 0, "the turns could not be appended"

    def _append(self, topic: str, kind: str, key: str, task: Task, value: Any) -> None:
        self._produce(topic, kind, key, task, self._codec.encode(kind, value))

    def _produce(self, topic: str, kind: str, key: str, task: Task, value: bytes) -> None:
        partition = self.partition_of(task.session_id)
        headers: list[tuple[str, str | bytes | None]] = [("kind", kind)]
        self._producer.produce(topic, value, key.encode(), partition, headers=headers)
        self._producer.poll(0)


class Word(NamedTuple):
    """A record of a topic of turns; `at_ms` is its timestamp."""

    partition: int
    kind: str
    at_ms: int
    value: bytes


class Words:
    """What one topic of turns says from now on."""

    def __init__(self, settings: Settings, topic: str = CLAIMS) -> None:
        self._consumer = make_consumer(settings, group_id=None)
        self._consumer.assign(
            [
                TopicPartition(topic, number, stable_end(self._consumer, topic, number))
                for number in range(settings.agent_turns_partitions)
            ]
        )
        self._topic = topic

    def read(self, for_s: float = 0.02) -> list[Word]:
        """Return what has come, waiting at most so long for the first."""
        found: list[Word] = []
        for message in self._consumer.consume(10_000, for_s):
            if message.error() is None:
                kind = dict(message.headers() or ())["kind"]
                at_ms = message.timestamp()[1]
                number = message.partition() or 0
                found.append(Word(number, _text(kind), at_ms, message.value() or b""))
        return found

    def wait(self, kind: str, count: int, timeout_s: float = _TIMEOUT_S) -> list[Word]:
        """Return the words of a kind once there are so many.  TimeoutError."""
        deadline_s = time.monotonic() + timeout_s
        found: list[Word] = []
        while len(found) < count:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{len(found)} of {count} {kind} came on {self._topic}")
            found += [each for each in self.read() if each.kind == kind]
        return found

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()


def _text(header: str | bytes | None) -> str:
    return header.decode() if isinstance(header, bytes) else header or ""
