"""Owners of a partition of turns, one after another: they crash, hand over, come back as zombies.

The log is a list; a commit is refused when a newer owner has fenced the one that commits, as a
transaction is.  Whatever happens, a session's turns run one after another in their order, nothing
runs after its end is written, and in the end all of them have ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streams.core.record import Output, Position
from streams.core.turn import words
from streams.core.turn.bookmark import Bookmark, Floors, parse_bookmark
from streams.core.turn.claim import Expire, Run, Skip, Wait, claimable_job, decide
from streams.core.turn.envelope import PRIORITIES, AgentTurnEnvelope
from streams.core.turn.history import History
from streams.core.turn.lanes import Lanes, Turn
from streams.core.turn.record import Holder, claimed_job, ended_job, new_job, released_job
from streams.core.wire import AgentJob

BEYOND = 3


@dataclass
class World:
    """What is durable."""

    turns: list[AgentTurnEnvelope] = field(default_factory=list[AgentTurnEnvelope])
    claims: list[Output] = field(default_factory=list[Output])
    jobs: dict[str, AgentJob] = field(default_factory=dict[str, AgentJob])
    committed: int = 0
    metadata: str = ""
    owners: int = 0


def loaded(world: World, bookmark: Bookmark) -> History:
    """Load the claims from a bookmark on."""
    history = History(world.committed, fence=bookmark.fence)
    for said in world.claims[bookmark.claims_offset :]:
        assert said.value is not None
        history.fold(said.kind, said.value)
    return history


class Owner:
    """A worker that owns the partition: reads, runs, commits; it knows what it loaded."""

    def __init__(self, world: World) -> None:
        self.world = world
        bookmark = parse_bookmark(world.metadata) or Bookmark(0, 0)
        self.history = loaded(world, bookmark)
        whole = loaded(world, Bookmark(0, 0))
        for offset in range(world.committed, len(world.turns) + 1):
            assert self.history.has_ended(offset) == whole.has_ended(offset)
            assert self.history.attempts(offset) == whole.attempts(offset)
        assert self.history.next_fence >= whole.next_fence
        self.floors = Floors(bookmark.claims_offset, self.history.known_until)
        self.claims_end = len(world.claims)
        world.owners += 1
        self.number = world.owners
        self.holder = Holder(token=f"w{self.number}", host="h", fence=self.history.next_fence)
        self.jobs = dict(world.jobs)
        self.lanes = Lanes(world.committed, max_beyond_prefix=BEYOND, max_taken=5)
        self.now_ms = self.number * 1_000

    def at(self, offset: int) -> Position:
        return Position(words.TURNS, 0, offset)

    def commit(self, said: list[Output], jobs: list[AgentJob]) -> bool:
        """One transaction; false when it was refused since there is a newer owner."""
        if self.number != self.world.owners:
            return False
        self.world.claims += said
        for job in jobs:
            self.jobs[job["job_id"]] = self.world.jobs[job["job_id"]] = job
        # Where the claims end is known from the commit before: offsets are told after a commit.
        lanes = self.lanes
        begins = self.floors.at(lanes.committable, lanes.next_offset, self.claims_end)
        before = parse_bookmark(self.world.metadata)
        assert before is None or before.claims_offset <= begins, "a bookmark never goes back"
        self.world.metadata = str(Bookmark(begins, self.holder.fence))
        self.world.committed = lanes.committable
        self.claims_end = len(self.world.claims)
        return True

    def read(self) -> None:
        while self.lanes.wants_more and self.lanes.next_offset < len(self.world.turns):
            offset = self.lanes.next_offset
            turn = self.world.turns[offset]
            ended = self.history.has_ended(offset)
            self.lanes.take(offset, turn.session_id, turn.bucket, finished=ended)
            self.floors.took(offset, self.claims_end)

    def start(self) -> Turn | None:
        """Begin the best turn; return it if its body is to run."""
        turn = self.lanes.best(self.now_ms)
        if turn is None:
            return None
        envelope = self.world.turns[turn.offset]
        # What the API created since is read from the log as it comes.
        job = self.jobs.setdefault(envelope.job_id, self.world.jobs[envelope.job_id])
        self.lanes.start(turn)
        fence = self.holder.fence
        match decide(envelope, claimable_job(job), now_ms=self.now_ms, fence=fence):
            case Run(attempt):
                said = words.claimed(
                    envelope, self.at(turn.offset), self.holder, attempt=attempt, now_ms=self.now_ms
                )
                claimed = claimed_job(job, self.holder, now_ms=self.now_ms)
                return turn if self.commit([said], [claimed]) else None
            case Skip(reason):
                self.end(turn, skipped=reason)
            case Wait() | Expire() as other:
                raise AssertionError(f"{other}: the only owner neither waits nor expires here")
        return None

    def end(self, turn: Turn, *, skipped: str | None = None) -> None:
        envelope = self.world.turns[turn.offset]
        job = self.jobs[envelope.job_id]
        said = words.finished(
            envelope,
            self.at(turn.offset),
            self.holder,
            outcome="completed" if skipped is None else "skipped",
            record_status="completed",
            error=skipped,
            now_ms=self.now_ms,
        )
        ends = (
            []
            if skipped
            else [ended_job(job, "completed", executed_by=self.holder.token, now_ms=self.now_ms)]
        )
        self.lanes.finish(turn)
        self.commit([said], ends)

    def hand_over(self) -> None:
        """Stop, and give back what still runs, in one last commit."""
        self.lanes.stop()
        said: list[Output] = []
        jobs: list[AgentJob] = []
        for turn in self.lanes.running:
            envelope = self.world.turns[turn.offset]
            at = self.at(turn.offset)
            said.append(
                words.released(envelope, at, self.holder, reason="handover", now_ms=self.now_ms)
            )
            jobs.append(released_job(self.jobs[envelope.job_id], now_ms=self.now_ms))
            self.lanes.give_back(turn)
        self.commit(said, jobs)


class OwnersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.owner = Owner(self.world)
        self.zombies: list[tuple[Owner, Turn]] = []
        self.runs: list[tuple[int, Turn]] = []  # every body that ran, by owner

    @rule(
        session_id=st.sampled_from("abc"),
        priority=st.sampled_from(PRIORITIES),
        again=st.sampled_from([False, False, False, True]),
    )
    def enqueue(self, session_id: str, priority: str, again: bool) -> None:
        turns = self.world.turns
        if again and turns:
            turns.append(turns[-1])  # the producer repeats itself
            return
        job_id = f"job-{len(turns)}"
        self.world.jobs[job_id] = new_job(job_id, session_id, "do it", now_ms=0)
        turns.append(
            AgentTurnEnvelope(
                job_id=job_id,
                session_id=session_id,
                kind="orchestrator_task",
                payload_ref=job_id,
                priority=priority,  # type: ignore[arg-type]
                enqueued_at_ms=0,
            )
        )

    @rule()
    def read(self) -> None:
        self.owner.read()

    @rule()
    def start(self) -> None:
        turn = self.owner.start()
        if turn is not None:
            job_id = self.world.turns[turn.offset].job_id
            ended = {
                said.value["job_id"]
                for said in self.world.claims
                if said.kind == "turn_finished" and said.value is not None
            }
            assert job_id not in ended, "nothing runs after its end is written"
            self.runs.append((self.owner.number, turn))

    @precondition(lambda self: self.owner.lanes.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.owner.end(data.draw(st.sampled_from(self.owner.lanes.running)))

    @rule(handed_over=st.booleans())
    def change_owner(self, handed_over: bool) -> None:
        if handed_over:
            self.owner.hand_over()
        else:
            self.zombies += [(self.owner, turn) for turn in self.owner.lanes.running]
        self.owner = Owner(self.world)

    @precondition(lambda self: self.zombies)
    @rule()
    def a_zombie_writes_back(self) -> None:
        zombie, turn = self.zombies.pop()
        before = (list(self.world.claims), dict(self.world.jobs), self.world.committed)
        zombie.end(turn)
        assert before == (self.world.claims, self.world.jobs, self.world.committed)

    @invariant()
    def fences_only_grow(self) -> None:
        fences = [said.value["fence"] for said in self.world.claims if said.value is not None]
        assert fences == sorted(fences)

    @invariant()
    def the_committed_offset_passes_nothing_unfinished(self) -> None:
        ended = {
            said.value["turn_offset"]
            for said in self.world.claims
            if said.kind == "turn_finished" and said.value is not None
        }
        assert set(range(self.world.committed)) <= ended
        assert len(ended - set(range(self.world.committed))) <= BEYOND

    @invariant()
    def turns_of_a_session_run_in_their_order(self) -> None:
        for session_id in "abc":
            offsets = [turn.offset for _, turn in self.runs if turn.session_id == session_id]
            assert offsets == sorted(offsets)
        for number in {number for number, _ in self.runs}:
            mine = [turn.offset for owner, turn in self.runs if owner == number]
            assert len(mine) == len(set(mine)), "an owner runs a turn once"

    def teardown(self) -> None:
        """In the end a last owner ends all that there is."""
        self.owner = Owner(self.world)
        for _ in range(3 * len(self.world.turns)):
            self.read()
            self.start()
            self.the_committed_offset_passes_nothing_unfinished()
            self.turns_of_a_session_run_in_their_order()
            for turn in self.owner.lanes.running[:1]:
                self.owner.end(turn)
        assert self.world.committed == len(self.world.turns)
        assert {job["status"] for job in self.world.jobs.values()} <= {"completed"}
        ended = [
            said.value["turn_offset"]
            for said in self.world.claims
            if said.kind == "turn_finished" and said.value is not None
        ]
        assert sorted(ended) == list(range(len(self.world.turns))), "each ends once"


OwnersMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
test_owners = OwnersMachine.TestCase
