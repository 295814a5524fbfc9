"""A record of `agent_turns`: JSON and Avro are one value, and what is neither is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.codec import Codec
from streams.core.record import Position
from streams.core.turn.envelope import AgentTurnEnvelope, EnvelopeError
from streams.edge.turns.turn_codec import decode_turn, encode_turn

CODEC = Codec()
AT = Position("agent_turns", 2, 17)
TURN = AgentTurnEnvelope(job_id="j", session_id="s", priority="low", enqueued_at_ms=1_500)


def read(value: bytes | None, at: Position = AT) -> AgentTurnEnvelope:
    return decode_turn(CODEC, value, at, 9_000)


def test_both_forms_are_one_turn() -> None:
    assert read(TURN.json_bytes()) == read(encode_turn(CODEC, TURN)) == TURN


def test_a_turn_without_a_job_is_known_by_its_place_whoever_reads_it() -> None:
    value = b'{"session_id": "s"}'

    found = read(value)

    assert found == read(value)
    assert found.job_id.startswith("dispatch-")
    assert len(found.job_id) == len("dispatch-") + 32
    assert found.enqueued_at_ms == 9_000
    assert read(value, Position("agent_turns", 2, 18)).job_id != found.job_id


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "the record has no value, expected a turn"),
        (b"", "the envelope is no JSON, expected one flat object"),
        (b"\xc3\x01", "the value is no record, too_short: 2 bytes; a frame has 10"),
        (b"\xc3\x01garbage!", "the value is no record, unknown_schema: fingerprint"),
        (b"\x00\x00\x00\x00\x07", "the value is no record, unknown_schema: registry id 7"),
        (
            CODEC.encode("queue_seen", {"queue": "q"}),
            "the value is a record queue_seen, expected agent_turn or JSON",
        ),
    ],
)
def test_what_is_no_turn_is_told(value: bytes | None, problem: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        read(value)

    [found] = caught.value.problems
    assert found.startswith(problem)


@given(st.binary(max_size=60) | st.binary(max_size=60).map(b"\xc3\x01".__add__))
def test_garbage_is_no_turn_and_nothing_else(value: bytes) -> None:
    with pytest.raises(EnvelopeError):
        read(value)


@given(st.data())
def test_a_cut_turn_is_no_turn(data: st.DataObject) -> None:
    whole = encode_turn(CODEC, TURN)

    with pytest.raises(EnvelopeError):
        read(whole[: data.draw(st.integers(0, len(whole) - 1))])
