"""What a step does with records that are none, and with a fold that raises."""

from typing import Any

import pytest

from streams.core.record import Output, Record
from streams.core.state import Answer, Fold, State
from streams.engine import (
    MAX_INPUT_BYTES,
    FoldFailed,
    fold_batch,
    settle,
)
from streams.engine.bound import MAX_DERIVED_BYTES
from streams.errors import BrokerError
from tests.support.stage_log import START_MS, Out, decoded, reloaded
from tests.support.toy import command
from tests.support.toy_step import CODEC, do, log, raw, texts


def quarantined(outputs: list[Out]) -> dict[str, Any]:
    [out] = outputs
    assert (out.topic, out.kind) == ("toy.dlq", "record_quarantined")
    return out.value


# ---------------------------------------------------------------------- bad records
def test_bytes_that_are_no_record_are_quarantined_with_all_that_is_known() -> None:
    toy = log()
    out = quarantined(toy.add_raw(b"\x00\x01garbage", key=b"k", headers=[("kind", b"command")]))
    assert (out["stage"], out["topic"], out["partition"], out["offset"]) == (
        "toy",
        "toy.in",
        0,
        0,
    )
    assert (out["code"], out["kind"], out["key"]) == ("undecodable", "command", b"k")
    assert (out["raw"], out["raw_size"]) == (b"\x00\x01garbage", 9)
    assert out["timestamp_ms"] == START_MS
    assert toy.steps[0].quarantined == 1
    assert toy.memory.position.next_offset == 1


@pytest.mark.parametrize("value", [None, b"", b"\xc3\x01"])
def test_a_record_without_a_value_is_quarantined(value: bytes | None) -> None:
    assert quarantined(log().add_raw(value, key=None))["code"] == "undecodable"


def test_a_record_of_another_kind_is_quarantined() -> None:
    value = CODEC.encode("toy_said", {"text": "hello"})
    for headers in ([], [("kind", b"command")], [("kind", b"said")], [("kind", b"\xff")]):
        out = quarantined(log().add_raw(value, headers=headers))
        assert out["code"] == "unknown_kind"
        assert "does not belong into toy.in" in out["reason"]


def test_a_record_without_a_kind_is_known_by_its_schema_when_only_one_kind_has_it() -> None:
    value = CODEC.encode("toy_command", command("emit", "k", text="hello"))
    assert texts(log().add_raw(value)) == ["hello0"]


def test_a_record_above_the_input_limit_is_quarantined_and_cut() -> None:
    def of_size(size: int, *extra: tuple[str, bytes]) -> list[Out]:
        headers = [("kind", b"command"), *extra]
        named = sum(len(name) + len(content) for name, content in headers)
        empty = len(CODEC.encode("toy_command", command("put", "p:a", text="x" * 100_000)))
        text = "x" * (size - named - (empty - 100_000))
        value = CODEC.encode("toy_command", command("put", "p:a", text=text))
        return log().add_raw(value, headers=headers)

    assert of_size(MAX_INPUT_BYTES) == []
    out = quarantined(of_size(MAX_INPUT_BYTES + 1))
    assert out["code"] == "oversized"
    assert "have 600001 bytes, at most 600000 are folded" in out["reason"]
    assert len(out["raw"]) == 65_536
    assert out["raw_size"] > 590_000
    stages_word = ("fold", b"other@1")
    assert of_size(MAX_INPUT_BYTES + 1, stages_word) == []
    assert of_size(MAX_DERIVED_BYTES, stages_word) == []
    assert quarantined(of_size(MAX_DERIVED_BYTES + 1, stages_word))["code"] == "oversized"


def test_large_headers_count_against_the_limit() -> None:
    value = CODEC.encode("toy_command", command("emit"))
    headers = [("kind", b"command"), ("traceparent", b"x" * MAX_INPUT_BYTES)]
    assert quarantined(log().add_raw(value, headers=headers))["code"] == "oversized"


def test_a_refused_record_is_quarantined_with_the_folds_word() -> None:
    out = quarantined(do(log(), "reject", text="no use"))
    assert (out["code"], out["reason"]) == ("rejected", "TOY-001: no use")


def test_null_headers_repeated_headers_and_foreign_bytes_do_no_harm() -> None:
    toy = log()
    value = CODEC.encode("toy_command", command("emit", "k", text="x"))
    headers = [("trace", None), ("kind", None), ("kind", b"command"), ("odd", b"\xff\xfe")]
    assert texts(toy.add_raw(value, headers=headers)) == ["x0"]


