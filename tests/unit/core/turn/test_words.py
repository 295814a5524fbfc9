"""What a worker says of turns: records of the turn's own partition, which the topology declares."""

from __future__ import annotations

from hashlib import sha256

import pytest

from streams.codec import Codec
from streams.core.record import Output, Position
from streams.core.turn import words
from streams.core.turn.envelope import AgentTurnEnvelope, EnvelopeError, parse_json
from streams.core.turn.record import Holder
from topology import TOPOLOGY

CODEC = Codec()
AT = Position("agent_turns", 2, 17)
HOLDER = Holder(token="host:1", host="host", fence=3)
TURN = AgentTurnEnvelope(job_id="j", session_id="s", tenant="acme", enqueued_at_ms=0)


def poison(raw: bytes, key: bytes | None = b"session:s") -> Output:
    with pytest.raises(EnvelopeError) as caught:
        parse_json(raw)
    return words.dead_lettered(caught.value, AT, HOLDER, key=key, raw=raw, timestamp_ms=9)


@pytest.mark.parametrize(
    "output",
    [
        words.claimed(TURN, AT, HOLDER, attempt=1, now_ms=5),
        words.released(TURN, AT, HOLDER, reason="handover", now_ms=5),
        words.finished(
            TURN,
            AT,
            HOLDER,
            outcome="completed",
            record_status="completed",
            tried=words.Tried(1, 4),
            now_ms=5,
        ),
        poison(b"{"),
    ],
    ids=lambda output: output.kind,
)
def test_a_word_is_a_declared_record_of_the_turn_s_partition(output: Output) -> None:
    schema = TOPOLOGY.kinds[output.topic, output.kind]
    assert output.value is not None

    assert CODEC.decode(CODEC.encode(schema, output.value)) == (schema, output.value)
    assert output.partition == AT.partition


def test_a_word_about_a_turn_has_its_job_its_place_and_its_tenant() -> None:
    output = words.finished(
        TURN, AT, HOLDER, outcome="expired", record_status="failed", error="e" * 9_999, now_ms=5
    )

    assert output.key == "j"
    assert output.headers == (("tenant_id", "acme"),)
    assert output.value is not None
    assert output.value["turn_offset"] == 17
    assert (output.value["fence"], output.value["attempt"]) == (3, 0)
    assert len(output.value["error"]) == 1_024


def test_8_21_poison_is_kept_with_its_bytes_its_error_and_its_place() -> None:
    raw = b'{"job_id": "j", "enqueued_at": 1}'

    output = poison(raw)

    assert output.key == "agent_turns/2/17"
    assert output.value == {
        "partition": 2,
        "offset": 17,
        "timestamp_ms": 9,
        "error": "session_id is missing, expected a text",
        "job_id": "j",
        "session_id": None,
        "key": b"session:s",
        "raw": raw,
        "raw_size": len(raw),
        "raw_sha256": sha256(raw).hexdigest(),
        "executed_by": "host:1",
    }


def test_large_poison_is_kept_in_part_and_known_by_its_digest() -> None:
    raw = b"{" + b" " * 100_000

    value = poison(raw, key=b"k" * 2_000).value

    assert value is not None
    assert (len(value["raw"]), value["raw_size"], len(value["key"])) == (65_536, 100_001, 1_024)
    assert value["raw_sha256"] == sha256(raw).hexdigest()


def test_a_record_without_value_is_kept_as_one() -> None:
    error = EnvelopeError(("no value",))
    output = words.dead_lettered(error, AT, HOLDER, key=None, raw=None, timestamp_ms=9)

    assert output.value is not None
    assert (output.value["raw"], output.value["raw_size"]) == (None, 0)
