"""Values encoded by their pattern: the very bytes that encoding gives, learned once, bounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.pattern import Patterned
from streams.engine.forms import FORMS_MAX, LEARNED_AFTER, Forms
from tests.support.stage_log import CODEC

IDS = st.text(min_size=8, max_size=90) | st.text("AaCc%", min_size=8, max_size=9)


class Counted:
    """Encodes, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, value: Mapping[str, Any]) -> bytes:
        self.times += 1
        return CODEC.encode("outbox_dispatch_succeeded", value)


def drawn(event_id: str, dispatch_id: str, *, trigger_id: str = "t") -> dict[str, Any]:
    return {
        "event_id": event_id,
        "dispatch_id": dispatch_id,
        "trigger_id": trigger_id,
        "binding_key": f"100 % of {event_id} and %b",
        "handler_kind": "local",
        "target_uri": f"{dispatch_id}{event_id}{dispatch_id}",
        "attempt": 1,
        "result": None,
        "replay_of_event_id": None,
    }


def learned(forms: Forms, pattern: str = "p", draw: Any = drawn) -> None:
    """Show `forms` a pattern of texts of eight bytes until it is known."""
    for number in range(LEARNED_AFTER):
        forms.encode(Patterned(pattern, (f"event{number:03}", f"disp{number:04}"), draw))


@given(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=3))
def test_a_form_gives_the_bytes_that_encoding_gives(several: list[tuple[str, str]]) -> None:
    encode = Counted()
    forms = Forms(encode)
    for texts in several * LEARNED_AFTER:
        assert forms.encode(Patterned("p", texts, drawn)) == encode(drawn(*texts))


def test_what_is_learned_is_neither_drawn_nor_encoded_again() -> None:
    encode = Counted()
    forms = Forms(encode)
    learned(forms)
    before = encode.times

    def never(*_texts: str) -> dict[str, Any]:
        raise AssertionError("the form is known")

    data = forms.encode(Patterned("p", ("event999", "disp9999"), never))
    assert encode.times == before
    assert data == encode(drawn("event999", "disp9999"))


def test_texts_of_another_size_are_another_form() -> None:
    encode = Counted()
    forms = Forms(encode)
    learned(forms)
    for event_id in ("event1234", "e" * 63, "e" * 64, "ü" * 8, "e" * 5_000):
        assert forms.encode(Patterned("p", (event_id, "disp0001"), drawn)) == encode(
            drawn(event_id, "disp0001")
        )


@pytest.mark.parametrize("texts", [("short", "dispatch-1"), ("", "dispatch-1"), ("event-12", "1")])
def test_short_texts_have_no_form(texts: tuple[str, str]) -> None:
    encode = Counted()
    forms = Forms(encode)
    for _ in range(3 * LEARNED_AFTER):
        assert forms.encode(Patterned("p", texts, drawn)) == encode(drawn(*texts))


def looks_into_it(event_id: str, dispatch_id: str) -> dict[str, Any]:
    return drawn(event_id, dispatch_id, trigger_id="even" if event_id.islower() else "odd")


def says_it_once(event_id: str, _dispatch_id: str) -> dict[str, Any]:
    return {**drawn("e", "d"), "event_id": event_id}


@pytest.mark.parametrize("draw", [looks_into_it, says_it_once])
def test_a_pattern_that_gives_no_form_is_encoded_each_time(draw: Any) -> None:
    encode = Counted()
    forms = Forms(encode)
    for number in range(3 * LEARNED_AFTER):
        texts = (f"{'E' if number % 2 else 'e'}vent{number:03}", "dispatch")
        assert forms.encode(Patterned("p", texts, draw)) == encode(draw(*texts))


def test_patterns_are_forgotten_when_there_are_too_many() -> None:
    encode = Counted()
    forms = Forms(encode)
    for number in range(3 * FORMS_MAX):
        learned(forms, f"p{number}")
        assert len(forms) <= FORMS_MAX
    assert forms.encode(Patterned("p0", ("event000", "disp0000"), drawn)) == encode(
        drawn("event000", "disp0000")
    )


def test_a_patterned_value_is_a_mapping_like_any_other() -> None:
    value = Patterned("p", ("event000", "disp0000"), drawn)
    assert value == drawn("event000", "disp0000")
    assert dict(value) == drawn("event000", "disp0000")
    assert (len(value), value["attempt"]) == (9, 1)
    assert CODEC.encode("outbox_dispatch_succeeded", value) == Counted()(value)
