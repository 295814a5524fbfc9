"""Every word and every moment, in every state that a dispatch can be in."""

from collections.abc import Callable

import pytest

from streams.core.wire import InvocationOutcome
from streams.testing import retry_policy
from tests.support.dispatch_log import LEASE_MS, DispatchLog, completed, running
from tests.support.stage_log import kinds


def invoked(log: DispatchLog) -> int:
    log.match("d1")
    return 1


def held(log: DispatchLog) -> int:
    log.match("d1")
    log.run("d1")
    return 1


def waiting(log: DispatchLog) -> int:
    log.match("d1")
    log.complete("failed")
    return 2


def returned(log: DispatchLog) -> int:
    log.match("d1")
    log.complete("unresolved")
    return 2


def ended(log: DispatchLog) -> int:
    log.match("d1")
    log.complete("success")
    return 1


def unknown(_log: DispatchLog) -> int:
    return 1


STATES: list[Callable[[DispatchLog], int]] = [unknown, invoked, held, waiting, returned, ended]


OUTCOMES: list[InvocationOutcome] = [
    "success",
    "failed",
    "timeout",
    "denied",
    "cancelled",
    "interrupted",
    "unresolved",
    "result_too_large",
    "unknown",
]


LIVE = {invoked, held}


@pytest.mark.parametrize("stale", [0, 1])
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("state", STATES)
def test_every_outcome_is_answered_in_every_state(
    state: Callable[[DispatchLog], int], outcome: InvocationOutcome, stale: int
) -> None:
    log = DispatchLog(retry_policy("svix"))
    fence = state(log) - stale
    before = log.row()
    outputs = log.add("invocation_completed", completed(outcome, fence=fence))
    assert outputs, "every word is answered on the record"
    if state in LIVE and not stale:
        assert kinds(outputs)[0] in {"attempt_recorded", "InvocationReissued"}
        assert log.row() != before
    else:
        assert kinds(outputs) == ["OutcomeRefused"]
        assert log.row() == before


@pytest.mark.parametrize("stale", [0, 1])
@pytest.mark.parametrize("state", STATES)
def test_a_running_word_is_answered_in_every_state(
    state: Callable[[DispatchLog], int], stale: int
) -> None:
    log = DispatchLog(retry_policy("svix"))
    fence = state(log) - stale
    before = log.row()
    outputs = log.add("invocations_running", running("d1", fence=fence))
    if state in LIVE and not stale:
        row = log.row()
        assert outputs == []
        assert row is not None
        assert (row["status"], row["due_ms"]) == ("running", log.now_ms + LEASE_MS)
    else:
        assert kinds(outputs) == ["OutcomeRefused"]
        assert log.row() == before


@pytest.mark.parametrize("state", STATES)
def test_a_matched_event_is_answered_in_every_state(state: Callable[[DispatchLog], int]) -> None:
    log = DispatchLog(retry_policy("svix"))
    state(log)
    outputs = log.match("d1")
    starts = state in {unknown, ended}
    assert ("invoke" in kinds(outputs)) is starts
    assert ("record_quarantined" in kinds(outputs)) is not starts


@pytest.mark.parametrize("state", STATES)
def test_time_alone_moves_only_what_waits_for_it(state: Callable[[DispatchLog], int]) -> None:
    log = DispatchLog(retry_policy("svix"))
    state(log)
    before = log.row()
    outputs = log.tick(after_ms=86_400_000)
    if state in {held, waiting, returned}:
        row = log.row()
        assert kinds(outputs)[-1] == "invoke"
        assert row is not None
        assert (row["status"], row["due_ms"]) == ("invoked", None)
    else:
        assert outputs == []
        assert log.row() == before
