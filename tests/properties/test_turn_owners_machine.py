"""Owners of a partition of turns, one after another: they crash, hand over, come back as zombies.

The log is a list; a batch is refused when a newer owner has fenced the one that commits, as a
transaction is.  Records of the API are read when a rule says so, late as well.  Whatever happens, a
session's turns run one after another in their order, nothing runs before its claim is durable or
after its end is, nothing is skipped that should run, and in the end all of them have ended, once.
Turns are rejected for earlier ones and interrupted by later ones of their session alone.  What has
ended may be forgotten at any time, and an owner may load a part of the records alone.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streams.audit.turn_invariants import judge_turns
from streams.core.turn.envelope import POLICIES, PRIORITIES, AgentTurnEnvelope
from streams.core.turn.held import Held
from streams.core.turn.policies import interrupted_by, rejected_for
from streams.core.turn.record import job_key, new_job, session_record_key
from streams.core.turn.session import new_session
from tests.support.turn_owners_world import BEYOND, CODEC, SESSIONS, Worker, World, logged


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
