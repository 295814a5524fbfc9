import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from streams.edge.ingest.body import EVENTS_MAX, MalformedBody
from streams.edge.ingest.cloud_events import (
    BATCH,
    STRUCTURED,
    is_binary,
    parse_binary,
    parse_structured,
)
from streams.edge.ingest.events import EventRequest

EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "17",
    "source": "/orders",
    "type": "order.paid",
    "time": "2026-11-28T09:30:00Z",
    "subject": "order 4711",
    "retries": 3,
    "express": True,
    "harntenant": "acme",
    "datacontenttype": "application/json",
    "data": {"amount": 30},
}


def structured(event: Any) -> EventRequest:
    body = parse_structured(json.dumps(event).encode(), STRUCTURED)
    assert not body.is_batch
    return body.events[0]


def binary(body: bytes = b"", content_type: str = "", **attributes: str) -> EventRequest:
    named = {"specversion": "1.0", "id": "17", "source": "/orders", "type": "t", **attributes}
    headers: CIMultiDict[str] = CIMultiDict({f"CE-{n}": text for n, text in named.items() if text})
    if content_type:
        headers["Content-Type"] = content_type
    assert is_binary(headers)
    return parse_binary(headers, body).events[0]


def problems(event: Any, content_type: str = STRUCTURED) -> list[str]:
    text = event if isinstance(event, bytes) else json.dumps(event).encode()
    with pytest.raises(MalformedBody) as caught:
        parse_structured(text, content_type)
    return caught.value.problems


def without(*names: str, **changes: Any) -> dict[str, Any]:
    return {name: value for name, value in {**EVENT, **changes}.items() if name not in names}


# ---------------------------------------------------------------------- taken
def test_attributes_become_what_an_event_has_for_them() -> None:
    found = structured(EVENT)
    assert (found.provider, found.kind) == ("webhook", "order.paid")
    assert (found.dedupe_key, found.id) == ("/orders 17", None)
    assert (found.occurred_at, found.tenant_id) == ("2026-11-28T09:30:00Z", "acme")
    assert json.loads(bytes(found.payload)) == {"amount": 30}
    assert found.raw_body is None
    assert found.headers == {
        "ce-specversion": "1.0",
        "ce-id": "17",
        "ce-source": "/orders",
        "ce-type": "order.paid",
        "ce-time": "2026-11-28T09:30:00Z",
        "ce-subject": "order 4711",
        "ce-retries": "3",
        "ce-express": "true",
        "ce-harntenant": "acme",
        "content-type": "application/json",
    }


def test_an_extension_names_another_provider() -> None:
    assert structured({**EVENT, "harnprovider": "github"}).provider == "github"


def test_data_is_kept_as_it_is_spelled_and_may_be_missing() -> None:
    text = json.dumps(without("data"))[:-1] + ', "data": {"a":  1.50}}'
    [found] = parse_structured(text.encode(), STRUCTURED).events
    assert bytes(found.payload) == b'{"a":  1.50}'
    assert bytes(structured(without("data")).payload) == b"null"


def test_binary_data_is_the_raw_body() -> None:
    found = structured(without("data", data_base64=base64.b64encode(b"\xff\x00").decode()))
    assert (found.raw_body, bytes(found.payload)) == (b"\xff\x00", b"null")


def test_a_null_attribute_is_an_absent_one() -> None:
    found = structured({**EVENT, "subject": None, "time": None})
    assert "ce-subject" not in found.headers
    assert found.occurred_at is None


def test_the_binary_mode_says_the_same_in_headers() -> None:
    found = binary(
        b'{"amount":  30}',
        "application/json; charset=utf-8",
        type="order.paid",
        time="2026-11-28T09:30:00Z",
        subject="caf%C3%A9",
    )
    assert (found.kind, found.dedupe_key) == ("order.paid", "/orders 17")
    assert found.occurred_at == "2026-11-28T09:30:00Z"
    assert bytes(found.payload) == b'{"amount":  30}'
    assert found.headers["ce-subject"] == "café"
    assert found.headers["content-type"] == "application/json; charset=utf-8"


@pytest.mark.parametrize(
    ("body", "content_type", "payload", "raw_body"),
    [
        (b"", "", b"null", None),
        (b"", "application/json", b"null", None),
        (b"<x/>", "application/xml", b"null", b"<x/>"),
        (b"\xff", "", b"null", b"\xff"),
        (b"[1]", "application/vnd.acme+json", b"[1]", None),
        (b"1", "text/json", b"1", None),
    ],
)
def test_data_of_the_binary_mode_is_json_by_its_type_or_raw(
    body: bytes, content_type: str, payload: bytes, raw_body: bytes | None
) -> None:
    found = binary(body, content_type)
    assert (bytes(found.payload), found.raw_body) == (payload, raw_body)


