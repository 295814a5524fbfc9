import json
import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from streams.codec import Codec
from streams.core.inbox import mailbox_key
from streams.edge.ingest.body import EVENTS_MAX, MalformedBody, _explain, parse_body
from streams.edge.ingest.events import PROBLEMS_MAX, EventRequest, normalize
from streams.edge.ingest.trace import Trace, begin_trace, continue_trace, new_uuid
from streams.testing.builders import envelope

FULL: dict[str, Any] = {
    "provider": "github",
    "kind": "issues.opened",
    "payload": {"action": "opened"},
    "id": "delivery-1",
    "dedupe_key": "72d3162e-cc78",
    "tenant_id": "acme",
    "occurred_at": "2026-11-28T09:30:00+01:00",
    "headers": {"X-GitHub-Delivery": "72d3162e", "Authorization": "Bearer x"},
}
TRACE = Trace("trace_1", "00-" + "a" * 32 + "-" + "b" * 16 + "-01")


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def event(**changes: object) -> dict[str, object]:
    return {"provider": "github", "kind": "push", **changes}


def problems(text: bytes) -> list[str]:
    with pytest.raises(MalformedBody) as caught:
        parse_body(text)
    return caught.value.problems


def one(value: object) -> EventRequest:
    [found] = parse_body(encoded(value)).events
    return found


# ---------------------------------------------------------------------- normalizing
def test_an_event_keeps_what_its_sender_said_and_hides_secrets() -> None:
    normalized = normalize(one(FULL), TRACE)
    assert normalized["id"] == "delivery-1"
    assert (normalized["provider"], normalized["kind"]) == ("github", "issues.opened")
    assert normalized["dedupe_key"] == "72d3162e-cc78"
    assert normalized["tenant_id"] == "acme"
    assert normalized["occurred_at"] == "2026-11-28T09:30:00+01:00"
    assert normalized["trace_id"] == "trace_1"
    assert normalized["headers"] == {
        "authorization": "[redacted]",
        "x-github-delivery": "72d3162e",
    }
    assert (normalized["signature_state"], normalized["raw_body"]) == ("unsigned", None)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", normalized["received_at"])


def test_an_event_without_an_id_gets_one_of_its_own() -> None:
    first, second = normalize(one(event()), TRACE), normalize(one(event()), TRACE)
    assert first["id"].startswith("trigger_evt_")
    assert UUID(first["id"].removeprefix("trigger_evt_")).version == 7
    assert first["id"] != second["id"]


def test_a_payload_is_kept_as_its_sender_spelled_it() -> None:
    spelled = '{"b": 1.0, "a":12345678901234567890123, "é": "\\u00e9"}'
    text = f'{{"provider": "x", "kind": "y", "payload": {spelled}}}'.encode()
    [found] = parse_body(text).events
    assert normalize(found, TRACE)["provider_payload"] == spelled


def test_an_event_without_a_payload_has_null() -> None:
    assert normalize(one(event()), TRACE)["provider_payload"] == "null"


def test_every_event_that_is_taken_can_be_encoded_as_an_envelope() -> None:
    largest: dict[str, object] = {
        "provider": "p" * 100,
        "kind": "k" * 200,
        "id": "i" * 200,
        "dedupe_key": "d" * 1_000,
        "tenant_id": "t" * 100,
        "occurred_at": "2026-11-28T09:30:00.123456789Z",
        "headers": {f"name-{number}": "v" * 100 for number in range(100)},
    }
    normalized = normalize(one(largest), begin_trace())
    taken = envelope(normalized)
    assert Codec().decode(Codec().encode("event_ingested", taken))[1] == taken


def test_an_id_cannot_be_mistaken_for_the_delivery_key_of_another_provider() -> None:
    delivered = normalize(one(event(dedupe_key="abc")), TRACE)
    assert mailbox_key(delivered) == "github:abc"
    assert problems(encoded(event(id="github:abc"))) == [
        "id: expected 1 to 200 letters, digits, or . _ ~ -"
    ]


# ---------------------------------------------------------------------- bodies
def test_a_body_is_one_event_or_an_array_or_an_object_with_events() -> None:
    assert parse_body(encoded(FULL)).is_batch is False
    for body in ([FULL], {"events": [FULL]}):
        parsed = parse_body(encoded(body))
        assert parsed.is_batch
        assert parsed.events == parse_body(encoded(FULL)).events


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("provider", each) for each in ("", "a b", "-a", "a:b", "x" * 101, 3, None, "a\n")),
        *(("kind", each) for each in ("", " a", "a\x07", "x" * 201, 3, None, "a\n")),
        *(("id", each) for each in ("", "a b", "a:b", "x" * 201, 3)),
        *(("dedupe_key", each) for each in ("", "a\x00b", "x" * 1_001, 3)),
        *(("tenant_id", each) for each in ("", "a.b", "x" * 101, 3)),
        *(
            ("occurred_at", each)
            for each in ("today", "2026-11-28", "2026-11-28T09:30:00", "2026-02-30T00:00:00Z", 3)
        ),
        *(("headers", each) for each in ([], {"a": 1}, {"a b": "c"}, {"a": "b\r\nc"}, {"": "x"})),
        ("headers", {f"h{number}": "" for number in range(101)}),
    ],
)
def test_a_field_that_does_not_fit_is_the_one_problem_named(field: str, value: object) -> None:
    [found] = problems(encoded(event(**{field: value})))
    assert found.startswith(f"{field}: expected ")


