"""Enqueueing on Kafka: records and turns in the session's partition, read back as they changed.

Vectors of SEMANTICS 8.11 that concern the seams are named by their numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from confluent_kafka import Message

from streams.codec import Codec
from streams.core.record import Position
from streams.core.turn.partition_key import partition_of_session
from streams.core.turn.record import (
    desired_key,
    goal_key,
    job_key,
    new_job,
    session_record_key,
)
from streams.core.turn.session import new_session
from streams.edge.publisher import Publisher
from streams.edge.topic_reader import TopicReader
from streams.edge.turns.enqueuer import Enqueuer, SessionKilled
from streams.edge.turns.kafka_ledger import KafkaLedger
from streams.edge.turns.turn_codec import decode_turn
from streams.edge.turns.turn_store import WORKER_TTL_MS, Status
from streams.edge.turns.turn_view import TOPICS, TurnView
from streams.errors import TaskQueueUnavailable
from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.eventually import eventually
from tests.support.mock_cluster import mock_cluster, read

PARTITIONS = 4  # of every topic of the cluster in memory
GOAL = {"objective": "all tests pass", "validation_cmd": "make test"}
CODEC = Codec()
NOW_MS = 1_700_000_000_000


@pytest.fixture
def settings() -> Iterator[Settings]:
    with mock_cluster() as bootstrap:
        settings = Settings(bootstrap=bootstrap, agent_turns_partitions=PARTITIONS)
        producer = make_producer(settings)
        for topic in ("agent_turns", *TOPICS):
            producer.list_topics(topic, timeout=30)  # makes it
        yield settings


class Api(NamedTuple):
    """One process that enqueues."""

    enqueuer: Enqueuer
    ledger: KafkaLedger
    view: TurnView
    publisher: Publisher


@asynccontextmanager
async def process(settings: Settings, **options: Any) -> AsyncIterator[Api]:
    publisher, view = Publisher(settings, name="test"), TurnView(settings, CODEC, **options)
    await publisher.start()
    view.start()
    ledger = KafkaLedger(settings, publisher, CODEC, view, now_ms=lambda: NOW_MS, ack_s=5)
    try:
        await eventually(lambda: not view.unread, "all topics are read")
        yield Api(Enqueuer(ledger, now_ms=lambda: NOW_MS), ledger, view, publisher)
    finally:
        await view.stop()
        await publisher.stop()


@pytest_asyncio.fixture
async def api(settings: Settings) -> AsyncIterator[Api]:
    async with process(settings) as found:
        yield found


def only(settings: Settings, topic: str, session_id: str, count: int = 1) -> list[Message]:
    return read(settings, topic, partition_of_session(session_id, PARTITIONS), count)


def said(message: Message) -> dict[str, Any]:
    value = message.value()
    assert isinstance(value, bytes)
    return CODEC.decode(value)[1]


async def write(api: Api, kind: str, topic: str, key: str, value: dict[str, Any]) -> None:
    """Write a record as a worker does."""
    session_id = value.get("session_id")
    await api.publisher.append(
        topic,
        kind=kind,
        value=CODEC.encode(kind, value),
        key=key.encode(),
        partition=0 if session_id is None else partition_of_session(session_id, PARTITIONS),
    )


async def test_8_12_a_goal_its_session_and_its_turn_share_a_partition(
    api: Api, settings: Settings
) -> None:
    created = await api.enqueuer.create_goal({**GOAL, "tenant": "acme"})
    goal_id, session_id = created["goal_id"], created["session_id"]
    assert created["dispatch"]["dispatch"] == "queued"
    (goal,) = only(settings, "agent.jobs", session_id)
    assert goal.key() == goal_key(goal_id).encode()
    assert (said(goal)["status"], said(goal)["owner_host"]) == ("pending", "")
    (session,) = only(settings, "agent.sessions", session_id)
    assert session.key() == session_record_key(session_id).encode()
    assert said(session)["status"] == "queued"
    assert '"goal_spec"' in said(session)["metadata_json"]
    (turn,) = only(settings, "agent_turns", session_id)
    assert turn.key() == f"session:{session_id}".encode()
    value = turn.value()
    assert isinstance(value, bytes)
    envelope = decode_turn(CODEC, value, Position("agent_turns", 0, 0), 0)
    assert (envelope.payload_ref, envelope.tenant) == (goal_id, "acme")
    assert dict(turn.headers() or []) == {"kind": b"agent_turn", "tenant_id": b"acme"}


async def test_8_14_a_bare_task_is_its_own_session(api: Api, settings: Settings) -> None:
    asked = {"description": "look after it", "agent_name": "planner"}
    handle = await api.enqueuer.dispatch(asked)
    assert handle["session_id"] == handle["job_id"]
    (task,) = only(settings, "agent.jobs", handle["job_id"])
    assert task.key() == job_key(handle["job_id"]).encode()
    told = await api.ledger.record(handle["job_id"], "orchestrator_task")
    assert told is not None
    assert (told.status, told.spec["agent_name"]) == (Status.PENDING, "planner")


async def test_what_one_process_writes_another_reads(api: Api, settings: Settings) -> None:
    created = await api.enqueuer.create_goal({**GOAL, "session_id": "s1"})
    async with process(settings) as other:
        goal = await other.ledger.record(created["goal_id"], "goal_loop")
        assert goal is not None
        assert await api.ledger.record(created["goal_id"], "goal_loop") == goal
        assert await other.enqueuer.kill("s1")
        session = await other.ledger.session("s1")
        assert session is not None
        assert session.kill_requested
    await eventually(
        lambda: api.view.get("agent_session_desired", desired_key("s1")) is not None,
        "the kill is known",
    )
    with pytest.raises(SessionKilled):
        await api.enqueuer.create_goal({**GOAL, "session_id": "s1"})


async def test_a_paused_goal_goes_on_with_another_turn(api: Api, settings: Settings) -> None:
    created = await api.enqueuer.create_goal({**GOAL, "session_id": "s1", "tenant": "acme"})
    key = goal_key(created["goal_id"])
    pending = api.view.get("agent_goal", key)
    assert pending is not None
    await write(api, "agent_goal", "agent.jobs", key, {**pending, "status": "paused"})

    def is_paused() -> bool:
        return (api.view.get("agent_goal", key) or {})["status"] == "paused"

    await eventually(is_paused, "the pause is known")
    assert await api.enqueuer.pause("s1")
    (handle,) = await api.enqueuer.resume("s1") or []
    turns = only(settings, "agent_turns", "s1", count=2)
    assert said(turns[1])["job_id"] == handle["job_id"]
    assert said(turns[1])["tenant"] == "acme"
    goal = await api.ledger.record(created["goal_id"], "goal_loop")
    assert goal is not None
    assert goal.status is Status.PENDING


async def test_a_pause_and_a_kill_at_once_undo_neither(api: Api) -> None:
    await api.enqueuer.create_goal({**GOAL, "session_id": "s1"})
    await asyncio.gather(api.enqueuer.kill("s1"), api.enqueuer.pause("s1"))
    session = await api.ledger.session("s1")
    assert session is not None
    assert (session.kill_requested, session.pause_requested) == (True, True)


async def test_of_two_processes_that_ask_at_once_neither_undoes_what_the_other_wants(
    api: Api, settings: Settings
) -> None:
    sessions = [f"s{number}" for number in range(12)]
    for each in sessions:
        await api.enqueuer.create_goal({**GOAL, "session_id": each})
        await api.enqueuer.pause(each)

    def wanted(of: Api, session_id: str) -> tuple[bool, bool]:
        found = of.view.get("agent_session_desired", desired_key(session_id)) or {}
        return found.get("kill_requested", False), found.get("pause_requested", False)

    async with process(settings) as other:
        await eventually(
            lambda: all(wanted(other, each) == (False, True) for each in sessions), "all paused"
        )
        # Neither has seen the word of the other when it writes its own.
        outcomes = await asyncio.gather(
            *(other.enqueuer.kill(each) for each in sessions),
            *(api.enqueuer.resume(each) for each in sessions),
            return_exceptions=True,
        )
        assert outcomes[: len(sessions)] == [True] * len(sessions)
        late = [each for each in outcomes[len(sessions) :] if each != []]
        assert {type(each) for each in late} <= {SessionKilled}
        for one in (api, other):
            await eventually(
                lambda one=one: all(wanted(one, each) == (True, False) for each in sessions),
                "a kill and a resumption both hold, whichever came first",
            )


async def test_of_a_pause_and_its_resumption_the_later_one_holds_in_both_processes(
    api: Api, settings: Settings
) -> None:
    sessions = [f"s{number}" for number in range(6)]
    for each in sessions:
        await api.enqueuer.create_goal({**GOAL, "session_id": each})
    async with process(settings) as other:
        await eventually(lambda: len(other.view.newest("agent_session", limit=9)) == 6, "all seen")
        await asyncio.gather(
            *(other.enqueuer.pause(each) for each in sessions),
            *(api.enqueuer.resume(each) for each in sessions),
        )
        for each in sessions:
            key = desired_key(each)
            last = await asyncio.to_thread(last_pause, settings, each)

            def told(key: str = key) -> list[bool]:
                found = [one.view.get("agent_session_desired", key) for one in (api, other)]
                return [one is not None and one["pause_requested"] for one in found]

            await eventually(lambda told=told, last=last: told() == [last] * 2, "both know it")


def last_pause(settings: Settings, session_id: str) -> bool:
    """What the last word on a session says of its pause."""
    at, words = partition_of_session(session_id, PARTITIONS), list[dict[str, Any]]()
    with TopicReader(settings, "agent.sessions") as reader:
        reader.start_at({at: 0})
        while not reader.at_end:
            for record in reader.read(1):
                if record.key == desired_key(session_id).encode() and record.value is not None:
                    words.append(CODEC.decode(record.value)[1])
    return words[-1]["pause_requested"]


async def test_a_session_that_is_there_is_left_to_its_owner(api: Api) -> None:
    await api.enqueuer.create_goal({**GOAL, "session_id": "s1"})
    await api.enqueuer.create_goal({**GOAL, "session_id": "s1", "domain": "other"})
    session = await api.ledger.session("s1")
    assert session is not None
    assert session.domain == ""
    assert len(await api.ledger.records(kind="goal_loop", session_id="s1", limit=10)) == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000])
async def test_metadata_that_somebody_else_wrote_hide_no_session(api: Api, text: str) -> None:
    value = {**new_session("s1", now_ms=NOW_MS), "metadata_json": text}
    await write(api, "agent_session", "agent.sessions", session_record_key("s1"), value)
    await eventually(lambda: api.view.newest("agent_session", limit=1) != [], "it is read")
    (session,) = await api.ledger.sessions(limit=10)
    assert (session.session_id, session.metadata) == ("s1", {})


async def test_8_13_what_the_broker_does_not_take_is_told_loudly(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with process(settings) as api:
        await api.publisher.stop()
        with pytest.raises(TaskQueueUnavailable, match="Kafka at"):
            await api.enqueuer.create_goal({**GOAL, "session_id": "s1"})
        assert await api.ledger.records(kind="goal_loop", limit=10) == []
        events = [line.getMessage() for line in caplog.records if "enqueuer" in line.name]
        # Of the goal nothing may be in the topic; of its session there may be.
        assert events == ["turn_not_enqueued", "turn_failure_not_recorded"]


async def test_8_13_a_goal_whose_turn_was_refused_has_failed_for_every_process(
    api: Api, settings: Settings
) -> None:
    created = await api.enqueuer.create_goal({**GOAL, "session_id": "s1"})
    goal = await api.ledger.record(created["goal_id"], "goal_loop")
    assert goal is not None
    await api.ledger.fail_session("s1")
    failed = await api.ledger.move(goal, to=Status.FAILED, error="not enqueued: it was refused")
    assert failed is not None
    assert await api.ledger.move(goal, to=Status.FAILED) is None, "it is not pending any more"
    async with process(settings) as other:
        assert await other.ledger.record(created["goal_id"], "goal_loop") == failed
        session = await other.ledger.session("s1")
        assert session is not None
        assert session.status == "failed"


async def test_nothing_is_told_before_the_topics_were_read(settings: Settings) -> None:
    view = TurnView(settings, CODEC)  # it was not started
    ledger = KafkaLedger(settings, Publisher(settings, name="test"), CODEC, view)
    with pytest.raises(TaskQueueUnavailable, match="not read to the end yet"):
        await ledger.sessions(limit=1)
    with pytest.raises(TaskQueueUnavailable, match="not read to the end yet"):
        await Enqueuer(ledger).create_goal(GOAL)


async def test_8_24_8_25_workers_are_told_while_they_live(api: Api) -> None:
    worker = {
        "worker_id": "w1",
        "token": "t",
        "host": "hostB",
        "capacity": 4,
        "active_sessions": ["sess-9"],
        "queue_backend": "kafka",
        "partitions": [0],
        "draining": False,
        "started_at_ms": NOW_MS - 1_000_000,
        "last_heartbeat_ms": NOW_MS - WORKER_TTL_MS,
    }
    stale = {**worker, "worker_id": "w2", "last_heartbeat_ms": NOW_MS - WORKER_TTL_MS - 1}
    newest = {**worker, "capacity": 8}
    for each in (stale, worker, newest):
        await write(api, "fleet_worker", "fleet.workers", each["worker_id"], each)
    await eventually(
        lambda: (api.view.get("fleet_worker", "w1") or {}).get("capacity") == 8, "w1 is known"
    )
    (found,) = await api.ledger.workers()
    assert (found.worker_id, found.capacity, found.active_sessions) == ("w1", 8, ("sess-9",))


async def test_the_view_passes_what_is_no_record(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    await api.enqueuer.create_goal(GOAL)
    await api.publisher.append(
        "agent.jobs", kind="agent_goal", value=b"odd", key=b"goal:odd", partition=0
    )
    await eventually(lambda: "turn_record_unreadable" in caplog.text, "it was noticed")
    assert len(await api.ledger.records(kind="goal_loop", limit=10)) == 1


@pytest.mark.parametrize(
    ("status", "idle_ms", "is_written"),
    [
        ("completed", 302_400_001, True),
        ("completed", 302_400_000, False),
        ("running", 10**9, False),
    ],
)
async def test_a_session_that_may_be_forgotten_any_moment_is_written_anew(
    api: Api, status: str, idle_ms: int, *, is_written: bool
) -> None:
    key = session_record_key("s1")
    old = {**new_session("s1", now_ms=NOW_MS - idle_ms), "status": status}
    await write(api, "agent_session", "agent.sessions", key, old)
    await eventually(lambda: api.view.get("agent_session", key) is not None, "it is known")
    await api.enqueuer.create_goal({**GOAL, "session_id": "s1"})

    found = api.view.get("agent_session", key)
    assert found is not None
    expected = ("queued", NOW_MS) if is_written else (status, NOW_MS - idle_ms)
    assert (found["status"], found["updated_at_ms"]) == expected
    assert found["metadata_json"] == old["metadata_json"]


async def test_old_goals_are_found_and_listed_page_by_page(settings: Settings) -> None:
    jobs = [new_job(f"j{n:04}", "s1", "d", now_ms=NOW_MS + n) for n in range(3_000)]
    producer = make_producer(settings)
    at = partition_of_session("s1", PARTITIONS)
    for job in jobs:
        value, key = CODEC.encode("agent_job", job), job_key(job["job_id"]).encode()
        producer.produce("agent.jobs", value, key, at, headers={"kind": b"agent_job"})
    assert producer.flush(30) == 0
    async with process(settings) as api:
        found = await api.ledger.record("j0000", "orchestrator_task")
        assert found is not None
        assert await api.ledger.record("j3000", "orchestrator_task") is None
        listed = [
            each.record_id
            for offset in range(0, 4_000, 1_000)
            for each in await api.ledger.records(
                kind="orchestrator_task", limit=1_000, offset=offset
            )
        ]
    assert listed == [job["job_id"] for job in reversed(jobs)]


async def test_what_does_not_fit_is_told_until_it_does(settings: Settings) -> None:
    async with process(settings, bytes_max=120_000) as api:
        made = await api.enqueuer.create_goal({**GOAL, "objective": "o" * 1_500})
        for _ in range(2):
            with suppress(TaskQueueUnavailable):
                await api.enqueuer.create_goal({**GOAL, "objective": "o" * 60_000})
        await eventually(lambda: api.view.trouble is not None, "it does not fit")
        with pytest.raises(TaskQueueUnavailable, match="at most 120000 bytes") as caught:
            await api.ledger.record(made["goal_id"], "goal_loop")
        assert caught.value.retryable
        assert "AGENT_JOB_RETENTION" in (caught.value.remedy or "")

        await forget_all_but(settings, made["goal_id"])
        await eventually(lambda: not api.view.unread, "all fits")
        goals = await api.ledger.records(kind="goal_loop", limit=10)
        assert [each.record_id for each in goals] == [made["goal_id"]]


async def forget_all_but(settings: Settings, goal_id: str) -> None:
    """Write what owners write when goals and sessions are to be forgotten."""
    producer = make_producer(settings)
    for topic in ("agent.jobs", "agent.sessions"):
        with TopicReader(settings, topic) as reader:
            reader.start_at(dict.fromkeys(range(PARTITIONS), 0))
            while not reader.at_end:
                for record in reader.read(1):
                    if record.key not in (None, goal_key(goal_id).encode()):
                        producer.produce(topic, None, record.key, record.partition)
    assert producer.flush(30) == 0


async def test_who_places_sessions_by_another_number_of_partitions_writes_nothing(
    settings: Settings,
) -> None:
    other = replace(settings, agent_turns_partitions=PARTITIONS + 1)
    async with process(other) as api:
        with pytest.raises(TaskQueueUnavailable) as caught:
            await api.enqueuer.create_goal(GOAL)
    assert not caught.value.retryable
    assert f"has {PARTITIONS} partitions, expected {PARTITIONS + 1}" in str(caught.value)


async def test_a_record_counts_where_its_session_lives_alone(settings: Settings) -> None:
    async with process(settings) as api:
        created = await api.enqueuer.create_goal(GOAL)
        session_id, key = created["session_id"], goal_key(created["goal_id"])
        goal = api.view.get("agent_goal", key)
        assert goal is not None
    elsewhere = (partition_of_session(session_id, PARTITIONS) + 1) % PARTITIONS
    producer = make_producer(settings)
    for value in (CODEC.encode("agent_goal", {**goal, "status": "failed"}), None):
        headers: dict[str, str | bytes | None] = {"kind": b"agent_goal"}
        producer.produce("agent.jobs", value, key.encode(), elsewhere, headers=headers)
    assert producer.flush(30) == 0

    async with process(settings) as again:
        assert again.view.get("agent_goal", key) == goal
