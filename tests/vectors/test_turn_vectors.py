"""Golden words of agent turns: what a producer of another language writes means what it meant.

`turns.json` has envelopes as JSON texts with the fields that they mean, and the record of each as
hex; partition keys and roots of corpora; decisions over records.  Numbers are those of SEMANTICS 8.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from streams.codec import Codec
from streams.core.turn.claim import Claimable, decide
from streams.core.turn.envelope import AgentTurnEnvelope, EnvelopeError, from_record, parse_json
from streams.core.turn.partition_key import corpus_root, partition_key_for, partition_of_session

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "turns.json").read_text("utf-8")
)
CODEC = Codec()


def cases(group: str) -> Any:
    return pytest.mark.parametrize(
        "case", [pytest.param(case, id=case["vector"]) for case in VECTORS[group]]
    )


@cases("envelopes")
def test_an_envelope_means_what_it_meant(case: dict[str, Any]) -> None:
    envelope = parse_json(case["json"].encode())

    assert asdict(envelope) == case["envelope"]
    assert envelope == AgentTurnEnvelope(**case["envelope"])
    assert json.loads(envelope.json_bytes()) == case["written"]


@cases("envelopes")
def test_a_record_of_the_envelope_is_the_same_bytes(case: dict[str, Any]) -> None:
    envelope = AgentTurnEnvelope(**case["envelope"])
    schema, record = CODEC.decode(bytes.fromhex(case["record_hex"]))

    assert CODEC.encode("agent_turn", envelope.record()).hex() == case["record_hex"]
    assert schema == "agent_turn"
    assert from_record(record) == envelope  # type: ignore[arg-type]


@cases("refused")
def test_what_was_refused_is_refused_with_the_same_words(case: dict[str, Any]) -> None:
    with pytest.raises(EnvelopeError) as caught:
        parse_json(case["json"].encode())

    assert list(caught.value.problems) == case["problems"]


@cases("keys")
def test_a_key_is_what_it_was(case: dict[str, Any]) -> None:
    assert partition_key_for(case["item"], tenant=case["tenant"]) == case["key"]


@cases("roots")
def test_a_root_is_what_it_was(case: dict[str, Any]) -> None:
    assert corpus_root(case["path"]) == case["root"]


@cases("partitions")
def test_a_session_lives_where_it_lived(case: dict[str, Any]) -> None:
    assert partition_of_session(case["session_id"], case["partitions"]) == case["partition"]


@cases("decisions")
def test_a_turn_is_done_with_as_it_was(case: dict[str, Any]) -> None:
    envelope = AgentTurnEnvelope(
        job_id="j", session_id="s", enqueued_at_ms=0, deadline_ms=case["deadline_ms"]
    )
    record = None if case["record"] is None else Claimable(**case["record"])

    found = decide(envelope, record, now_ms=case["now_ms"], fence=case["fence"])

    assert {"decision": type(found).__name__, **asdict(found)} == case["expected"]


def test_every_vector_that_needs_no_store_is_here() -> None:
    numbers = {case["vector"].split(" ")[0] for group in VECTORS.values() for case in group}

    assert numbers >= {
        *("8-01", "8-02", "8-03", "8-04", "8-05", "8-06"),
        *("8-17", "8-18", "8-19", "8-20", "8-21"),
    }