@pytest.mark.parametrize("value", ["2026-11-28t09:30:00z", "2016-12-31T23:59:60Z", None])
def test_every_rfc_3339_time_is_taken(value: str | None) -> None:
    assert one(event(occurred_at=value)).occurred_at == value


def test_everything_that_is_wrong_with_an_event_is_told_at_once() -> None:
    found = problems(encoded({"kind": 3, "paylod": 1, "zzzzzz": 2}))
    assert len(found) == 4
    assert found[0].startswith("kind: expected text of 1 to 200 characters")
    assert found[1] == "paylod is not a field of an event; did you mean payload?"
    assert found[2].startswith("zzzzzz is not a field of an event; known are provider, kind,")
    assert found[3].startswith("provider is missing, expected 1 to 100 letters")


@pytest.mark.parametrize(("body", "where"), [([{}, 3], ""), ({"events": [{}, 3]}, "events")])
def test_problems_of_a_batch_name_the_event(body: object, where: str) -> None:
    found = problems(encoded(body))
    assert [each.split(" is ")[0] for each in found] == [
        f"{where}[0].provider",
        f"{where}[0].kind",
        f"{where}[1]",
    ]


NESTED = b'{"provider": "a", "kind": "b", "payload": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "the body is not JSON: Input data was truncated"),
        (b"{", "the body is not JSON: Input data was truncated"),
        (b'{"provider": 01}', "the body is not JSON: JSON is malformed: invalid number"),
        (b'[{"provider": 01}]', "the body is not JSON: JSON is malformed: invalid number"),
        (b"3", "the body is no object, expected an event"),
        (b"[]", "the body has no event, expected at least one"),
        (b'{"events": []}', "the body has no event, expected at least one"),
        (b'{"events": 3}', "events: expected an array of events, and no other field beside it"),
        (b'{"events": [], "x": 1}', "events: expected an array of events, and no other field"),
        (b'{"provider": "\xff"}', "the body is not UTF-8 at byte 14"),
        (b'{"provider": "a", "kind": "b", "payload": "\\ud800"}', "the body has a text with half"),
        (b"\xef\xbb\xbf{}", "the body begins with a byte order mark, which is no JSON"),
        (b'{"provider": NaN}', "the body is not JSON: JSON is malformed: invalid character"),
        (b'{"payload": -Infinity}', "the body is not JSON: JSON is malformed: invalid"),
        (NESTED, "the body is nested too deeply"),
        (b"[" * 5_000, "the body is nested too deeply"),
        (b"[" + b"{}," * EVENTS_MAX + b"{}]", "[0].provider is missing, expected 1 to 100"),
    ],
)
def test_a_body_that_holds_no_events_says_why(text: bytes, problem: str) -> None:
    assert problems(text)[0].startswith(problem)


def test_a_batch_holds_at_most_a_thousand_events() -> None:
    assert len(parse_body(encoded([event()] * EVENTS_MAX)).events) == EVENTS_MAX
    assert problems(encoded([event()] * (EVENTS_MAX + 1))) == [
        "the body has 1001 events, expected at most 1000"
    ]


def test_a_long_list_of_problems_is_cut() -> None:
    found = problems(encoded([{"provider": "a"}] * 60))
    assert len(found) == 51
    assert found[-1] == "and 10 more"


@pytest.mark.parametrize("wrap", [lambda each: each, lambda each: [each] * 3], ids=["one", "many"])
def test_what_is_not_told_is_not_looked_up(wrap: Callable[[object], object]) -> None:
    """A body can hold tens of thousands of names that are near to none of ours."""
    text = encoded(wrap({f"knd{number}": 1 for number in range(PROBLEMS_MAX)}))
    found = _explain(text, None)
    assert all("did you mean kind?" in each for each in found[:PROBLEMS_MAX])
    assert not any("did you mean" in each for each in found[PROBLEMS_MAX:])


# ---------------------------------------------------------------------- traces
def test_a_new_trace_has_one_id_in_both_spellings() -> None:
    trace = begin_trace()
    assert trace.trace_id.startswith("trace_")
    version, trace_id, span, flags = trace.traceparent.split("-")
    assert (version, flags) == ("00", "01")
    assert UUID(trace_id) == UUID(trace.trace_id.removeprefix("trace_"))
    assert re.fullmatch("[0-9a-f]{16}", span)


def test_a_sender_s_trace_is_continued_with_a_span_of_our_own() -> None:
    sent = f"00-{'a' * 32}-{'b' * 16}-00"
    trace = continue_trace(f" {sent} ")
    assert trace is not None
    assert trace.trace_id == "a" * 32
    assert trace.traceparent.startswith(f"00-{'a' * 32}-")
    assert trace.traceparent.endswith("-00"), "the sender's choice whether to sample"
    assert trace.traceparent != sent


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        "",
        f"ff-{'a' * 32}-{'b' * 16}-00",
        f"00-{'0' * 32}-{'b' * 16}-00",
        f"00-{'a' * 32}-{'0' * 16}-00",
        f"00-{'A' * 32}-{'b' * 16}-00",
        f"00-{'a' * 32}-{'b' * 16}-00-x",
    ],
)
def test_an_unusable_traceparent_is_no_trace(traceparent: str | None) -> None:
    assert continue_trace(traceparent) is None


def test_uuids_are_distinct_and_sort_by_time() -> None:
    made = [new_uuid() for _ in range(1_000)]
    assert len(set(made)) == len(made)
    milliseconds = [UUID(each).int >> 80 for each in made]
    assert milliseconds == sorted(milliseconds)
