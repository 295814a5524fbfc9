from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from streams.edge.executors.outcome import (
    ERROR_CHARS_MAX,
    RETRY_AFTER_MAX_MS,
    Outcome,
    raised,
    returned,
    unresolved,
)
from streams.handler_api import Retryable, Terminal


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (None, None),
        ({"labels": ["bug"], "n": 1}, '{"labels":["bug"],"n":1}'),
        ("text", '"text"'),
        (False, "false"),
        (Point(3), '{"x":3}'),
        ("ü", '"ü"'),
    ],
)
def test_a_json_value_is_a_success(value: Any, result: str | None) -> None:
    assert returned(value, 1_000) == Outcome("success", result)


@pytest.mark.parametrize("value", [object(), {"a": {1j}}, "\ud800", {("a",): 1}])
def test_a_value_that_json_cannot_hold_is_a_failure_that_names_its_type(value: Any) -> None:
    outcome = returned(value, 1_000)
    assert outcome.outcome == "failed"
    assert outcome.error_class == "handler_error"
    assert outcome.error is not None
    assert f"the result ({type(value).__name__}) cannot be written as JSON" in outcome.error


def test_a_result_that_contains_itself_is_a_failure() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert returned(endless, 1_000).outcome == "failed"


def test_the_bound_of_a_result_counts_its_bytes() -> None:
    assert returned("x" * 98, 100).outcome == "success"
    outcome = returned("x" * 99, 100)
    assert outcome.outcome == "result_too_large"
    assert outcome.error_class == "result_too_large"
    assert outcome.error == "the result has 101 bytes as JSON, expected at most 100"
    assert outcome.result is None


@pytest.mark.parametrize(
    ("error", "error_class"),
    [
        (ValueError("boom"), "handler_error"),
        (Terminal("no such account"), "terminal"),
        (Retryable("later"), "handler_error"),
        (SystemExit(1), "handler_panic"),
        (KeyboardInterrupt(), "handler_panic"),
        (asyncio.CancelledError(), "handler_panic"),
    ],
)
def test_what_a_handler_raises_has_its_class(error: BaseException, error_class: str) -> None:
    outcome = raised(error)
    assert (outcome.outcome, outcome.error_class) == ("failed", error_class)


def test_the_error_is_type_and_message() -> None:
    assert raised(ValueError("boom")).error == "ValueError: boom"
    assert raised(KeyboardInterrupt()).error == "KeyboardInterrupt"


def test_the_error_is_bounded_and_fits_utf8() -> None:
    error = raised(ValueError("\ud800" + "x" * 5_000)).error
    assert error is not None
    assert len(error) == ERROR_CHARS_MAX
    assert error.startswith("ValueError: ?xxx")


def test_an_error_whose_message_raises_is_still_an_outcome() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert raised(BrokenError()).error == "BrokenError: its message cannot be read (RuntimeError)"


def test_a_delay_is_passed_on_up_to_a_day() -> None:
    assert raised(Retryable("later", after_ms=5_000)).retry_after_ms == 5_000
    assert raised(Retryable("later", after_ms=10**30)).retry_after_ms == RETRY_AFTER_MAX_MS


def test_a_delay_that_is_none_is_refused_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="after_ms is -1, expected milliseconds >= 0"):
        Retryable("later", after_ms=-1)
    with pytest.raises(TypeError, match="after_ms is float, expected int"):
        Retryable("later", after_ms=1.5)  # type: ignore[arg-type]


def test_an_unknown_handler_is_named() -> None:
    outcome = unresolved("lib::gone")
    assert (outcome.outcome, outcome.error_class) == ("unresolved", "unresolved")
    assert outcome.error == "handler 'lib::gone' is not loaded by this invoker"
