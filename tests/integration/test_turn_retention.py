"""What has ended is forgotten on a real broker, runs never again, and costs no takeover."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest

from streams.audit.kafka_log import KafkaLog
from streams.audit.turn_invariants import judge_turns
from streams.core.turn.partition_key import partition_of_session
from streams.core.turn.record import desired_key, job_key, new_job, session_record_key
from streams.core.turn.session import asked, new_session
from streams.core.turn.words import JOBS, SESSIONS
from streams.edge.topic_reader import TopicReader
from streams.edge.turns.body import Claimed, Desired, Ending
from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.broker import Kafka
from tests.support.eventually import eventually
from tests.support.kafka_turns import (
    CODEC,
    Api,
    enqueuer,
    now_ms,
    provision_turns,
    turn_settings,
    until,
    worker,
)

pytestmark = [pytest.mark.broker]

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def settings(kafka: Kafka) -> Settings:
    provision_turns(kafka.settings)
    return turn_settings(kafka.settings, turn_handover_s=120, drain_ms=5_000)


@pytest.fixture
def run() -> str:
    """Begins the names of one test: tests share topics and group."""
    return uuid.uuid4().hex[:8]


def standing(settings: Settings, topic: str, run: str) -> dict[str, dict[str, str] | None]:
    """Of each key of a test None, or the headers of the word that forgets it."""
    found: dict[str, dict[str, str] | None] = {}
    with TopicReader(settings, topic) as reader:
        reader.start_at(dict.fromkeys(range(reader.partitions), 0))
        while not reader.at_end:
            for each in reader.read(1):
                key = (each.key or b"").decode()
                if run in key:
                    headers = {name: text.decode() for name, text in each.headers}
                    found[key] = headers if each.value is None else None
    return found


async def forgotten(settings: Settings, run: str, keys: dict[str, list[str]]) -> None:
    def holds() -> bool:
        return all(
            standing(settings, topic, run).get(key) is not None
            for topic, names in keys.items()
            for key in names
        )

    await eventually(holds, "it is forgotten")


def appender(settings: Settings, at_ms: int) -> Callable[[str, str, str, object, str], None]:
    """What an API wrote at another time."""
    producer = make_producer(settings)

    def append(topic: str, kind: str, key: str, value: object, session_id: str) -> None:
        partition = partition_of_session(session_id, settings.agent_turns_partitions)
        encoded, headers = CODEC.encode(kind, value), {"kind": kind.encode()}  # type: ignore[arg-type]
        producer.produce(
            topic, encoded, key.encode(), partition, timestamp=at_ms, headers=dict(headers)
        )
        assert producer.flush(30) == 0

    return append


async def test_what_has_ended_is_forgotten_and_a_late_turn_of_it_does_not_run(
    settings: Settings, run: str
) -> None:
    forgetting = replace(settings, agent_job_retention="2s")
    api = Api(settings)
    ended, paused = f"{run}-ended", f"{run}-open"
    for each in (ended, paused):
        api.session(each)
    api.enqueue(f"{ended}-j", ended)
    api.task(f"{paused}-j", paused)  # its turn does not come
    api.flush()
    async with worker(forgetting) as served:
        await until(lambda: served.ran.outcomes == ["completed"], served)
        keys = {JOBS: [job_key(f"{ended}-j")], SESSIONS: [session_record_key(ended)]}
        await forgotten(settings, run, keys)
        api.turn(f"{run}-again", ended, payload_ref=f"{ended}-j")
        api.flush()
        await until(lambda: len(served.ran.outcomes) >= 2, served)
        assert served.ran.outcomes == ["completed", "skipped"]

    assert served.ran.started == [f"{ended}-j"]
    jobs, sessions = standing(settings, JOBS, run), standing(settings, SESSIONS, run)
    assert jobs[job_key(f"{paused}-j")] is None, "what has not ended stays"
    assert sessions[session_record_key(paused)] is None
    told = jobs[job_key(f"{ended}-j")]
    assert told is not None
    assert (told["kind"], told["retention_ms"]) == ("agent_job", "2000")
    assert told["cause"].startswith("agent_turns/")
    with KafkaLog(settings) as log:
        assert [each.violations for each in judge_turns(log, CODEC)] == [[]] * 4


async def test_who_takes_over_forgets_what_ended_before_and_finds_what_is_old(
    settings: Settings, run: str
) -> None:
    long_ago_ms = now_ms() - HOUR_MS
    api, old = Api(settings), appender(settings, long_ago_ms)
    silent, gone = f"{run}-silent", f"{run}-gone"
    # So that there is a bookmark, and what is old is not loaded.
    first = {f"{run}-{number}": f"{run}-{number}-j" for number in range(24)}
    for session, job in first.items():
        api.session(session)
        api.enqueue(job, session)
    api.flush()
    async with worker(settings) as served:
        await until(lambda: len(served.ran.outcomes) >= len(first), served)

    old(SESSIONS, "agent_session", session_record_key(gone), new_session(gone, now_ms=1), gone)
    done = {**new_job(f"{gone}-j", gone, "", now_ms=long_ago_ms), "status": "completed"}
    old(JOBS, "agent_job", job_key(f"{gone}-j"), done, gone)
    session = new_session(silent, now_ms=long_ago_ms)
    old(SESSIONS, "agent_session", session_record_key(silent), session, silent)
    wish = asked(silent, None, pause=True, now_ms=long_ago_ms)
    old(SESSIONS, "agent_session_desired", desired_key(silent), wish, silent)
    job = new_job(f"{silent}-j", silent, "", now_ms=long_ago_ms)
    old(JOBS, "agent_job", job_key(f"{silent}-j"), job, silent)

    wanted: list[Desired] = []

    async def body(claimed: Claimed) -> Ending:
        wanted.append(await claimed.desired())
        return Ending("completed", result="done")

    async with worker(replace(settings, agent_job_retention="30m"), body) as served:
        api.turn(f"{silent}-j", silent)
        api.turn(f"{gone}-j", gone)
        api.flush()
        await until(lambda: len(served.ran.outcomes) >= 2, served)
        assert sorted(served.ran.outcomes) == ["completed", "skipped"]
        assert [each.pause_requested for each in wanted] == [True]
    async with worker(replace(settings, agent_job_retention="3s")) as served:
        keys = {
            JOBS: [job_key(each) for each in (*first.values(), f"{gone}-j", f"{silent}-j")],
            SESSIONS: [session_record_key(each) for each in (*first, gone, silent)],
        }
        keys[SESSIONS].append(desired_key(silent))
        await forgotten(settings, run, keys)
    with KafkaLog(settings) as log:
        assert [each.violations for each in judge_turns(log, CODEC)] == [[]] * 4


async def test_a_session_of_an_id_that_was_forgotten_is_a_new_one(
    settings: Settings, run: str
) -> None:
    api = Api(settings)
    session = f"{run}-s"
    api.session(session)
    api.enqueue(f"{session}-j", session)
    api.flush()
    async with worker(replace(settings, agent_job_retention="2s")) as served:
        await until(lambda: served.ran.outcomes == ["completed"], served)
        await forgotten(settings, run, {SESSIONS: [session_record_key(session)]})
    async with worker(settings) as served, enqueuer(settings) as seam:
        created = await seam.dispatch({"description": "again", "session_id": session})
        await until(lambda: served.ran.outcomes == ["completed"], served)
    assert standing(settings, SESSIONS, run)[session_record_key(session)] is None
    assert standing(settings, JOBS, "")[job_key(created["job_id"])] is None
