"""Owners of a partition of turns, one after another: they crash, hand over, come back as zombies.

The log is a list; a batch is refused when a newer owner has fenced the one that commits, as a
transaction is.  Records of the API are read when a rule says so, late as well.  Whatever happens, a
session's turns run one after another in their order, nothing runs before its claim is durable or
after its end is, nothing is skipped that should run, and in the end all of them have ended, once.
Turns are rejected for earlier ones and interrupted by later ones of their session alone.  What has
ended may be forgotten at any time, and an owner may load a part of the records alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streams.audit.memory_log import MemoryLog
from streams.audit.turn_invariants import judge_turns
from streams.codec import Codec
from streams.core.record import Output, Position
from streams.core.turn import words
from streams.core.turn.bookmark import Bookmark, parse_bookmark
from streams.core.turn.claim import ENDED
from streams.core.turn.envelope import POLICIES, PRIORITIES, AgentTurnEnvelope, EnvelopeError
from streams.core.turn.gathering import Batch
from streams.core.turn.held import Held, Loaded
from streams.core.turn.memory import Memory
from streams.core.turn.owner import Begun, Owner
from streams.core.turn.parting import Due
from streams.core.turn.policies import interrupted_by, rejected_for
from streams.core.turn.record import job_key, new_job, session_record_key
from streams.core.turn.session import new_session
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


class OwnersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        for session_id in SESSIONS:
            key = session_record_key(session_id)
            value = new_session(session_id, now_ms=0)
            self.world.records.append((False, "agent_session", key, value))
        self.worker = Worker(self.world)
        self.zombies: list[Worker] = []
        self.runs: list[tuple[int, Held]] = []  # every body that began, by owner

    @rule(
        several=st.lists(
            st.tuples(
                st.sampled_from(SESSIONS),
                st.sampled_from(PRIORITIES),
                st.sampled_from(["new", "new", "new", "again", "poison", "nothing"]),
                st.sampled_from(("enqueue", *POLICIES)),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def enqueue(self, several: list[tuple[str, Any, str, Any]]) -> None:
        for session_id, priority, what, when_busy in several:
            self.enqueue_one(session_id, priority, what, when_busy)

    def enqueue_one(self, session_id: str, priority: Any, what: str, when_busy: Any) -> None:
        turns = self.world.turns
        if what == "again" and turns:
            turns.append(turns[-1])  # the producer repeats itself
            return
        if what == "poison":
            turns.append(None)
            return
        job_id = f"{'none' if what == 'nothing' else 'job'}-{len(turns)}"
        if what != "nothing":
            record = new_job(job_id, session_id, "do it", now_ms=0)
            self.world.records.append((False, "agent_job", job_key(job_id), record))
        turns.append(
            AgentTurnEnvelope(
                job_id=job_id,
                session_id=session_id,
                kind="orchestrator_task",
                payload_ref=job_id,
                priority=priority,
                when_busy=when_busy,
                enqueued_at_ms=0,
            )
        )

    @rule()
    def read(self) -> None:
        self.worker.read()

    @rule()
    def overrule(self) -> None:
        self.worker.overrule()

    @rule(count=st.integers(1, 3))
    def follow(self, count: int) -> None:
        self.worker.follow(count)

    @rule()
    def be_certain(self) -> None:
        self.worker.be_certain()

    @rule()
    def forget(self) -> None:
        self.worker.forget()

    @rule()
    def begin(self) -> None:
        self.worker.begin()

    @rule()
    def work(self) -> None:
        """All of it once, as a worker does that nothing disturbs."""
        self.follow(len(self.world.records))
        self.read()
        self.overrule()
        self.begin()
        self.commit(looks=True)

    @rule(looks=st.booleans())
    def commit(self, looks: bool) -> None:
        ended = set(self.world.ended())
        if looks:
            self.worker.owner.claims_end_at(len(self.world.claims))
        for held in self.worker.commit():
            assert held.at.offset not in ended, "nothing runs after its end is written"
            self.runs.append((self.worker.number, held))

    @precondition(lambda self: self.worker.running)
    @rule(data=st.data(), heeds=st.booleans())
    def end(self, data: st.DataObject, heeds: bool) -> None:
        self.worker.end(data.draw(st.sampled_from(self.worker.running)), heeds=heeds)

    @rule(handed_over=st.booleans(), share=st.sampled_from([0, 0.5, 1]))
    def change_owner(self, handed_over: bool, share: float) -> None:
        if handed_over:
            self.worker.hand_over()
        else:
            self.zombies.append(self.worker)
        self.worker = Worker(self.world, share=share)

    @precondition(lambda self: self.zombies)
    @rule()
    def a_zombie_writes_back(self) -> None:
        zombie = self.zombies.pop()
        before = (list(self.world.claims), list(self.world.records), self.world.committed)
        for held in list(zombie.running):
            zombie.end(held)
        assert zombie.commit() == []
        assert before == (self.world.claims, self.world.records, self.world.committed)

    @invariant()
    def fences_only_grow(self) -> None:
        fences = [said.value["fence"] for said in self.world.claims if said.value is not None]
        assert fences == sorted(fences)

    @invariant()
    def the_committed_offset_passes_nothing_unfinished(self) -> None:
        ended = {*self.world.ended(), *(each.value["offset"] for each in self.world.letters)}  # type: ignore[index]
        passed = set(range(self.world.committed))
        assert passed <= ended
        assert len(set(self.world.ended()) - passed) <= BEYOND

    @invariant()
    def nothing_is_skipped_that_should_run(self) -> None:
        ended: set[str] = set()
        for said in self.world.said("turn_finished"):
            job_id, turn = said["job_id"], self.world.turns[said["turn_offset"]]
            assert turn is not None
            if said["outcome"] == "completed":
                assert job_id not in ended, "a job is done once"
            elif said["outcome"] == "rejected":
                assert turn.when_busy == "reject"
                self.names_another(said, rejected_for, range(said["turn_offset"]))
            elif said["outcome"] == "interrupted":
                later = range(said["turn_offset"] + 1, len(self.world.turns))
                self.names_another(said, interrupted_by, later)
            else:
                assert said["outcome"] == "skipped"
                assert job_id in ended or job_id.startswith("none")
            ended.add(job_id)

    def names_another(self, said: Any, told: Any, offsets: range) -> None:
        """What overruled a turn is another one of its session, at one of these offsets."""
        found = [self.world.turns[each] for each in offsets]
        others = [
            each
            for each in found
            if each is not None
            and each.session_id == said["session_id"]
            and (told is rejected_for or each.when_busy == "interrupt")
        ]
        assert said["error"] in {told(each.job_id) for each in others} - {told(said["job_id"])}

    @invariant()
    def a_session_runs_one_turn(self) -> None:
        at_once = [each.envelope.session_id for each in self.worker.running + self.worker.claimed]
        assert len(at_once) == len(set(at_once))

    @invariant()
    def an_end_is_never_left(self) -> None:
        ended: dict[str, str] = {}
        for _, kind, key, value in self.world.records:
            if kind == "agent_job" and value is not None:
                assert ended.get(key, value["status"]) == value["status"]
                if value["status"] in ("completed", "failed", "cancelled"):
                    ended[key] = value["status"]

    @invariant()
    def turns_of_a_session_run_in_their_order(self) -> None:
        for session_id in SESSIONS:
            runs = [
                held.at.offset for _, held in self.runs if held.envelope.session_id == session_id
            ]
            assert runs == sorted(runs)
        for number in {number for number, _ in self.runs}:
            mine = [held.at.offset for owner, held in self.runs if owner == number]
            assert len(mine) == len(set(mine)), "an owner runs a turn once"

    def teardown(self) -> None:
        """In the end a last owner, who loads as little as may be, ends all that there is."""
        self.the_auditor_finds_nothing_wrong()
        self.worker = Worker(self.world, share=0)
        for _ in range(4 * len(self.world.turns) + 1):
            self.read()
            self.overrule()
            self.be_certain()
            self.begin()
            self.commit(looks=True)
            self.the_committed_offset_passes_nothing_unfinished()
            self.turns_of_a_session_run_in_their_order()
            for held in self.worker.running[:1]:
                self.worker.end(held)
        self.nothing_is_skipped_that_should_run()
        assert self.world.committed == len(self.world.turns)
        letters = {each.value["offset"] for each in self.world.letters}  # type: ignore[index]
        turns = [offset for offset, each in enumerate(self.world.turns) if each is not None]
        assert sorted(self.world.ended()) == turns, "each ends once"
        assert letters == set(range(len(self.world.turns))) - set(turns)
        last = {key: value for _, kind, key, value in self.world.records if kind == "agent_job"}
        for said in self.world.said("turn_finished"):
            status = {"rejected": "failed", "interrupted": "cancelled"}.get(said["outcome"])
            record = last.get(job_key(said["job_id"]))
            if record is not None and said["outcome"] != "skipped":
                assert record["status"] == (status or "completed")
        self.what_was_said_is_what_was_done()
        self.the_auditor_finds_nothing_wrong()

    def the_auditor_finds_nothing_wrong(self) -> None:
        [verdict] = judge_turns(logged(self.world), CODEC)
        assert verdict.violations == []

    def what_was_said_is_what_was_done(self) -> None:
        sessions = {
            value["session_id"]: value
            for _, kind, _, value in self.world.records
            if kind == "agent_session"
        }
        for session_id, session in sessions.items():
            done = [
                f"{said['turn_offset']}"
                for said in self.world.said("turn_finished")
                if said["session_id"] == session_id and said["outcome"] == "completed"
            ]
            assert [each["content"] for each in session["said"]] == done[-20:]


OwnersMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
test_owners = OwnersMachine.TestCase
