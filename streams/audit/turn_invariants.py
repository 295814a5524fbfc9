"""Invariants of agent turns, judged on the log alone: nothing of what ran them is asked.

    group's offset → words → turns, dead letters, goals and tasks, sessions → words again

Ends are fixed in this order: each turn below the group's offset has its end before that of the
words, and all that a word says of a turn or record is there when these are read.  What is said of a
record or session meanwhile is in the second end of the words: how that one stands is then not
judged.

Words are read with the turns that they are about, so of a partition only the turns that are not
over are held, 17 bytes of each record that is no turn, and what `Keyed` keeps.

Source: DESIGN "Proof", "A turn"; decision A2.
"""

from __future__ import annotations

import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from streams.audit.keyed import hash_of
from streams.audit.log import Cursor, LogReader, LogRecord, Place, Span
from streams.audit.turn_forgetting import wrongly_forgotten
from streams.audit.turn_history import KINDS, TurnHistory
from streams.audit.turn_records import TurnRecords
from streams.audit.turn_sessions import TurnSessions
from streams.codec import Codec, DecodeError
from streams.core.record import Position
from streams.core.turn.envelope import EnvelopeError
from streams.core.turn.record import goal_key, job_key, session_record_key
from streams.core.turn.words import CLAIMS, DEAD_LETTERS, JOBS, SESSIONS, TURNS
from streams.edge.turns.turn_codec import decode_turn, is_owners
from streams.errors import TopologyError
from topology.edges import TURN_WORKER

__all__ = ["SHOWN_MAX", "TurnVerdict", "TurnViolation", "judge_turns"]

SHOWN_MAX = 1_000
"""Violations of one partition that are told one by one; all are counted."""

_BESIDE = (DEAD_LETTERS, JOBS, SESSIONS)
_SESSION_PREFIX = session_record_key("")
_HASH_BYTES = 8
_SKEW_MS = 3_600_000
"""Producers and workers put their own clocks' times; so far apart they may be."""


class TurnViolation(NamedTuple):
    """A record that breaks a rule, or a turn that is nowhere."""

    position: Position
    what: str


@dataclass(slots=True)
class TurnVerdict:
    """What was found of one partition.

    `turns` were begun or passed, `words` are of `agent.turns.claims`; `committed` is the group's
    offset, None when it has none.
    """

    partition: int
    turns: int = 0
    words: int = 0
    dead_letters: int = 0
    committed: int | None = None
    violations: list[TurnViolation] = field(default_factory=list[TurnViolation])
    violations_count: int = 0
    notes: list[str] = field(default_factory=list[str])

    def found(self, position: Position, what: str) -> None:
        """Note what is wrong."""
        self.violations_count += 1
        if len(self.violations) < SHOWN_MAX:
            self.violations.append(TurnViolation(position, what))


class _Ends(NamedTuple):
    """What each log of a partition holds; `later` is the end of the words, fixed last."""

    words: Span
    turns: Span
    letters: Span
    records: Span
    sessions: Span
    later: int


def judge_turns(reader: LogReader, codec: Codec) -> list[TurnVerdict]:
    """Judge the turns of every partition; none when there is no such topic.

    Raises: TopologyError when a topic beside it is missing, or has other partitions; BrokerError.
    """
    partitions = range(reader.partitions(TURNS))
    if not partitions:
        return []
    counts = {topic: reader.partitions(topic) for topic in (CLAIMS, *_BESIDE)}
    wrong = [
        f"topic {topic} has {count} partitions, expected {len(partitions)} as {TURNS} has"
        for topic, count in counts.items()
        if count != len(partitions)
    ]
    if wrong:
        raise TopologyError(wrong, remedy="run `harn topology plan` to see what is missing")
    committed = reader.committed(TURN_WORKER.group, TURNS, partitions)
    ends = _ends(reader, partitions)
    verdicts: list[TurnVerdict] = []
    with tempfile.TemporaryDirectory(prefix="harn-audit-") as folder:
        for number in partitions:
            verdict = TurnVerdict(number, committed=committed.get(number))
            _Partition(reader, codec, ends[number], verdict).judge(Path(folder))
            verdicts.append(verdict)
    return verdicts


def _ends(reader: LogReader, partitions: range) -> dict[int, _Ends]:
    words = reader.spans([(CLAIMS, number) for number in partitions])
    others = reader.spans([(topic, number) for topic in (TURNS, *_BESIDE) for number in partitions])
    later = reader.spans([(CLAIMS, number) for number in partitions])
    return {
        number: _Ends(
            words[CLAIMS, number],
            others[TURNS, number],
            others[DEAD_LETTERS, number],
            others[JOBS, number],
            others[SESSIONS, number],
            later[CLAIMS, number].end,
        )
        for number in partitions
    }


