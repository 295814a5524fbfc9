"""What stands in the way of more partitions."""

from __future__ import annotations

import pytest

from streams.edge.turns.kafka.growth import Flight, problems_of

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


def test_partitions_are_never_taken_away_and_no_topic_may_be_missing() -> None:
    assert problems_of(counts(2, 6), 4, IDLE) == [
        "agent.jobs has 6 partitions, 4 would be fewer",
        "agent.sessions has 6 partitions, 4 would be fewer",
    ]
    assert problems_of(counts(2, 0), 4, IDLE)[0] == "topic agent.jobs is missing"
