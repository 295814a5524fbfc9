"""The envelope of an agent turn: one value in two forms, and a word for everything that is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.codec import Codec
from streams.core.bounds import ID_CHARS_MAX, TEXT_CHARS_MAX
from streams.core.turn.envelope import (
    ATTEMPT_MAX,
    ENVELOPE_BYTES_MAX,
    JOB_ID_PREFIX,
    KINDS,
    POLICIES,
    PRIORITIES,
    TIME_MS_MAX,
    AgentTurnEnvelope,
    EnvelopeError,
    from_record,
    is_json,
    parse_json,
)

CODEC = Codec()

_characters = st.characters(
    exclude_categories=["Cs"], exclude_characters=[chr(code) for code in (*range(32), 127)]
)


def ids() -> st.SearchStrategy[str]:
    return st.text(_characters, min_size=1, max_size=ID_CHARS_MAX).filter(str.strip)


def texts(chars_max: int = ID_CHARS_MAX) -> st.SearchStrategy[str]:
    return st.text(_characters, max_size=chars_max)


envelopes = st.builds(
    AgentTurnEnvelope,
    job_id=ids(),
    session_id=ids(),
    kind=st.sampled_from(KINDS),
    payload_ref=texts(TEXT_CHARS_MAX),
    agent_name=texts(),
    tenant=texts(),
    priority=st.sampled_from(PRIORITIES),
    deadline_ms=st.none() | st.integers(1, TIME_MS_MAX),
    attempt=st.integers(0, ATTEMPT_MAX),
    when_busy=st.sampled_from(POLICIES),
    enqueued_at_ms=st.integers(0, TIME_MS_MAX),
)


def turn(**fields: Any) -> AgentTurnEnvelope:
    given_fields: dict[str, Any] = {
        "job_id": f"{JOB_ID_PREFIX}0123456789abcdef",
        "session_id": "sess-1",
        "enqueued_at_ms": 1_000,
    }
    return AgentTurnEnvelope(**{**given_fields, **fields})


def as_json(**fields: Any) -> bytes:
    """The JSON of a sound envelope with other fields; a field that is `...` is left out."""
    whole = {**turn().json_fields(), **fields}
    return json.dumps({name: value for name, value in whole.items() if value is not ...}).encode()


def problems_of(value: bytes) -> tuple[str, ...]:
    with pytest.raises(EnvelopeError) as caught:
        parse_json(value)
    return caught.value.problems


def read_or_problems(value: bytes) -> AgentTurnEnvelope | tuple[str, ...]:
    try:
        return parse_json(value)
    except EnvelopeError as error:
        return error.problems


def test_8_01_an_envelope_survives_json_with_its_session_at_the_top() -> None:
    envelope = turn(
        kind="goal_loop",
        payload_ref="goal-1",
        tenant="acme",
        priority="high",
        deadline_ms=123_000,
    )

    fields = json.loads(envelope.json_bytes())

    assert parse_json(envelope.json_bytes()) == envelope
    assert fields["session_id"] == "sess-1"
    assert fields["deadline_unix"] == 123.0
    assert fields["job_id"].startswith("dispatch-")


def test_8_02_an_envelope_has_references_and_no_body() -> None:
    assert set(turn().json_fields()) == {
        *("job_id", "session_id", "kind", "payload_ref", "agent_name", "tenant"),
        *("priority", "deadline_unix", "attempt", "enqueued_at"),
    }
    [problem] = problems_of(as_json(objective="win"))
    assert problem.startswith('"objective" is no field of a turn, expected one of job_id, ')


def test_a_policy_is_told_in_json_when_it_is_not_the_default() -> None:
    assert "when_busy" not in turn(when_busy="enqueue").json_fields()
    assert turn(when_busy="reject").json_fields()["when_busy"] == "reject"
    assert parse_json(as_json(when_busy=None)).when_busy == "enqueue"
    assert parse_json(as_json(when_busy="interrupt")).when_busy == "interrupt"
    for wrong, told in (("Reject", '"Reject"'), (1, "1"), (["reject"], "an array")):
        expected = f"when_busy is {told}, expected one of enqueue, reject, interrupt"
        assert problems_of(as_json(when_busy=wrong)) == (expected,)


@given(envelopes)
def test_both_forms_are_read_as_the_envelope_that_was_written(envelope: AgentTurnEnvelope) -> None:
    written = envelope.json_bytes()
    framed = CODEC.encode("agent_turn", envelope.record())
    _, record = CODEC.decode(framed)

    assert parse_json(written) == envelope
    assert from_record(record) == envelope  # type: ignore[arg-type]
    assert len(written) <= ENVELOPE_BYTES_MAX
    assert is_json(written)
    assert not is_json(framed)


@given(envelopes)
def test_an_envelope_at_its_bounds_fits_however_its_json_is_escaped(
    envelope: AgentTurnEnvelope,
) -> None:
    assert parse_json(json.dumps(envelope.json_fields(), indent=2).encode()) == envelope


def test_the_longest_envelope_fits_in_the_most_wasteful_json() -> None:
    wide = "\U0001f600"
    envelope = turn(
        job_id=wide * ID_CHARS_MAX,
        session_id=wide * ID_CHARS_MAX,
        payload_ref=wide * TEXT_CHARS_MAX,
        agent_name=wide * ID_CHARS_MAX,
        tenant=wide * ID_CHARS_MAX,
        deadline_ms=TIME_MS_MAX,
        attempt=ATTEMPT_MAX,
        enqueued_at_ms=TIME_MS_MAX,
    )

    assert parse_json(json.dumps(envelope.json_fields()).encode()) == envelope


def test_what_is_left_out_has_its_default() -> None:
    found = parse_json(b'{"session_id": "s", "job_id": "j", "enqueued_at": 2}')

    assert found == AgentTurnEnvelope(job_id="j", session_id="s", enqueued_at_ms=2_000)
    assert (found.kind, found.priority, found.bucket) == ("goal_loop", "normal", 2)
    assert found.deadline_ms is None


def test_a_reader_names_the_job_of_an_envelope_that_has_none() -> None:
    found = parse_json(b'{"session_id": "s"}', job_id="dispatch-here", enqueued_at_ms=7)

    assert (found.job_id, found.enqueued_at_ms) == ("dispatch-here", 7)
    assert problems_of(b'{"session_id": "s"}') == (
        "job_id is missing, expected a text",
        "enqueued_at is missing, expected seconds since the epoch, a number from 0 to 253402300799",
    )


def test_what_the_envelope_itself_says_wins_over_the_reader() -> None:
    found = parse_json(as_json(), job_id="dispatch-here", enqueued_at_ms=7)

    assert found == turn()


@pytest.mark.parametrize(
    ("fields", "priority"),
    [
        ({"priority": 0}, "urgent"),
        ({"priority": 3}, "low"),
        ({"priority": ..., "prio_bucket": 1}, "high"),
        ({"priority": "low", "prio_bucket": 3}, "low"),
        ({"priority": ...}, "normal"),
    ],
)
def test_a_priority_has_a_name_or_a_bucket(fields: dict[str, Any], priority: str) -> None:
    assert parse_json(as_json(**fields)).priority == priority


@pytest.mark.parametrize(
    ("deadline", "deadline_ms"), [(0, None), (None, None), (0.0004, None), (12.3456, 12_346)]
)
def test_a_deadline_is_rounded_to_the_millisecond_and_nothing_is_none(
    deadline: object, deadline_ms: int | None
) -> None:
    assert parse_json(as_json(deadline_unix=deadline)).deadline_ms == deadline_ms


@pytest.mark.parametrize(
    ("now_ms", "deadline_ms", "expired"),
    [(11, 10, True), (10, 10, False), (9, 10, False), (TIME_MS_MAX, None, False)],
)
def test_a_turn_expires_after_its_deadline_not_at_it(
    now_ms: int, deadline_ms: int | None, expired: bool
) -> None:
    assert turn(deadline_ms=deadline_ms).expired_at(now_ms) is expired


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"session_id": ...}, "session_id is missing, expected a text"),
        ({"session_id": None}, "session_id is null, expected a text of 1 to 256 characters"),
        ({"session_id": "  "}, 'session_id is "  ", expected a text of 1 to 256 characters, not'),
        ({"session_id": 7}, "session_id is 7, expected a text"),
        ({"session_id": "a\nb"}, 'session_id is "a\\nb", expected'),
        ({"session_id": "\ud800"}, 'session_id is "\\ud800", expected'),
        ({"session_id": "s" * 257}, f'session_id is "{"s" * 56}..., expected'),
        ({"job_id": ""}, 'job_id is "", expected a text of 1 to 256 characters'),
        ({"payload_ref": ["g"]}, "payload_ref is an array, expected a text of 0 to 1024"),
        ({"payload_ref": "p" * 1_025}, f'payload_ref is "{"p" * 56}..., expected a text of 0'),
        ({"tenant": {"id": 1}}, "tenant is an object, expected a text"),
        ({"kind": "goal"}, 'kind is "goal", expected one of goal_loop, orchestrator_task'),
        ({"kind": None}, "kind is null, expected one of goal_loop"),
        ({"kind": []}, "kind is an array, expected one of goal_loop"),
        ({"priority": "High"}, 'priority is "High", expected one of urgent, high, normal, low, or'),
        ({"priority": 4}, "priority is 4, expected one of"),
        ({"priority": True}, "priority is true, expected one of"),
        ({"priority": ..., "prio_bucket": "high"}, 'prio_bucket is "high", expected'),
        ({"priority": "low", "prio_bucket": 2}, "prio_bucket is 2, expected 3 with priority low"),
        ({"deadline_unix": -1}, "deadline_unix is -1, expected seconds since the epoch"),
        ({"deadline_unix": "soon"}, 'deadline_unix is "soon", expected seconds'),
        ({"deadline_unix": float("nan")}, "deadline_unix is NaN, expected seconds"),
        ({"deadline_unix": float("inf")}, "deadline_unix is Infinity, expected seconds"),
        ({"deadline_unix": 10**30}, "deadline_unix is 1000000000000000000000000000000, expected"),
        ({"attempt": -1}, "attempt is -1, expected a whole number from 0 to 2147483647"),
        ({"attempt": 1.0}, "attempt is 1.0, expected a whole number"),
        ({"attempt": ATTEMPT_MAX + 1}, "attempt is 2147483648, expected a whole number"),
        ({"enqueued_at": False}, "enqueued_at is false, expected seconds"),
    ],
)
def test_a_field_that_is_unusable_is_named_with_its_value_and_what_was_expected(
    fields: dict[str, Any], problem: str
) -> None:
    [found] = problems_of(as_json(**fields))

    assert found.startswith(problem)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"", "the envelope is no JSON, expected one flat object"),
        (b"\xff\xfe", "the envelope is no JSON"),
        (b"{", "the envelope is no JSON"),
        (b"[" * 60_000, "the envelope is no JSON"),
        (b'{"attempt": ' + b"9" * 5_000 + b"}", "the envelope is no JSON"),
        (b"[1]", "the envelope is an array, expected one flat JSON object"),
        (b'"goal"', 'the envelope is "goal", expected one flat JSON object'),
        (b'{"job_id": "a", "job_id": "b"}', '"job_id" stands there twice, expected it once'),
        (b" " * (ENVELOPE_BYTES_MAX + 1), "the envelope has 65537 bytes, expected at most 65536"),
    ],
)
def test_what_is_no_envelope_at_all_is_told(value: bytes, problem: str) -> None:
    [found] = problems_of(value)

    assert found.startswith(problem)


def test_json_of_exactly_the_bound_is_read() -> None:
    padded = as_json().ljust(ENVELOPE_BYTES_MAX)

    assert parse_json(padded) == turn()


def test_every_problem_is_told_at_once() -> None:
    found = problems_of(as_json(kind="x", attempt=-1, deadline_unix="y", colour="red"))

    assert [each.partition(" ")[0] for each in found] == [
        '"colour"',
        "deadline_unix",
        "kind",
        "attempt",
    ]


@pytest.mark.parametrize(
    ("value", "job_id", "session_id"),
    [
        (as_json(kind="x", job_id="j"), "j", "sess-1"),
        (as_json(deadline_unix="x", job_id="j"), "j", "sess-1"),
        (as_json(session_id=7, job_id="j"), "j", None),
        (as_json(session_id=..., job_id=""), None, None),
        (b"{", None, None),
    ],
)
def test_an_error_says_whom_it_concerns_where_that_is_known(
    value: bytes, job_id: str | None, session_id: str | None
) -> None:
    with pytest.raises(EnvelopeError) as caught:
        parse_json(value)

    assert (caught.value.job_id, caught.value.session_id) == (job_id, session_id)


def test_a_kind_of_a_later_release_is_a_problem_of_an_envelope() -> None:
    record = turn(job_id="j").record()
    record["kind"] = "unknown"

    with pytest.raises(EnvelopeError, match=r'kind is "unknown", expected one of') as caught:
        from_record(record)
    assert caught.value.job_id == "j"


@given(st.binary(max_size=200))
def test_garbage_is_an_error_of_envelopes_and_nothing_else(garbage: bytes) -> None:
    with pytest.raises(EnvelopeError):
        parse_json(garbage)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)


@given(st.dictionaries(st.sampled_from([*turn().json_fields(), "prio_bucket"]), _json))
def test_any_values_are_an_envelope_or_a_problem_each(fields: dict[str, Any]) -> None:
    found = read_or_problems(json.dumps(fields).encode())

    if isinstance(found, AgentTurnEnvelope):
        assert parse_json(found.json_bytes()) == found
    else:
        assert found
        assert all(", expected " in problem for problem in found)


def test_8_10_the_handle_of_a_queued_turn_names_its_job() -> None:
    assert turn(job_id="j", kind="goal_loop").handle() == {
        "job_id": "j",
        "session_id": "sess-1",
        "kind": "goal_loop",
        "dispatch": "queued",
        "status": "pending",
    }


def test_8_14_the_handle_of_an_orchestrator_task_says_where_its_status_is() -> None:
    handle = turn(job_id="j", session_id="j", payload_ref="j", kind="orchestrator_task").handle()

    assert handle["kind"] == "orchestrator_task"
    assert handle["status_url"] == "/api/graph/orchestrate/job/j"
