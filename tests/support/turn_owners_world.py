"""A partition of turns with its durable log as lists, and workers that own it one after another.

A batch is refused when a newer owner has fenced the one that commits, as a transaction is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streams.audit.memory_log import MemoryLog
from streams.codec import Codec
from streams.core.record import Output, Position
from streams.core.turn import words
from streams.core.turn.bookmark import Bookmark, parse_bookmark
from streams.core.turn.claim import ENDED
from streams.core.turn.envelope import AgentTurnEnvelope, EnvelopeError
from streams.core.turn.gathering import Batch
from streams.core.turn.held import Held, Loaded
from streams.core.turn.memory import Memory
from streams.core.turn.owner import Begun, Owner
from streams.core.turn.parting import Due
from streams.core.turn.record import job_key, session_record_key
from streams.edge.turns.turn_codec import CAUSE, encode_turn

CODEC = Codec()
BEYOND = 3
SESSIONS = "abc"


@dataclass
class World:
    """What is durable; a turn that is None is no turn at all."""

    turns: list[AgentTurnEnvelope | None] = field(default_factory=list[AgentTurnEnvelope | None])
    claims: list[Output] = field(default_factory=list[Output])
    letters: list[Output] = field(default_factory=list[Output])
    records: list[tuple[bool, str, str, Any]] = field(
        default_factory=list[tuple[bool, str, str, Any]]
    )  # whether an owner wrote it
    committed: int = 0
    metadata: str = ""
    owners: int = 0

    def said(self, kind: str) -> list[Mapping[str, Any]]:
        return [each.value for each in self.claims if each.kind == kind and each.value is not None]

    def ended(self) -> list[int]:
        return [each["turn_offset"] for each in self.said("turn_finished")]


def logged(world: World) -> MemoryLog:
    """What is durable, as the auditor reads it."""
    log = MemoryLog()
    for topic in (words.TURNS, words.CLAIMS, words.DEAD_LETTERS, words.JOBS, words.SESSIONS):
        log.create(topic, 1)
    for turn in world.turns:
        log.append((words.TURNS, 0), 0, b"", b"?" if turn is None else encode_turn(CODEC, turn), [])
    said: list[tuple[bool, str, str, str, Any]] = [
        (True, each.topic, each.kind, each.key, each.value)
        for each in (*world.claims, *world.letters)
    ]
    for by_owner, kind, key, value in world.records:
        topic = words.JOBS if kind == "agent_job" else words.SESSIONS
        said.append((by_owner, topic, kind, key, value))
    for by_owner, topic, kind, key, value in said:
        headers = [("kind", kind.encode()), *([(CAUSE, b"")] if by_owner else [])]
        encoded = None if value is None else CODEC.encode(kind, value)
        log.append((topic, 0), 0, key.encode(), encoded, headers)
    log.groups["agent-dispatch", words.TURNS, 0] = world.committed
    return log


def load(world: World, bookmark: Bookmark, *, loaded_from: int = 0) -> Memory:
    """Load claims from the bookmark on, and records from one of them on: others are older."""
    memory = Memory(world.committed, fence=bookmark.fence, since_ms=loaded_from)
    for word in world.claims[bookmark.claims_offset :]:
        memory.fold(word.kind, word.key, word.value)
    for _, kind, key, value in world.records[loaded_from:]:
        memory.fold(kind, key, value)
    return memory


class Worker:
    """An owner with its readers: what it has read, what waits for a commit, what runs."""

    def __init__(self, world: World, *, share: float = 1) -> None:
        """Load `share` of the records, where there is a bookmark."""
        self.world = world
        bookmark = parse_bookmark(world.metadata) or Bookmark(0, 0)
        loaded_from = round(len(world.records) * (1 - share)) if bookmark.fence else 0
        memory = load(world, bookmark, loaded_from=loaded_from)
        whole = load(world, Bookmark(0, 0))
        for offset in range(world.committed, len(world.turns) + 1):
            assert memory.history.has_ended(offset) == whole.history.has_ended(offset)
            assert memory.history.attempts(offset) == whole.history.attempts(offset)
        assert memory.next_fence >= whole.next_fence
        loaded = Loaded(0, world.committed, memory, bookmark.claims_offset, len(world.claims))
        world.owners += 1
        self.number = world.owners
        token = f"w{self.number}"
        self.owner = Owner(loaded, token=token, host="h", max_beyond_prefix=BEYOND, recent_max=2)
        self.followed = len(world.records)
        self.now_ms = self.number * 1_000
        self.unsure: list[Held] = []
        self.claimed: list[Held] = []
        self.running: list[Held] = []

    def read(self) -> None:
        owner, turns = self.owner, self.world.turns
        while owner.wants_more and owner.lanes.next_offset < len(turns):
            at = Position(words.TURNS, 0, owner.lanes.next_offset)
            envelope = turns[at.offset]
            if envelope is None:
                error = EnvelopeError(("it is none",))
                owner.bury(error, at, key=None, raw=b"?", timestamp_ms=0)
            else:
                owner.take(envelope, at, arrived_ms=at.offset)

    def overrule(self) -> None:
        for held in self.owner.overrule(self.now_ms):
            assert held in (*self.running, *self.claimed, *self.unsure)
        while (held := self.owner.best_overruled()) is not None:
            assert held not in (*self.running, *self.claimed, *self.unsure)
            if self.owner.end_overruled(held, self.now_ms) is Begun.UNSURE:
                self.unsure.append(held)

    def follow(self, count: int) -> None:
        for is_owners, kind, key, value in self.world.records[self.followed :][:count]:
            if not is_owners:
                self.owner.learn(kind, key, value)
            elif value is None:
                self.owner.parting.seen(key)
            self.followed += 1
        for held in [each for each in self.unsure if self.owner.is_known(each)]:
            self.unsure.remove(held)
            self.owner.put_back(held)

    def forget(self) -> None:
        """Forget the tasks that have ended, as far as they were read."""
        self.owner.parting.listen()
        last: dict[str, Any] = {}
        for at, (is_owners, kind, key, value) in enumerate(self.world.records):
            if kind == "agent_job" and (is_owners or at < self.followed):
                last[key] = value
        due = [
            Due("agent_job", key, value["session_id"], 0)
            for key, value in last.items()
            if value is not None and value["status"] in ENDED
        ]
        here = self.owner.stands_at
        self.owner.parting.forget(due, here, before_ms=self.now_ms, retention_ms=0)

    def be_certain(self) -> None:
        asked = list(self.unsure)
        self.follow(len(self.world.records))
        for held in asked:
            if held in self.unsure:
                self.unsure.remove(held)
                self.look_up(held)
                self.owner.put_back(held, certain=True)

    def look_up(self, held: Held) -> None:
        """Find what was not loaded, in all that there is."""
        memory, envelope = self.owner.memory, held.envelope
        last = {key: (kind, value) for _, kind, key, value in self.world.records}
        key = job_key(envelope.payload_ref)
        kind, value = last.get(key, ("", None))
        if value is not None and memory.claimable(envelope) is None:
            if value["status"] in ENDED:
                memory.ended(key, value["status"])
            else:
                memory.fold(kind, key, value)
        key = session_record_key(envelope.session_id)
        if memory.session(envelope.session_id) is None:
            memory.fold(*last[key][:1], key, last[key][1])
        if memory.desired(envelope.session_id) is None:
            memory.no_wish(envelope.session_id)

    def begin(self) -> None:
        held = self.owner.best(self.now_ms)
        if held is None:
            return
        match self.owner.begin(held, self.now_ms):
            case Begun.RUN:
                self.claimed.append(held)
            case Begun.UNSURE:
                self.unsure.append(held)
            case Begun.WAITS:
                self.now_ms += 1_000
            case Begun.DONE:
                pass

    def commit(self, batch: Batch | None = None) -> list[Held]:
        """One transaction; return what begins to run, nothing when it was refused."""
        batch = batch or self.owner.batch()
        if self.number != self.world.owners:
            return []
        before = parse_bookmark(self.world.metadata)
        after = parse_bookmark(batch.metadata)
        assert after is not None
        assert before is None or before.claims_offset <= after.claims_offset, "never back"
        for output, cause in batch.outputs:
            assert output.partition == cause.partition == 0
            if output.topic == words.CLAIMS:
                self.world.claims.append(output)
            elif output.topic == words.DEAD_LETTERS:
                self.world.letters.append(output)
            else:
                self.world.records.append((True, output.kind, output.key, output.value))
        self.world.committed, self.world.metadata = batch.offset, batch.metadata
        begun, self.claimed = self.claimed, []
        self.running += begun
        return begun

    def end(self, held: Held, *, heeds: bool = False) -> None:
        """A body ends; one that heeds stops when it is told to."""
        self.running.remove(held)
        if heeds and self.owner.is_overruled(held):
            self.owner.end(held, "failed", result="half", error="stopped", now_ms=self.now_ms)
        else:
            self.owner.end(held, "completed", result=f"{held.at.offset}", now_ms=self.now_ms)

    def hand_over(self) -> list[Held]:
        self.owner.lanes.stop()
        for held in self.unsure:
            self.owner.put_back(held)
        for held in (*self.running, *self.claimed):
            self.owner.give_back(held, "handover", self.now_ms)
        self.running, self.claimed = [], []
        return self.commit()
