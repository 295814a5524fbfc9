"""Errors: each says who must act, and ends a command with a code of its own."""

from __future__ import annotations

import pytest

from streams.errors import (
    BrokerError,
    ConfigError,
    HarnError,
    ManifestError,
    ReplayDivergence,
    StageHalted,
    TaskQueueFull,
    TaskQueueUnavailable,
    TopologyError,
)


def test_the_exit_codes_are_those_of_the_documentation() -> None:
    codes = {
        each.__name__: each.exit_code
        for each in (
            BrokerError,
            ConfigError,
            ManifestError,
            ReplayDivergence,
            StageHalted,
            TaskQueueFull,
            TaskQueueUnavailable,
            TopologyError,
        )
    }

    assert codes == {
        "ReplayDivergence": 1,
        "ConfigError": 2,
        "TopologyError": 3,
        "ManifestError": 4,
        "BrokerError": 5,
        "StageHalted": 6,
        "TaskQueueFull": 5,
        "TaskQueueUnavailable": 5,
    }


def test_one_problem_reads_as_a_sentence_and_several_as_a_list() -> None:
    assert str(ManifestError("triggers[0].id is missing")) == "triggers[0].id is missing"
    assert str(ManifestError(["a", "b"])) == "2 manifest problems:\n  - a\n  - b"
    assert ManifestError(iter(["a", "b"])).problems == ("a", "b")


def test_a_list_of_no_problems_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="ConfigError needs at least one problem"):
        ConfigError([])


def test_a_halted_stage_names_its_position_and_the_way_on() -> None:
    error = StageHalted("inbox", ("trigger.inbox.envelopes", 3, 17), "ValueError in fold")

    assert str(error) == "stage inbox halted at trigger.inbox.envelopes/3/17: ValueError in fold"
    assert "harn stage skip trigger.inbox.envelopes/3/17" in (error.remedy or "")
    assert isinstance(error, HarnError)


def test_a_divergence_names_its_position_and_both_sides() -> None:
    error = ReplayDivergence(("trigger.outbox", 0, 5), "outbox_entry", "nothing")

    assert str(error) == (
        "replay diverges at trigger.outbox/0/5: expected outbox_entry, found nothing"
    )
    assert error.position == ("trigger.outbox", 0, 5)