class _Partition:
    """One partition while it is judged."""

    def __init__(self, reader: LogReader, codec: Codec, ends: _Ends, verdict: TurnVerdict) -> None:
        self._reader = reader
        self._codec = codec
        self._ends = ends
        self._verdict = verdict
        number = verdict.partition
        self._turns, self._words = (TURNS, number), (CLAIMS, number)
        self._letters, self._records = (DEAD_LETTERS, number), (JOBS, number)
        self._sessions = (SESSIONS, number)
        self._first_turn = self._judged_from()
        self._next_turn = self._first_turn
        self._cursor = Cursor(reader.read(self._turns, self._first_turn, ends.turns.end))
        self._history = TurnHistory(self._first_turn)
        self._poison = array("q")
        self._hashes = array("Q")  # the beginning of each one's SHA-256

    def judge(self, folder: Path) -> None:
        """Judge words and turns, then dead letters, then goals, tasks and sessions."""
        whole = self._ends.words.start == 0
        with (
            TurnRecords(folder, self._words, self._records, whole=whole) as records,
            TurnSessions(folder, self._words, self._sessions) as sessions,
        ):
            for record in _each(self._reader, self._words, self._ends.words):
                self._judge_word(record, records, sessions)
            self._judge_ends()
            for record in _each(self._reader, self._records, self._ends.records):
                self._note_record(record, records)
            for record in _each(self._reader, self._sessions, self._ends.sessions):
                self._note_session(record, sessions)
            for record in _each(
                self._reader, self._words, Span(self._ends.words.end, self._ends.later)
            ):
                self._note_later(record, records, sessions)
            for position, what in records.judge():
                self._verdict.found(position, what)
            for position, what in sessions.judge(self._waiting()):
                self._verdict.found(position, what)
            if records.given_up:
                self._verdict.notes.append(
                    f"{records.given_up:,} goals or tasks stand as the API left them when their "
                    "turns got no ack, though these had been enqueued and were begun"
                )

    def _waiting(self) -> Callable[[int], bool]:
        """Return what tells whether a session, by its hash, may have a turn that is not over."""
        if self._next_turn < self._ends.turns.end:
            return lambda _key: True  # what was enqueued since is not read
        known = {hash_of(session_id) for session_id in self._history.sessions()}
        return known.__contains__

    def _judged_from(self) -> int:
        """Return the first turn of which all words are there, and note what is not judged."""
        words, turns = self._ends.words, self._ends.turns
        if words.start == 0:
            return turns.start
        first = next(_each(self._reader, self._words, words), None)
        since_ms = None if first is None else first.timestamp + _SKEW_MS
        from_turn = (
            turns.end
            if since_ms is None
            else max(turns.start, self._reader.offset_at(self._turns, since_ms))
        )
        self._verdict.notes.append(
            f"what was said before offset {words.start} of {CLAIMS} was removed: turns before "
            f"offset {from_turn} are not judged"
        )
        return from_turn

    def _read_turns(self, until: int) -> None:
        """Read turns up to offset `until`."""
        for record in self._cursor.take_until(until):
            self._verdict.turns += 1
            at = Position(*self._turns, record.offset)
            try:
                envelope = decode_turn(self._codec, record.value, at, record.timestamp)
            except EnvelopeError:
                self._poison.append(record.offset)
                digest = sha256(record.value or b"").digest()
                self._hashes.append(int.from_bytes(digest[:_HASH_BYTES]))
            else:
                self._history.enqueued(record.offset, envelope)
        self._next_turn = max(self._next_turn, until)

    def _said(self, record: LogRecord) -> tuple[str, dict[str, Any]] | None:
        """Return a word, or None and what is wrong with it, or for one of a later release."""
        kind = _kind_of(record)
        if kind not in KINDS:
            return None
        try:
            schema, value = self._codec.decode(record.value or b"")
        except DecodeError as error:
            schema, value = str(error), {}
        if schema == kind:
            return kind, value
        self._verdict.found(
            Position(*self._words, record.offset), f"it is {schema}, expected a {kind}"
        )
        return None

    def _judge_word(self, record: LogRecord, records: TurnRecords, sessions: TurnSessions) -> None:
        self._verdict.words += 1
        said = self._said(record)
        if said is None:
            return
        kind, value = said
        offset: int = value["turn_offset"]
        if offset < self._ends.turns.end:
            self._read_turns(offset + 1)
        key = self._key_of(value)
        if self._history.fits(value):
            if offset < self._first_turn or self._history.turn(offset) is not None:
                sessions.word(record.offset, kind, value, is_held=self._history.holds(value))
            if key is not None:
                records.word(key, record.offset, kind, value)
        position = Position(*self._words, record.offset)
        for what in self._history.add(kind, value):
            self._verdict.found(position, f"{kind} of job {value['job_id']}: {what}")

    def _key_of(self, value: Mapping[str, Any]) -> str | None:
        """Return the key of the goal or task that a word is about; None when it is not known."""
        told: Mapping[str, Any] = value
        if "payload_ref" not in value:  # a release, of a turn that is known by its claim
            envelope = self._history.turn(value["turn_offset"])
            if envelope is None:
                return None
            told = {"kind": envelope.kind, "payload_ref": envelope.payload_ref}
        key_of = goal_key if told["kind"] == "goal_loop" else job_key
        return key_of(told["payload_ref"])

    def _judge_ends(self) -> None:
        """Judge that what lies below the group's offset is over, or a dead letter."""
        committed = self._verdict.committed
        if committed is None:
            if self._ends.turns.end > self._ends.turns.start:
                self._verdict.notes.append(f"group {TURN_WORKER.group} has no offset here")
            committed = self._first_turn
        self._read_turns(committed)
        if committed > self._ends.turns.end:
            what = f"the group's offset is {committed}, expected at most {self._ends.turns.end}"
            self._verdict.found(Position(*self._turns, self._ends.turns.end), what)
        missing = [
            (offset, f"it is below the group's offset, {committed}, and has no end")
            for offset in self._history.unfinished()
            if offset < committed
        ]
        kept = self._judge_letters()
        for offset, letter in zip(self._poison, kept, strict=True):
            if not letter and offset < committed:
                what = f"it is no turn, below the group's offset, {committed}, and no dead letter"
                missing.append((offset, what))
        for offset, what in sorted(missing):
            self._verdict.found(Position(*self._turns, offset), what)

    def _judge_letters(self) -> bytearray:
        """Judge the dead letters; return for each record that is no turn whether it is one."""
        kept = bytearray(len(self._poison))
        for record in _each(self._reader, self._letters, self._ends.letters):
            self._verdict.dead_letters += 1
            for what in self._judge_letter(record, kept):
                self._verdict.found(Position(*self._letters, record.offset), what)
        return kept

    def _judge_letter(self, record: LogRecord, kept: bytearray) -> Iterator[str]:
        try:
            schema, value = self._codec.decode(record.value or b"")
        except DecodeError as error:
            schema, value = str(error), {}
        if schema != "turn_dead_lettered":
            if _kind_of(record) == "turn_dead_lettered":
                yield f"it is {schema}, expected a turn_dead_lettered"
            return
        offset: int = value["offset"]
        if (number := value["partition"]) != self._verdict.partition:
            yield f"it is of partition {number}, expected {self._verdict.partition}"
        elif self._first_turn <= offset < self._ends.turns.end:
            if offset >= self._next_turn:
                self._read_turns(offset + 1)
                kept.extend(bytes(len(self._poison) - len(kept)))
            at = bisect_left(self._poison, offset)
            if at == len(self._poison) or self._poison[at] != offset:
                yield f"the record at offset {offset} of {TURNS} is a turn, or none is there"
            elif value["raw_sha256"][: 2 * _HASH_BYTES] != f"{self._hashes[at]:016x}":
                yield f"its raw_sha256 is not that of the record at offset {offset} of {TURNS}"
            else:
                kept[at] = True

    def _note_later(self, record: LogRecord, records: TurnRecords, sessions: TurnSessions) -> None:
        """Note what moves on while it is judged."""
        if (said := self._said(record)) is None:
            return
        sessions.moves(said[1]["session_id"])
        if (key := self._key_of(said[1])) is not None:
            records.moves(key)

    def _note_record(self, record: LogRecord, records: TurnRecords) -> None:
        if record.key is None:
            return
        key = record.key.decode(errors="replace")
        if record.value is None:
            self._judge_forgetting(self._records, record)
            records.record(key, record.offset, None)
        elif (kind := _kind_of(record)) in {"agent_goal", "agent_job"}:
            value = self._decoded(self._records, record, kind)
            if value is not None:
                records.record(key, record.offset, value, by_owner=is_owners(record.headers))

    def _note_session(self, record: LogRecord, sessions: TurnSessions) -> None:
        if record.value is None:
            self._judge_forgetting(self._sessions, record)
        key = (record.key or b"").decode(errors="replace")
        if not key.startswith(_SESSION_PREFIX):
            return
        session_id = key.removeprefix(_SESSION_PREFIX)
        if record.value is None:
            sessions.session(session_id, record.offset, None)
        elif (value := self._decoded(self._sessions, record, "agent_session")) is not None:
            by_owner = is_owners(record.headers)
            sessions.session(session_id, record.offset, value["status"], by_owner=by_owner)

    def _judge_forgetting(self, place: Place, record: LogRecord) -> None:
        if (what := wrongly_forgotten(record)) is not None:
            self._verdict.found(Position(*place, record.offset), what)

    def _decoded(self, place: Place, record: LogRecord, kind: str) -> dict[str, Any] | None:
        """Return what a record of a kind says; None, and that it is told, when it is none."""
        try:
            schema, value = self._codec.decode(record.value or b"")
        except DecodeError as error:
            schema, value = str(error), {}
        if schema == kind:
            return value
        what = f"it is {schema}, expected a {kind}"
        self._verdict.found(Position(*place, record.offset), what)
        return None


def _each(reader: LogReader, place: Place, span: Span) -> Iterator[LogRecord]:
    for records in reader.read(place, *span):
        yield from records


def _kind_of(record: LogRecord) -> str:
    texts = (text for name, text in record.headers if name == "kind" and text is not None)
    return next((text.decode(errors="replace") for text in texts), "")
