"""What claims tell the next owner of their partition."""

from __future__ import annotations

from streams.core.record import Output, Position
from streams.core.turn import words
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.history import History
from streams.core.turn.record import Holder

TURN = AgentTurnEnvelope(job_id="j", session_id="s", enqueued_at_ms=0)


def by(fence: int) -> Holder:
    return Holder(token=f"w:{fence}", host="h", fence=fence)


def at(offset: int) -> Position:
    return Position("agent_turns", 0, offset)


def claimed(offset: int, attempt: int = 1, fence: int = 1) -> Output:
    return words.claimed(TURN, at(offset), by(fence), attempt=attempt, now_ms=0)


def finished(offset: int, fence: int = 1) -> Output:
    return words.finished(
        TURN, at(offset), by(fence), outcome="completed", record_status=None, now_ms=0
    )


def released(offset: int, fence: int = 1) -> Output:
    return words.released(TURN, at(offset), by(fence), reason="handover", now_ms=0)


def history(committed: int, *said: Output) -> History:
    found = History(committed)
    for each in said:
        assert each.value is not None
        found.fold(each.kind, each.value)
    return found


def test_the_first_owner_of_a_partition_has_fence_1() -> None:
    assert history(0).next_fence == 1


def test_every_owner_has_a_higher_fence_than_all_before_it() -> None:
    assert history(9, claimed(0, fence=1), finished(0, fence=4)).next_fence == 5


def test_ends_and_attempts_are_known_from_the_committed_offset_on() -> None:
    found = history(
        3, claimed(2), finished(2), claimed(3), finished(3), claimed(4), released(4), claimed(4, 2)
    )

    assert [offset for offset in range(6) if found.has_ended(offset)] == [3]
    assert [found.attempts(offset) for offset in range(2, 6)] == [0, 0, 2, 0]


def test_the_word_of_a_fenced_owner_counts_nothing() -> None:
    found = history(0, claimed(0, fence=2), finished(0, fence=1), claimed(1, fence=1))

    assert not found.has_ended(0)
    assert found.attempts(1) == 0
    assert (found.refused, found.next_fence) == (2, 3)


def test_a_word_of_a_later_release_moves_the_fence_alone() -> None:
    found = History(0)
    found.fold("turn_blessed", {"fence": 7, "turn_offset": 0})

    assert (found.next_fence, found.has_ended(0), found.attempts(0)) == (8, False, 0)


def test_the_last_owner_s_fence_is_passed_though_it_said_nothing() -> None:
    found = History(0, fence=6)
    said = claimed(0, fence=5).value
    assert said is not None
    found.fold("turn_claimed", said)

    assert (found.next_fence, found.refused, found.attempts(0)) == (7, 0, 1)


def test_it_is_known_up_to_which_turn_something_was_said() -> None:
    assert history(4).known_until == 4
    assert history(4, claimed(2), claimed(7), claimed(5)).known_until == 8