# ---------------------------------------------------------------------- a fold that raises
def test_a_fold_that_raises_names_the_record() -> None:
    with pytest.raises(FoldFailed) as failed:
        fold_batch(log().memory, [raw(4), raw(5), raw(7, "boom"), raw(8)])
    assert (failed.value.offset, failed.value.index, failed.value.timer) == (7, 2, None)
    assert isinstance(failed.value.__cause__, RuntimeError)
    assert str(failed.value) == "fold raised on offset 7: RuntimeError('boom')"


def test_a_row_that_cannot_be_written_puts_the_whole_batch_under_suspicion() -> None:
    bad = raw(1, "put", "p:bad")

    def unwritable(state: State, record: Record, /) -> Answer:
        state.rows.put(f"p:{record.offset}", {"due_ms": None, "text": record.offset % 2 or "fine"})
        return ()

    memory = log(Fold(on_record=unwritable)).memory
    with pytest.raises(FoldFailed, match="text") as failed:
        fold_batch(memory, [raw(0), bad, raw(2)])
    assert (failed.value.offset, failed.value.index, failed.value.suspects) == (0, 0, 3)
    memory = log(Fold(on_record=unwritable)).memory
    settle(memory, fold_batch(memory, [raw(0)]))
    with pytest.raises(FoldFailed) as failed:
        fold_batch(memory, [bad])
    assert (failed.value.offset, failed.value.suspects) == (1, 1)


def test_an_outage_is_nothing_that_a_record_is_to_blame_for() -> None:
    def out(*_: Any) -> list[Output]:
        raise BrokerError("the schema registry does not answer", retryable=True)

    with pytest.raises(BrokerError, match="registry"):
        fold_batch(log(Fold(on_record=out)).memory, [raw(0)])


def test_a_skipped_record_is_quarantined_and_the_rest_folded() -> None:
    records = [raw(4, text="a"), raw(5, "boom"), raw(6, text="b")]
    step = fold_batch(log().memory, records, skips=frozenset({5}))
    before, skipped, after = decoded(step, CODEC)
    assert [before.value["text"], after.value["text"]] == ["a0", "b0"]
    assert (skipped.value["code"], skipped.value["offset"]) == ("skipped", 5)
    assert CODEC.decode(step.journal)[1]["skipped"] == [5]


def test_a_skip_of_a_record_that_is_not_there_says_nothing() -> None:
    step = fold_batch(log().memory, [raw(4)], skips=frozenset({99}))
    assert CODEC.decode(step.journal)[1]["skipped"] == []


def test_a_timer_that_raises_is_named() -> None:
    toy = log()
    do(toy, "put", "t:bad", due_ms=START_MS + 1, text="poison")
    with pytest.raises(FoldFailed, match="the timer of row 't:bad' at offset 9") as failed:
        fold_batch(toy.memory, [raw(9, at_ms=START_MS + 1)])
    assert failed.value.timer == "t:bad"


def test_a_timer_that_its_fold_leaves_armed_is_a_bug() -> None:
    toy = log()
    do(toy, "put", "t:bad", due_ms=START_MS + 1, text="stuck")
    with pytest.raises(FoldFailed, match="left row 't:bad' due") as failed:
        toy.tick(after_ms=1)
    assert failed.value.timer == "t:bad"


def test_a_timer_that_is_passed_over_is_removed_and_kept_in_quarantine() -> None:
    toy = log()
    for key in ("t:a", "t:bad", "t:c"):
        text = "poison" if key == "t:bad" else ""
        do(toy, "put", key, due_ms=START_MS + 1, text=text)
    row = toy.memory.rows.store.get(b"t:bad")
    memory = reloaded(toy.memory)
    record = raw(9, at_ms=START_MS + 1, text="own")
    step = fold_batch(memory, [record], timer_skips=frozenset({"t:bad"}))
    first, passed, third, own = decoded(step, CODEC)
    assert [first.key, third.key, own.value["text"]] == ["t:a", "t:c", "own0"]
    assert (passed.value["code"], passed.value["key"]) == ("timer_skipped", b"t:bad")
    assert passed.value["raw"] == row
    journal = CODEC.decode(step.journal)[1]
    assert (journal["skipped"], journal["skipped_timers"]) == ([], ["t:bad"])
    settle(memory, step)
    assert len(memory.rows.store) == 0
