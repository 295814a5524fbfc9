"""Selection by number: the vectors of SEMANTICS 6.8 in which jobs come and go between picks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.scheduler_log import SchedulerLog, claimed, keys
from tests.support.stage_log import Out


def drr(**fields: Any) -> SchedulerLog:
    return SchedulerLog(strategy="drr", **fields)


def one_at_a_time(log: SchedulerLog, picks: int) -> str:
    """Keys in the order in which one worker with one slot gets them, acking each."""
    outs: list[Out] = log.beat()
    found = [keys(outs)]
    while len(found) < picks:
        outs = log.ack(*claimed(outs))
        found.append(keys(outs))
    return " ".join(found)


def states(log: SchedulerLog) -> dict[str, dict[str, Any]]:
    """The queue's fairness keys, by name."""
    return {each["fairness_key"]: each for each in log.summary()["keys"]}


def test_6_08_one_job_of_another_key_waits_for_one_job_at_most() -> None:
    log = drr()
    log.ready(*"aaaaaaaab")
    assert one_at_a_time(log, 4) == "a b a a"


def test_6_12_credit_of_a_key_that_ran_dry_is_there_when_it_has_work_again() -> None:
    log = drr(weights={"a": 3})
    log.ready(*"aaaabbbbbbbbbb")
    assert one_at_a_time(log, 6) == "a b a a b a"
    dry = states(log)["a"]
    assert (dry["ready_jobs"], dry["deficit"]) == (0, 2)
    log.ready(*"aaaaaaaaaa")
    # The worker's one slot is still taken by the last `a`.
    outs = log.ack("3.1")
    found = [keys(outs)]
    while len(found) < 8:
        outs = log.ack(*claimed(outs))
        found.append(keys(outs))
    assert " ".join(found) == "a a b a a a b a"
    after = states(log)
    assert (after["a"]["deficit"], after["b"]["deficit"]) == (2, 0)
    assert log.summary()["rounds_completed"] == 4


@pytest.mark.parametrize(("last", "following"), [("m", "z"), ("zz", "a")])
def test_6_21_the_turn_goes_on_from_a_key_that_is_not_there(last: str, following: str) -> None:
    log = drr()
    log.ready(last)
    assert keys(log.beat()) == last
    log.ready("a", "z")
    assert keys(log.ack("0.1")) == following


def test_6_22_what_is_shown_of_each_key() -> None:
    log = drr(weights={"a": 3})
    log.ready(*"aaaaaabbbbbb")
    assert one_at_a_time(log, 5) == "a b a a b"
    found = states(log)
    assert {name: each["selected_total"] for name, each in found.items()} == {"a": 3, "b": 2}
    assert {name: each["deficit"] for name, each in found.items()} == {"a": 3, "b": 0}
    assert (found["a"]["weight"], found["b"]["weight"]) == (3, 1)
    assert log.summary()["rounds_completed"] == 2


def test_6_25_what_a_drain_may_not_have_again_is_passed_over_and_others_get_it() -> None:
    log = drr()
    log.ready("a", "a")
    assert claimed(log.beat("drain", capacity=2, once=True)) == ["0.1", "1.1"]
    assert claimed(log.release("0.1", "1.1", worker="drain")) == []
    assert keys(log.ready("b")) == "b"
    log.beat("drain", capacity=0, claims=["2.1"], once=True, draining=True)
    assert keys(log.beat("another")) == "a"
