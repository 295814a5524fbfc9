"""What stands in the way of more partitions."""

from __future__ import annotations

import pytest

from streams.codec import Codec
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.edge.topic_reader import ReadRecord
from streams.edge.turns.kafka.growth import Flight, Grown, Growth, problems_of
from streams.settings import Settings

CODEC = Codec()
VALUES = {
    "tick": {"due_ms": 1},
    "agent_turn": AgentTurnEnvelope(
        job_id="j", session_id="s", kind="goal_loop", payload_ref="g", enqueued_at_ms=1
    ).record(),
}

IDLE = Flight(0, {0: 5, 1: 0}, {0: 5, 1: 0})


def counts(turns: int, others: int) -> dict[str, int]:
    return {"agent_turns": turns, "agent.jobs": others, "agent.sessions": others}


@pytest.mark.parametrize("others", [2, 3, 4])
def test_nothing_is_in_the_way_when_nothing_is_in_flight(others: int) -> None:
    assert problems_of(counts(2, others), 4, IDLE) == []


def test_everything_that_is_in_the_way_is_told() -> None:
    flight = Flight(2, {0: 5, 1: 9}, {0: 5, 1: 6})

    assert problems_of(counts(2, 2), 4, flight) == [
        "the group agent-dispatch has 2 members, expected none",
        "agent_turns/1 has 3 turns that have not ended",
    ]


def test_turns_that_came_while_a_growth_was_cut_off_do_not_keep_it_from_going_on() -> None:
    assert problems_of(counts(2, 4), 4, Flight(0, {0: 5, 1: 9}, {0: 5, 1: 6})) == []


@pytest.mark.parametrize("topic", ["agent.jobs", "agent.sessions"])
@pytest.mark.parametrize("schema", ["tick", "agent_turn"])
def test_a_record_that_is_nobody_s_is_told_and_stays(topic: str, schema: str) -> None:
    value = CODEC.encode(schema, VALUES[schema])
    record, grown = ReadRecord(0, 7, 0, b"goal:g", value, []), Grown(2, 4)
    moved = Growth(Settings(), CODEC)._moved(
        topic, record, b"goal:g", value, late=frozenset({b"goal:g"}), grown=grown
    )
    assert (moved, grown.unreadable) == ([], 1)


def test_partitions_are_never_taken_away_and_no_topic_may_be_missing() -> None:
    assert problems_of(counts(2, 6), 4, IDLE) == [
        "agent.jobs has 6 partitions, 4 would be fewer",
        "agent.sessions has 6 partitions, 4 would be fewer",
    ]
    assert problems_of(counts(2, 0), 4, IDLE)[0] == "topic agent.jobs is missing"
