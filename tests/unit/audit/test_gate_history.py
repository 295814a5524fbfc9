"""What gates may have let pass: against looking at every window, and in little memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.audit.claim_history import ClaimHistory
from streams.audit.gate_history import GateHistory
from streams.core.record import Position

JOBS = 10_000


def a_pass(at_ms: int, most: int, period_ms: int | None) -> dict[str, Any]:
    return {"gate": "throttle", "key": "k", "max": most, "period_ms": period_ms, "at_ms": at_ms}


@given(
    times=st.lists(st.integers(0, 60), max_size=25),
    most=st.integers(1, 4),
    period_ms=st.integers(1, 30),
)
def test_a_window_with_too_many_passes_is_found_in_whatever_order_they_are_told(
    times: list[int], most: int, period_ms: int
) -> None:
    history = GateHistory()
    told: list[str] = []
    for number, at_ms in enumerate(times):
        told += history.admitted(str(number), "t", [a_pass(at_ms, most, period_ms)])
        in_order = sorted(times[: number + 1])
        full = zip(in_order, in_order[most:], strict=False)
        assert bool(told) == any(last - first < period_ms for first, last in full)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=20))
def test_no_more_hold_slots_than_the_greatest_limit_of_a_holder(
    words: list[tuple[int, int]],
) -> None:
    history, held = GateHistory(), dict[str, int]()
    for job, most in words:
        name = str(job)
        if name in held:
            history.free(name)
            del held[name]
            continue
        told = list(history.admitted(name, "t", [a_pass(0, most, None)]))
        held[name] = most
        assert bool(told) == (len(held) > max(held.values()))


@pytest.mark.parametrize(
    ("most", "period_ms"), [(-1, 5), (0, 5), (-(1 << 31), 5), (1, 0), (1, -5), (0, None)]
)
def test_a_limit_that_lets_nothing_pass_is_told(most: int, period_ms: int | None) -> None:
    history = GateHistory()
    (told,) = history.admitted("1", "t", [a_pass(7, most, period_ms)])
    assert told.endswith(f"let pass {most} in {period_ms} ms, expected at least 1 in 1 ms")
    assert list(history.admitted("2", "t", [a_pass(7, 1, 5)])) == []


def test_a_slot_that_is_told_twice_is_freed_once() -> None:
    history = GateHistory()
    assert list(history.admitted("1", "t", [a_pass(0, 1, None), a_pass(0, 1, None)])) == []
    history.free("1")
    assert list(history.admitted("2", "t", [a_pass(0, 1, None)])) == []


def test_memory_is_that_of_jobs_that_are_not_over() -> None:
    history = ClaimHistory("triage")
    tracemalloc.start()
    for number in range(JOBS):
        about: dict[str, Any] = {"job_event_id": str(number), "claim_id": f"{number}.1"}
        claim = {**about, "fence": 1, "fairness_key": "a", "expires_at_ms": 1}
        passed = [a_pass(number, 1, 1), a_pass(number, 1, None)]
        words = (
            ("job_claimed", claim),
            ("job_admitted", {**about, "trigger_id": "t", "passed": passed}),
            ("job_acked", {**about, "skipped_by": None}),
        )
        for kind, value in words:
            position = Position("worker.triage.claims", 0, number)
            assert list(history.add(position, kind, value)) == []
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert history.ended(str(JOBS - 1))
    assert size < 40 * JOBS, "a byte for each job, 16 for what each passed, and room to grow"
