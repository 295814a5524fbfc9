"""How a manifest says where a handler runs, and how much may be before it."""

import json

import pytest

from streams.core.manifest import Manifest
from tests.support.one_trigger import TRIGGER, binding, changed, parse, problems


# ---------------------------------------------------------------------- how a handler is run
@pytest.mark.parametrize("executor", ["async", "thread", "process"])
def test_an_executor_is_part_of_the_definition(executor: str) -> None:
    found = binding(changed(f'executor = "{executor}"'))
    assert json.loads(found["definition"])["executor"] == executor
    assert found["fingerprint"] != binding(TRIGGER)["fingerprint"]


@pytest.mark.parametrize(
    ("written", "timeout_ms"),
    [('"250ms"', 250), ('"30s"', 30_000), ('"5m"', 300_000), ('"2H"', 7_200_000), ("1", 1)],
)
def test_a_timeout_is_kept_in_milliseconds(written: str, timeout_ms: int) -> None:
    definition = json.loads(binding(changed(f"timeout = {written}"))["definition"])
    assert definition["timeout_ms"] == timeout_ms
    assert "timeout" not in definition


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('executor = "fiber"', "executor is 'fiber', expected one of async, thread, process"),
        ("executor = 1", "executor is 1, expected one of async, thread, process"),
        ('timeout = "1d"', "timeout is '1d', expected a duration from '1ms' on, such as"),
        ('timeout = "0s"', "timeout is '0s', expected a duration from '1ms' on, such as"),
        ("timeout = 0", "timeout is 0, expected a duration from '1ms' on, such as"),
        ("timeout = true", "timeout is true, expected a duration from '1ms' on, such as"),
        ('timeout = "9000000000s"', "timeout is '9000000000s', expected at most 366 days"),
    ],
)
def test_a_bad_executor_or_timeout_is_refused(line: str, problem: str) -> None:
    [found] = problems(changed(line))
    assert problem in found


def test_a_target_that_is_no_function_has_no_executor_and_no_timeout() -> None:
    text = changed(
        'handler = "a2a://agent"\nexecutor = "thread"\ntimeout = "1s"', without="handler"
    )
    found = "\n".join(problems(text))
    assert "executor is for functions, and the handler is 'a2a://agent'" in found
    assert "timeout is for functions, and the handler is 'a2a://agent'" in found


# ---------------------------------------------------------------------- the pump
def test_a_manifest_may_say_how_much_each_invoker_may_have_before_it() -> None:
    found = parse(TRIGGER + "[orchestrator]\npumps = { max_outstanding = 200 }\n")
    assert isinstance(found, Manifest)
    assert found.pump_max_outstanding == 200
    assert found.bindings == parse(TRIGGER).bindings  # type: ignore[union-attr]
    silent = parse(TRIGGER)
    assert isinstance(silent, Manifest)
    assert silent.pump_max_outstanding is None


@pytest.mark.parametrize(
    ("pumps", "problem"),
    [
        ("{ max_outstanding = 0 }", "orchestrator.pumps.max_outstanding is 0, expected a whole"),
        ("{ outstanding = 1 }", "orchestrator.pumps.outstanding is not a key here"),
        ("3", "orchestrator.pumps is 3, expected a table"),
    ],
)
def test_a_pump_that_cannot_work_is_refused(pumps: str, problem: str) -> None:
    [found] = problems(TRIGGER + f"[orchestrator]\npumps = {pumps}\n")
    assert problem in found