def test_a_batch_holds_events_up_to_the_bound() -> None:
    text = json.dumps([{**EVENT, "id": str(number)} for number in range(EVENTS_MAX)]).encode()
    body = parse_structured(text, BATCH)
    assert body.is_batch
    assert len(body.events) == EVENTS_MAX
    assert problems([EVENT] * (EVENTS_MAX + 1), BATCH) == [
        f"the body has {EVENTS_MAX + 1} events, expected 1 to {EVENTS_MAX}"
    ]
    assert problems([], BATCH) == [f"the body has 0 events, expected 1 to {EVENTS_MAX}"]


# ---------------------------------------------------------------------- refused
@pytest.mark.parametrize("name", ["specversion", "id", "source", "type"])
@pytest.mark.parametrize("value", [None, ""])
def test_a_required_attribute_that_is_missing_is_named(name: str, value: Any) -> None:
    for event in (without(name), {**EVENT, name: value}):
        assert problems(event)[0] == f"{name} is missing, expected text"
    with pytest.raises(MalformedBody, match=f"{name} is missing"):
        binary(b"", "", **{name: ""})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"specversion": "0.3"}, "specversion is '0.3', expected '1.0'"),
        ({"time": "yesterday"}, "time: expected an RFC 3339 time"),
        ({"time": "2026-06-31T00:00:00Z"}, "time: expected an RFC 3339 time"),
        ({"type": "x" * 201}, "type: expected text of 1 to 200 characters"),
        ({"source": "x" * 1_000}, "source and id: expected text of 1 to 1000 characters"),
        ({"harntenant": "a b"}, "tenant_id: expected"),
        ({"id": 17}, "id: expected text"),
        ({"time": False}, "time: expected text"),
        ({"subject": {"a": 1}}, "subject: expected text"),
        ({"extra": {"a": 1}}, "extra: expected text, a whole number, true or false"),
        ({"ratio": 1.5}, "ratio: expected text, a whole number, true or false"),
        ({"Subject": "x"}, "'Subject' is no attribute's name"),
        ({"data_base64": "AA=="}, "data_base64: expected either it or data"),
    ],
)
def test_an_attribute_that_cannot_be_is_named(changes: dict[str, Any], problem: str) -> None:
    [found] = problems({**EVENT, **changes})
    assert found.startswith(problem)


def test_everything_wrong_with_an_event_is_told_at_once() -> None:
    found = problems({"specversion": "2", "data_base64": 7, "X": "y"})
    assert {problem.split()[0] for problem in found} == {
        "data_base64:",
        "id",
        "source",
        "type",
        "specversion",
        "'X'",
    }


def test_one_wrong_event_refuses_its_batch_by_its_place() -> None:
    assert problems([EVENT, without("id"), 7], BATCH) == [
        "[1].id is missing, expected text",
        "[2].the event is no object",
    ]


@pytest.mark.parametrize(
    ("text", "content_type", "problem"),
    [
        (b"{", STRUCTURED, "the body is not JSON"),
        (b"[]", STRUCTURED, "the event is no object"),
        (b"{}", BATCH, "the body is no array, expected a batch of events"),
        (b"[", BATCH, "the body is not JSON"),
        (b'{"a": "\xff"}', STRUCTURED, "the body is not UTF-8 at byte 7"),
        (b"[" * 100_000, BATCH, "the body"),
    ],
)
def test_what_is_no_event_is_refused(text: bytes, content_type: str, problem: str) -> None:
    assert problems(text, content_type)[0].startswith(problem)


@pytest.mark.parametrize(
    ("body", "attributes", "problem"),
    [
        (b"{", {}, "the body is not JSON"),
        (b'"\xff"', {}, "the body is not UTF-8 at byte 1"),
        (b"", {"subject": "%ff"}, "ce-subject: expected UTF-8, percent-encoded"),
    ],
)
def test_a_binary_event_with_other_data_than_it_says_is_refused(
    body: bytes, attributes: dict[str, str], problem: str
) -> None:
    with pytest.raises(MalformedBody) as caught:
        binary(body, "application/json", **attributes)
    assert caught.value.problems[0].startswith(problem)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


def answer(text: bytes) -> EventRequest | list[str]:
    try:
        return parse_structured(text, STRUCTURED).events[0]
    except MalformedBody as error:
        return error.problems


@given(changes=st.dictionaries(st.sampled_from([*EVENT, "data_base64", "é", ""]), JSON))
def test_any_object_is_an_event_or_named(changes: dict[str, Any]) -> None:
    event = {**EVENT, **changes}
    found = answer(json.dumps(event).encode())
    if isinstance(found, EventRequest):
        assert (found.kind, found.dedupe_key) == (
            str(event["type"]),
            f"{event['source']} {event['id']}",
        )
    else:
        assert found
        assert all(found)
