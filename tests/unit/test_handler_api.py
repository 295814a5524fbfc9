from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from streams.core.event_json import event_json
from streams.handler_api import Context, Event, Handler, Retryable
from streams.testing import event as made
from tests.support.invoker_edge import intent_value


def event(**changes: Any) -> Event:
    return Event({**intent_value("h", "d1")["event"], **changes})


CONTEXT = Context(
    attempt=2,
    attempt_id="d1.2",
    dispatch_id="d1",
    trigger_id="on-issue",
    binding_key="on-issue@v1",
    event_id="trigger_evt_d1",
)


def test_an_event_shows_every_field_of_its_record() -> None:
    fields = intent_value("h", "d1")["event"]
    shown = Event(dict(fields))
    payload = msgspec.json.decode(fields.pop("provider_payload"))
    assert {name: getattr(shown, name) for name in fields} == fields
    assert shown.payload == payload


def test_a_batch_is_its_events_as_they_came() -> None:
    big = {"n": 10**30, "deep": [{"a": "\u00e9\u2028"}], "none": None}
    members = [
        made("e1", payload=big, tenant_id="acme", headers={"x-plan": "gold"}, dedupe_key="k"),
        {**made("e2", payload="text"), "occurred_at": "2026-01-01T00:00:00Z"},
        {**made("e3", payload=None), "raw_body": b"x"},
    ]
    leader = Event({**members[0], "batch": [event_json(member) for member in members]})
    assert leader.batch is not None
    assert leader.batch is leader.batch
    names = [*(name for name in members[0] if name not in ("raw_body", "provider_payload"))]
    for shown, member in zip(leader.batch, members, strict=True):
        assert {name: getattr(shown, name) for name in names} == {n: member[n] for n in names}
        assert shown.payload == Event(member).payload
        assert (shown.raw_body, shown.batch) == (None, None)
    assert Event(members[0]).batch is None


def test_a_payload_is_parsed_once_and_belongs_to_the_handler() -> None:
    shown = event(provider_payload='{"labels": []}')
    shown.payload["labels"].append("bug")
    assert shown.payload == {"labels": ["bug"]}
    assert event(provider_payload='{"labels": []}').payload == {"labels": []}


def test_an_event_is_read_only() -> None:
    shown = event()
    with pytest.raises(AttributeError):
        shown.id = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        shown.headers["x"] = "y"  # type: ignore[index]


def test_an_event_shows_what_it_is_and_not_what_it_holds() -> None:
    shown = repr(event(provider_payload='{"secret": 1}'))
    assert shown == "Event(id='trigger_evt_d1', provider='github', kind='issues.opened')"


def test_a_context_knows_a_replay() -> None:
    assert not CONTEXT.is_replay
    replayed = Context(**{**CONTEXT.__dict__, "replay_of_event_id": "trigger_evt_0"})
    assert replayed.is_replay


def test_the_logger_names_the_attempt(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    CONTEXT.logger.info("done")
    (line,) = caplog.records
    assert (line.trigger_id, line.event_id, line.dispatch_id, line.attempt) == (  # type: ignore[attr-defined]
        "on-issue",
        "trigger_evt_d1",
        "d1",
        2,
    )


def test_a_handler_gets_the_context_only_if_it_takes_one() -> None:
    one = Handler(lambda event: event.id, is_async=False)
    two = Handler(
        lambda event, context: (event.id, context.attempt), is_async=False, takes_context=True
    )
    assert one(event(), CONTEXT) == "trigger_evt_d1"
    assert two(event(), CONTEXT) == ("trigger_evt_d1", 2)


def test_a_subclass_of_retryable_needs_no_constructor_call() -> None:
    class SlowDownError(Retryable):
        def __init__(self) -> None:
            """Say nothing about a delay."""

    assert SlowDownError().after_ms == 0
