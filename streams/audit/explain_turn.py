"""What happened to one turn, by its job: enqueueing, claims, its end, and what it waited for.

    turn ── words about it, records of its goal or task, its dead letter
         ── words about turns of its session before it: what it had to wait for

A job's words have its id as their key.  The turn itself is found by them, or by its id in the
topic, so one that nobody has begun is found as well; a job that was enqueued twice has two turns.

Source: DESIGN "Proof" (`harn audit explain`); SEMANTICS 8.5, 8.9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streams.audit.happening import Happening, happenings
from streams.audit.log import LogReader, LogRecord, Place
from streams.codec import Codec
from streams.core.record import Position
from streams.core.turn.envelope import AgentTurnEnvelope, EnvelopeError
from streams.core.turn.record import desired_key, goal_key, job_key
from streams.core.turn.words import CLAIMS, DEAD_LETTERS, TURNS
from streams.edge.turns.turn_codec import decode_turn

__all__ = ["FORGOTTEN", "READS", "TurnStory", "explain_turn"]

_RECORDS, _SESSIONS = "agent.jobs", "agent.sessions"

FORGOTTEN = "record_forgotten"
"""Stands for the kind of a word without a value: the goal, task or wish is not there any more."""

READS = (TURNS, CLAIMS, DEAD_LETTERS, _RECORDS, _SESSIONS)
"""What a story is told from."""


@dataclass(slots=True)
class TurnStory:
    """One turn; its happenings are in the order of their times.

    `envelope` is None for what is no turn, and where only words are left.  `ahead` is the job of
    the turn of its session that ended last before it was claimed, while it waited, and when.
    """

    job_id: str
    position: Position
    enqueued_ms: int | None = None
    envelope: AgentTurnEnvelope | None = None
    happenings: list[Happening] = field(default_factory=list[Happening])
    ahead: tuple[str, int] | None = None

    @property
    def outcome(self) -> str:
        """How it ended; `running` while it is claimed, else `waiting`, or `dead-lettered`."""
        for each in reversed(self.happenings):
            match each.kind:
                case "turn_finished":
                    return str(each.value["outcome"])
                case "turn_claimed":
                    return "running"
                case "turn_claim_released":
                    return "waiting"
                case "turn_dead_lettered":
                    return "dead-lettered"
                case _:
                    pass
        return "waiting"

    @property
    def waited_ms(self) -> int | None:
        """From its enqueueing to its first claim or its end; None where either is not known."""
        return self._between(self.enqueued_ms, self._first("turn_claimed", "turn_finished"))

    @property
    def behind_ms(self) -> int:
        """How much of that the session had an earlier turn that was not over."""
        return 0 if self.ahead is None else self._between(self.enqueued_ms, self.ahead[1]) or 0

    @property
    def ran_ms(self) -> int | None:
        """From its first claim to its end; None unless it has both."""
        return self._between(self._first("turn_claimed"), self._first("turn_finished"))

    def _first(self, *kinds: str) -> int | None:
        return next((each.at_ms for each in self.happenings if each.kind in kinds), None)

    @staticmethod
    def _between(begin_ms: int | None, end_ms: int | None) -> int | None:
        # Two clocks: what seems to end before it begins took no time.
        return None if begin_ms is None or end_ms is None else max(0, end_ms - begin_ms)


def explain_turn(reader: LogReader, codec: Codec, job_id: str) -> list[TurnStory]:
    """Collect what the log holds about a job's turns, in the order of the log; none of its id.

    Raises: BrokerError.
    Cost:   turns, words and dead letters of all partitions are read, and the records of those that
            have a turn of it.
    """
    key = job_id.encode()
    stories: dict[Position, TurnStory] = {}
    words = happenings(reader, codec, _places(reader, CLAIMS), lambda record: record.key == key)
    for word in words:
        at = Position(TURNS, word.position.partition, word.value["turn_offset"])
        stories.setdefault(at, TurnStory(job_id, at)).happenings.append(word)
    for place in _places(reader, TURNS):
        for record in _records(reader, place):
            at = Position(*place, record.offset)
            if at in stories or key in (record.value or b""):
                _enter(stories, codec, record, at, job_id)
    for letter in happenings(
        reader, codec, _places(reader, DEAD_LETTERS), lambda record: key in (record.value or b"")
    ):
        if letter.value.get("job_id") == job_id:
            at = Position(TURNS, letter.position.partition, letter.value["offset"])
            stories.setdefault(at, TurnStory(job_id, at)).happenings.append(letter)
    for story in stories.values():
        if story.envelope is not None:
            story.happenings += _records_of(reader, codec, story, story.envelope)
            story.ahead = _ahead(reader, codec, story, story.envelope)
        story.happenings.sort(key=lambda each: each.at_ms)
    return [stories[at] for at in sorted(stories, key=lambda at: (at.partition, at.offset))]


def _enter(
    stories: dict[Position, TurnStory],
    codec: Codec,
    record: LogRecord,
    at: Position,
    job_id: str,
) -> None:
    """Enter a record of the turns, if it is of this job."""
    try:
        envelope = decode_turn(codec, record.value, at, record.timestamp)
        of_job: str | None = envelope.job_id
    except EnvelopeError as error:
        envelope, of_job = None, error.job_id
    if of_job == job_id:
        story = stories.setdefault(at, TurnStory(job_id, at))
        story.envelope, story.enqueued_ms = envelope, record.timestamp


def _records_of(
    reader: LogReader, codec: Codec, story: TurnStory, envelope: AgentTurnEnvelope
) -> Iterator[Happening]:
    """Yield what is left of the history of its goal or task, and what is wanted of its session."""
    partition = story.position.partition
    key_of = goal_key if envelope.kind == "goal_loop" else job_key
    for topic, name in (
        (_RECORDS, key_of(envelope.payload_ref)),
        (_SESSIONS, desired_key(envelope.session_id)),
    ):
        key = name.encode()
        yield from happenings(
            reader, codec, [(topic, partition)], lambda record, key=key: record.key == key
        )
        for record in _records(reader, (topic, partition)):
            if record.key == key and record.value is None:
                position = Position(topic, partition, record.offset)
                yield Happening(record.timestamp, position, FORGOTTEN, {})


def _ahead(
    reader: LogReader, codec: Codec, story: TurnStory, envelope: AgentTurnEnvelope
) -> tuple[str, int] | None:
    """Return the earlier turn of its session that ended last while it waited, and when."""
    begun = next((each for each in story.happenings if each.kind == "turn_claimed"), None)
    session = envelope.session_id.encode()
    found: tuple[str, int] | None = None
    for word in happenings(
        reader,
        codec,
        [(CLAIMS, story.position.partition)],
        lambda record: session in (record.value or b""),
    ):
        if begun is not None and word.position.offset >= begun.position.offset:
            break
        if _ended_ahead(word, story, envelope):
            found = word.value["job_id"], word.at_ms
    return found


def _ended_ahead(word: Happening, story: TurnStory, envelope: AgentTurnEnvelope) -> bool:
    value: Mapping[str, Any] = word.value
    return (
        word.kind == "turn_finished"
        and value["session_id"] == envelope.session_id
        and value["turn_offset"] < story.position.offset
        and word.at_ms >= (story.enqueued_ms or 0)
    )


def _places(reader: LogReader, topic: str) -> list[Place]:
    return [(topic, partition) for partition in range(reader.partitions(topic))]


def _records(reader: LogReader, place: Place) -> Iterator[LogRecord]:
    for records in reader.read(place, *reader.spans([place])[place]):
        yield from records
