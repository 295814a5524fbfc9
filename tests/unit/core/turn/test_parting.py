"""What an owner forgets, what it keeps, and what the API wrote at the same moment."""

from __future__ import annotations

from typing import Any

from streams.core.record import Position
from streams.core.turn import words
from streams.core.turn.gathering import Gathering
from streams.core.turn.memory import Memory
from streams.core.turn.parting import Due, Parting
from streams.core.turn.record import (
    desired_key,
    job_key,
    new_job,
    session_record_key,
)
from streams.core.turn.session import asked, new_session
from tests.unit.core.turn.test_owner import at, turn

HERE = Position(words.TURNS, 2, 7)
JOB, SESSION, WISH = job_key("j1"), session_record_key("s1"), desired_key("s1")


def due(key: str = JOB, changed_at_ms: int = 10, kind: str = "agent_job") -> Due:
    return Due(kind, key, "s1", changed_at_ms)


class Rig:
    """An owner's memory, and what it writes."""

    def __init__(self) -> None:
        self.memory = Memory(0)
        self.gathering = Gathering(2)
        self.parting = Parting(2, self.gathering, self.memory)

    def forget(self, *found: Due, before_ms: int = 100) -> int:
        self.parting.listen()
        return self.parting.forget(found, HERE, before_ms=before_ms, retention_ms=900)

    def written(self) -> list[tuple[str, str, Any]]:
        outputs = [output for output, _ in self.gathering.batch(0, "").outputs]
        return [(each.topic, each.key, each.value) for each in outputs]


def test_a_word_without_a_value_says_how_long_the_record_was_kept() -> None:
    rig = Rig()
    assert rig.forget(due()) == 1
    ((output, cause),) = rig.gathering.batch(0, "").outputs
    assert (output.topic, output.kind, output.key, output.value) == (
        words.JOBS,
        "agent_job",
        JOB,
        None,
    )
    assert (output.partition, cause) == (2, HERE)
    assert output.headers == (("changed_at_ms", "10"), ("retention_ms", "900"))


def test_sessions_and_wishes_are_forgotten_where_they_are() -> None:
    rig = Rig()
    rig.forget(due(SESSION, kind="agent_session"), due(WISH, kind="agent_session_desired"))
    assert rig.written() == [(words.SESSIONS, SESSION, None), (words.SESSIONS, WISH, None)]


def test_what_is_as_old_as_it_must_be_goes_and_what_is_younger_stays() -> None:
    rig = Rig()
    assert rig.forget(due(changed_at_ms=100), due(job_key("j2"), 101)) == 1
    assert rig.written() == [(words.JOBS, JOB, None)]


def test_what_an_open_turn_needs_or_is_open_itself_stays() -> None:
    rig = Rig()
    rig.memory.pin(turn("j1"))
    rig.memory.fold("agent_job", job_key("j2"), new_job("j2", "s2", "", now_ms=1))
    kept = (
        due(),
        due(SESSION, kind="agent_session"),
        due(WISH, kind="agent_session_desired"),
        due(job_key("j2")),
    )
    assert rig.forget(*kept) == 0

    rig.memory.unpin(turn("j1"))
    assert rig.forget(*kept) == 3


def test_what_memory_knows_to_be_younger_stays() -> None:
    rig = Rig()
    rig.memory.fold("agent_session", SESSION, new_session("s1", now_ms=101))
    rig.memory.fold("agent_session_desired", WISH, asked("s1", None, now_ms=101))
    found = (due(SESSION, kind="agent_session"), due(WISH, kind="agent_session_desired"))
    assert rig.forget(*found) == 0
    assert rig.forget(*found, before_ms=101) == 2
    assert rig.memory.session("s1") is None


def test_a_session_of_which_something_was_learned_since_stays() -> None:
    rig = Rig()
    rig.parting.listen()
    rig.parting.learn("agent_job", job_key("new"), new_job("new", "s1", "", now_ms=1), HERE)
    found = [due(SESSION, kind="agent_session"), due(WISH, kind="agent_session_desired")]
    assert rig.parting.forget(found, HERE, before_ms=100, retention_ms=900) == 0

    assert rig.forget(*found) == 2, "the next look finds whether it has a task"


def test_what_the_api_wrote_before_the_word_that_forgets_is_written_once_more() -> None:
    rig = Rig()
    rig.forget(due(SESSION, kind="agent_session"), due(WISH, kind="agent_session_desired"))
    rig.written()
    killed = asked("s1", None, kill=True, now_ms=99)
    rig.parting.learn("agent_session_desired", WISH, killed, HERE)
    rig.parting.learn("agent_session_desired", WISH, killed, HERE)

    assert rig.written() == [(words.SESSIONS, WISH, killed)], "once: it stands behind that word"
    assert rig.memory.desired("s1") == killed


def test_what_comes_after_the_word_was_seen_stands_behind_it_by_itself() -> None:
    rig = Rig()
    rig.forget(due(SESSION, kind="agent_session"))
    rig.written()
    rig.parting.seen(SESSION)
    assert rig.parting.unseen == 0
    rig.parting.learn("agent_session", SESSION, new_session("s1", now_ms=200), HERE)

    assert rig.written() == []


def test_a_turn_of_what_was_forgotten_does_not_run() -> None:
    rig = Rig()
    rig.memory.ended(JOB, "completed")
    assert rig.memory.claimable(turn("j1")) is not None
    rig.forget(due())
    assert rig.memory.claimable(turn("j1")) is None
    assert at(7) == HERE
