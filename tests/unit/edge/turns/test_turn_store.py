"""Records of turns on either database: one holder, one end, whatever comes late."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streams.core.turn.claim import CLAIM_TTL_MS, Expire, Run, Skip, Wait
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.edge.turns import sql_turns
from streams.edge.turns.sql_turns import SqlTurnStore
from streams.edge.turns.turn_store import (
    Claimant,
    Progress,
    Session,
    Status,
    TurnRecord,
)
from streams.errors import TaskQueueUnavailable
from tests.support.sql_turns import Place, now_ms

ME = Claimant("w1", "host1")
YOU = Claimant("w2", "host2")


def goal(name: str = "g", **fields: Any) -> TurnRecord:
    return TurnRecord(record_id=name, kind="goal_loop", session_id="s", **fields)


def turn(name: str = "g", *, deadline_ms: int | None = None) -> AgentTurnEnvelope:
    return AgentTurnEnvelope(
        job_id="j", session_id="s", payload_ref=name, deadline_ms=deadline_ms, enqueued_at_ms=0
    )


def claimed(store: SqlTurnStore, by: Claimant = ME) -> int:
    answer = store.claim(turn(), by)
    assert isinstance(answer.decision, Run)
    assert answer.record is not None
    assert answer.decision.attempt == answer.record.fence
    return answer.record.fence


def read(store: SqlTurnStore) -> TurnRecord:
    found = store.read("g")
    assert found is not None
    return found


def test_a_record_is_read_as_it_was_created_and_created_once(store: SqlTurnStore) -> None:
    spec = {"objective": "Ω \U0001f600", "max_iterations": 20, "constraints": ["a\0b"]}

    assert store.create(goal(spec=spec))
    assert not store.create(goal(spec={}))

    found = read(store)
    assert (found.spec, found.status, found.fence) == (spec, Status.PENDING, 0)
    assert found.created_at_ms == found.updated_at_ms > 0
    assert store.read("other") is None


def test_who_claims_a_record_is_in_it(store: SqlTurnStore) -> None:
    store.create(goal())

    fence = claimed(store)

    found = read(store)
    assert (found.status, found.claimed_by, found.dispatch_host) == ("running", "w1", "host1")
    assert found.fence == fence == 1
    assert found.claimed_at_ms == found.renewed_at_ms


def test_of_many_who_claim_at_once_one_has_it(place: Place) -> None:
    place.open().store.create(goal())
    stores = [place.open(f"w{number}").store for number in range(6)]
    start = threading.Barrier(6)

    def claim(store: SqlTurnStore) -> str:
        start.wait()
        return type(store.claim(turn(), ME).decision).__name__

    with ThreadPoolExecutor(6) as pool:
        answers = sorted(pool.map(claim, stores))

    assert answers == ["Run"] + ["Wait"] * 5


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "paused"])
def test_what_has_ended_or_is_paused_is_not_claimed_however_late(
    store: SqlTurnStore, status: str
) -> None:
    store.create(goal(status=Status(status)))

    answer = store.claim(turn(deadline_ms=1), ME)

    assert answer.decision == Skip("paused" if status == "paused" else "terminal")
    assert answer.record == read(store)
    assert read(store).status == status


@pytest.mark.parametrize("status", ["pending", "orphaned"])
def test_what_nobody_has_is_claimed(store: SqlTurnStore, status: str) -> None:
    store.create(goal(status=Status(status)))

    assert claimed(store) == 1


@pytest.mark.parametrize("name", ["h", "", "x" * 1_024])
def test_a_record_that_is_not_there_is_unknown(store: SqlTurnStore, name: str) -> None:
    store.create(goal())

    assert store.claim(turn(name), ME) == (Skip("unknown_record"), None, 0)


def test_a_status_of_a_later_release_is_left_alone(place: Place, store: SqlTurnStore) -> None:
    store.create(goal())
    later = "UPDATE agent_turn_records SET status = 'dreaming'"
    place.open().database.run(lambda transaction: transaction.change(later))

    answer = store.claim(turn(), ME)

    assert (answer.decision, answer.retry_after_ms) == (Wait(None), CLAIM_TTL_MS)
    assert read(store).status is Status.UNKNOWN


def test_a_live_claim_is_waited_for_and_a_claim_that_is_too_old_taken_over(
    place: Place, store: SqlTurnStore
) -> None:
    store.create(goal())
    first = claimed(store)
    place.pass_time(CLAIM_TTL_MS - 5_000)

    answer = store.claim(turn(), YOU)
    assert isinstance(answer.decision, Wait)
    assert 0 < answer.retry_after_ms <= 5_000
    place.pass_time(answer.retry_after_ms)
    second = claimed(store, YOU)

    assert (first, second) == (1, 2)
    assert not store.renew("g", first)
    assert not store.release("g", first)
    assert not store.finish("g", first, Status.FAILED, error="late")
    assert store.finish("g", second, Status.COMPLETED, result="ok")
    assert (read(store).status, read(store).executed_by) == ("completed", "w2")


def test_a_renewed_claim_lives_on_and_tells_how_far_it_is(
    place: Place, store: SqlTurnStore
) -> None:
    store.create(goal())
    fence = claimed(store)
    for iteration in range(1, 4):
        place.pass_time(CLAIM_TTL_MS - 5_000)
        assert store.iterate("g", fence, Progress(iteration, [{"number": iteration}], "so far"))
    assert store.renew("g", fence)

    assert isinstance(store.claim(turn(), YOU).decision, Wait)
    assert (read(store).iterations, read(store).result) == (3, "so far")
    assert read(store).progress == [{"number": 3}]


def test_a_time_to_live_of_the_store_s_own_is_heeded(place: Place) -> None:
    store = SqlTurnStore(place.open().database, claim_ttl_ms=10_000)
    store.create(goal())
    claimed(store)

    place.pass_time(10_000)

    assert claimed(store, YOU) == 2


def test_a_claim_that_was_given_back_is_free(store: SqlTurnStore) -> None:
    store.create(goal())
    fence = claimed(store)

    assert store.release("g", fence)
    assert not store.finish("g", fence, Status.COMPLETED)
    assert (read(store).status, read(store).claimed_by) == ("pending", "")
    assert claimed(store, YOU) == 2


def test_an_end_is_written_once(store: SqlTurnStore) -> None:
    store.create(goal())
    fence = claimed(store)

    assert store.finish("g", fence, Status.COMPLETED, result="first")
    assert not store.finish("g", fence, Status.FAILED, error="second")
    assert not store.renew("g", fence)
    found = read(store)
    assert (found.status, found.result, found.error) == ("completed", "first", None)


def test_results_are_cut_and_hold_what_a_column_can(store: SqlTurnStore) -> None:
    store.create(goal())

    store.finish("g", claimed(store), Status.FAILED, result="x" * 4_001, error="a\0b\ud800c")

    assert read(store).result == "x" * 4_000
    assert read(store).error == "a\ufffdb?c"


def test_only_an_end_is_an_end(store: SqlTurnStore) -> None:
    with pytest.raises(ValueError, match="pending, expected an end: cancelled, completed"):
        store.finish("g", 1, Status.PENDING)


def test_a_deadline_that_has_passed_makes_a_failure_that_says_so(
    place: Place, store: SqlTurnStore
) -> None:
    store.create(goal())
    now = now_ms(place.open().database)

    answer = store.claim(turn(deadline_ms=now - 10_000), ME)

    assert isinstance(answer.decision, Expire)
    assert answer.record == read(store)
    assert (read(store).status, read(store).error) == ("failed", answer.decision.error)
    assert "deadline" in answer.decision.error
    assert store.claim(turn(), ME).decision == Skip("terminal")


def test_a_deadline_to_come_is_none(store: SqlTurnStore) -> None:
    store.create(goal())

    assert store.claim(turn(deadline_ms=9_000_000_000_000), ME).decision == Run(1)


def test_a_deadline_ends_no_turn_that_runs_but_one_whose_holder_is_dead(
    place: Place, store: SqlTurnStore
) -> None:
    store.create(goal())
    fence = claimed(store)

    assert isinstance(store.claim(turn(deadline_ms=1), YOU).decision, Wait)
    assert store.renew("g", fence)
    place.pass_time(CLAIM_TTL_MS)
    assert isinstance(store.claim(turn(deadline_ms=1), YOU).decision, Expire)
    assert not store.finish("g", fence, Status.COMPLETED)


def test_what_nobody_runs_can_be_moved_and_what_runs_cannot(store: SqlTurnStore) -> None:
    store.create(goal())
    waiting = {Status.PENDING, Status.PAUSED, Status.ORPHANED}

    assert store.move("g", from_={Status.PENDING}, to=Status.PAUSED)
    assert not store.move("g", from_={Status.PENDING}, to=Status.FAILED)
    assert store.move("g", from_=waiting, to=Status.PENDING)
    claimed(store)
    assert not store.move("g", from_=waiting, to=Status.FAILED, error="x")
    assert (read(store).status, read(store).error) == ("running", None)


def test_a_failure_to_enqueue_is_in_the_record(store: SqlTurnStore) -> None:
    store.create(goal())

    assert store.move("g", from_={Status.PENDING}, to=Status.FAILED, error="the queue is away")

    assert (read(store).status, read(store).error) == ("failed", "the queue is away")


@pytest.mark.parametrize(
    ("from_", "to"),
    [([], Status.FAILED), ([Status.RUNNING], Status.FAILED), ([Status.PENDING], Status.RUNNING)],
)
def test_running_is_entered_and_left_by_its_holder(
    store: SqlTurnStore, from_: list[Status], to: Status
) -> None:
    with pytest.raises(ValueError, match="its holder's"):
        store.move("g", from_=from_, to=to)


def test_records_are_listed_by_session_and_status_the_last_changed_first(
    store: SqlTurnStore,
) -> None:
    for name in ("g", "h", "i"):
        store.create(goal(name))
    store.create(TurnRecord(record_id="t", kind="orchestrator_task", session_id="s2"))
    store.finish("g", claimed(store), Status.COMPLETED)

    def names(**wanted: Any) -> list[str]:
        return [each.record_id for each in store.records(**wanted)]

    assert set(names()) == {"g", "h", "i", "t"}
    assert names(status=Status.COMPLETED) == ["g"]
    assert sorted(names(session_id="s", status=Status.PENDING)) == ["h", "i"]
    assert names(session_id="s2") == ["t"]
    assert [names(limit=1, offset=at)[0] for at in range(4)] == names()


@pytest.mark.parametrize(("limit", "offset"), [(0, 0), (1_001, 0), (1, -1)])
def test_a_page_has_bounds(store: SqlTurnStore, limit: int, offset: int) -> None:
    for listed in (store.records, store.sessions):
        with pytest.raises(ValueError, match="expected"):
            listed(limit=limit, offset=offset)


@pytest.mark.parametrize("name", ["", "x" * 257, "a\0b", "\ud800"])
def test_what_cannot_be_an_id_is_refused_by_name(store: SqlTurnStore, name: str) -> None:
    with pytest.raises(ValueError, match=r"record_id is .*, expected 1 to 256 characters"):
        store.create(goal(name))
    with pytest.raises(ValueError, match="session_id"):
        store.create_session(Session(session_id=name))


def test_an_id_at_the_bound_is_taken(store: SqlTurnStore) -> None:
    name = "\U0001f600" * 256

    assert store.create(goal(name))
    assert store.create_session(Session(session_id=name))
    assert store.read(name) is not None
    assert store.say(name, "user", "hello") == 1


@pytest.mark.parametrize("spec", [{"x": float("inf")}, {"x": b"1"}, {"x": "y" * 500_000}])
def test_what_cannot_be_a_spec_is_refused_by_name(
    store: SqlTurnStore, spec: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="spec "):
        store.create(goal(spec=spec))


def test_a_table_of_another_shape_is_refused(place: Place) -> None:
    database = place.open().database
    database.run(lambda transaction: transaction.change("DROP TABLE agent_sessions"))
    database.run(lambda transaction: transaction.change("CREATE TABLE agent_sessions (id TEXT)"))

    with pytest.raises(TaskQueueUnavailable, match="session_id"):
        place.open()


DAY_MS = 86_400_000


def test_what_has_ended_long_ago_is_forgotten_with_its_session(
    place: Place, store: SqlTurnStore
) -> None:
    for session in ("s", "live", "empty"):
        store.create_session(Session(session_id=session))
        store.say(session, "user", "hello")
    store.create(goal())
    store.finish("g", claimed(store), Status.COMPLETED)
    for name, status in (("p", Status.PAUSED), ("o", Status.ORPHANED), ("q", Status.PENDING)):
        store.create(TurnRecord(record_id=name, kind="goal_loop", session_id="live", status=status))

    assert store.forget(DAY_MS) == 0
    place.pass_time(DAY_MS + 1_000)
    store.create(TurnRecord(record_id="new", kind="goal_loop", session_id="s2"))
    store.move("new", from_={Status.PENDING}, to=Status.FAILED)

    assert store.forget(DAY_MS) == 3
    assert {each.record_id for each in store.records()} == {"p", "o", "q", "new"}
    assert [each.session_id for each in store.sessions()] == ["live"]
    assert (store.said("s"), len(store.said("live"))) == ([], 1)
    assert store.claim(turn(), ME).decision == Skip("unknown_record")


def test_so_many_are_forgotten_at_once(
    place: Place, store: SqlTurnStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_turns, "FORGOTTEN_AT_ONCE_MAX", 2)
    for name in ("a", "b", "c"):
        store.create(goal(name, status=Status.FAILED))
    place.pass_time(1_000)

    assert [store.forget(0) for _ in range(3)] == [2, 1, 0]
    with pytest.raises(ValueError, match="unchanged_ms"):
        store.forget(-1)
