from typing import Any

import pytest

from streams.audit.log import LogRecord
from streams.core.record import Output
from streams.core.state import Fold
from streams.engine import (
    MAX_RECORD_BYTES,
    FoldFailed,
    Memory,
    StatePosition,
    Step,
    fold_batch,
    row_hash,
    settle,
)
from streams.engine import step as module
from tests.support.stage_log import START_MS, decoded, reloaded
from tests.support.toy import FOLD, said, toy_stage
from tests.support.toy_step import CODEC, do, log, raw, texts


# ---------------------------------------------------------------------- outputs
def test_an_output_says_what_it_is_whence_it_came_and_who_made_it() -> None:
    outputs = decoded(fold_batch(log().memory, [raw(0, count=2), raw(1)]), CODEC)
    assert [output.headers for output in outputs] == [
        {"cause": "toy.in/0/0/0", "fold": "toy@1"},
        {"cause": "toy.in/0/0/1", "fold": "toy@1"},
        {"cause": "toy.in/0/1/0", "fold": "toy@1"},
    ]
    assert outputs[0].kind == "said"


def test_an_output_keeps_its_own_headers_and_partition() -> None:
    extra = (("tenant_id", "acme"), ("traceparent", "00"))

    def answer(*_: Any) -> list[Output]:
        return [said("a", "1", headers=extra), said("b", "2", partition=3), said("c", "3")]

    step = fold_batch(log(Fold(on_record=answer)).memory, [raw(0)])
    assert [output.headers[3:] for output in step.outputs] == [
        [("tenant_id", b"acme"), ("traceparent", b"00")],
        [],
        [],
    ]
    assert [output.partition for output in step.outputs] == [None, 3, None]


def test_headers_are_encoded_alike_however_many_and_however_long_they_are() -> None:
    tenants = [f"tenant-{number}" for number in range(module.EXTRAS_MAX + 1)]
    texts = [*tenants, "x" * 10_000, *reversed(tenants)]

    def answer(*_: Any) -> list[Output]:
        return [said("a", "1", headers=(("tenant_id", text),)) for text in texts]

    step = fold_batch(log(Fold(on_record=answer)).memory, [raw(0)])
    assert [output.headers[3:] for output in step.outputs] == [
        [("tenant_id", text.encode())] for text in texts
    ]
    assert 0 < module.extras_kept() <= module.EXTRAS_MAX
    assert ("tenant_id", "x" * 10_000) not in [each for kept in module._EXTRAS for each in kept]


def test_outputs_of_a_tenant_share_no_list_that_the_next_one_would_change() -> None:
    headers = (("tenant_id", "acme"),)

    def answer(*_: Any) -> list[Output]:
        return [said("a", "1", headers=headers), said("b", "2", headers=headers)]

    first, second = fold_batch(log(Fold(on_record=answer)).memory, [raw(0)]).outputs
    first.headers.append(("more", b""))
    assert second.headers[3:] == [("tenant_id", b"acme")]


def test_an_output_to_an_undeclared_topic_is_a_bug() -> None:
    def answer(*_: Any) -> list[Output]:
        return [Output("elsewhere", "said", "", {"text": ""})]

    with pytest.raises(FoldFailed, match="KeyError"):
        fold_batch(log(Fold(on_record=answer)).memory, [raw(0)])


def test_an_output_that_no_broker_would_take_is_a_bug() -> None:
    def answer(size: int) -> Fold:
        return Fold(on_record=lambda *_: [said("k", "x" * size)])

    frame = len(CODEC.encode("toy_said", {"text": "x" * 100_000})) - 100_000 + len("k")
    fold_batch(log(answer(MAX_RECORD_BYTES - frame)).memory, [raw(0)])
    with pytest.raises(FoldFailed, match="at most 900000 are allowed"):
        fold_batch(log(answer(MAX_RECORD_BYTES - frame + 1)).memory, [raw(0)])


# ---------------------------------------------------------------------- time
def test_stream_time_never_goes_back() -> None:
    toy = log()
    for at_ms in (5, 3, 9, 8):
        toy.now_ms = at_ms
        do(toy, "put", "p:a")
    assert [step.position.now_ms for step in toy.steps] == [5, 5, 9, 9]


def test_timers_fire_before_the_record_that_moves_time_in_order() -> None:
    toy = log()
    for key, after_ms in (("t:late", 20), ("t:b", 10), ("t:a", 10)):
        do(toy, "put", key, due_ms=START_MS + after_ms)
    toy.now_ms += 10
    outputs = do(toy, "emit", "e", text="own")
    assert [output.key for output in outputs] == ["t:a", "t:b", "e"]
    assert texts(outputs)[0] == f"due {START_MS + 10} at {START_MS + 10} by 3 (command)"
    assert [output.headers["cause"] for output in outputs] == [f"toy.in/0/3/{n}" for n in range(3)]
    assert set(toy.rows) == {"t:late"}


def test_a_timer_that_rearms_itself_fires_again_later() -> None:
    toy = log()
    do(toy, "put", "t:a", due_ms=START_MS + 10, text="again:10")
    assert [len(toy.tick(after_ms=5)) for _ in range(6)] == [0, 1, 0, 1, 0, 1]


def test_a_timer_that_rearms_itself_in_the_past_cannot_hold_up_the_partition() -> None:
    def again(state: Any, key: str, row: Any, _record: Any) -> list[Output]:
        state.rows.put(key, {**row, "due_ms": row["due_ms"] + 1})
        return [said(key, "")]

    toy = log(Fold(on_record=FOLD.on_record, on_due=again))
    do(toy, "put", "t:a", due_ms=START_MS - 2_500)
    fired = [len(toy.tick()) for _ in range(4)]
    assert fired == [1_000, 1_000, 501, 0]


def test_no_more_than_the_limit_fire_at_one_record_and_a_tick_is_due_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_DUE_LIMITS", ((True, 3), (False, 2)))
    toy = log()
    for number in range(5):
        do(toy, "put", f"t:{number}", due_ms=START_MS + 1)
        do(toy, "put", f"l:{number}", due_ms=START_MS + 1)
    fired = [[output.key for output in toy.tick(after_ms=1)]]
    assert toy.memory.rows.next_tick_ms() == START_MS + 1
    fired += [[output.key for output in toy.tick()] for _ in range(2)]
    assert fired == [
        ["t:0", "t:1", "t:2", "l:0", "l:1"],
        ["t:3", "t:4", "l:2", "l:3"],
        ["l:4"],
    ]
    assert toy.memory.rows.next_tick_ms() is None


def test_an_unusable_record_moves_time_too() -> None:
    toy = log()
    do(toy, "put", "t:a", due_ms=START_MS + 10)
    toy.now_ms += 10
    fired, bad = toy.add_raw(b"garbage")
    assert fired.value["text"].endswith("by 1 (tick)")
    assert bad.value["code"] == "undecodable"
    assert [out.headers["cause"] for out in (fired, bad)] == ["toy.in/0/1/0", "toy.in/0/1/1"]


def test_lazy_timers_do_not_ask_for_ticks() -> None:
    toy = log()
    do(toy, "put", "l:a", due_ms=START_MS + 10)
    assert toy.memory.rows.next_tick_ms() is None


# ---------------------------------------------------------------------- batches
def test_a_batch_is_cut_when_it_holds_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CUT_OUTPUTS", 4)
    records = [raw(offset, count=3) for offset in range(4)]
    step = fold_batch(log().memory, records)
    assert (step.records, len(step.outputs), step.position.next_offset) == (2, 6, 2)
    monkeypatch.setattr(module, "_CUT_OUTPUTS", 1_000)
    monkeypatch.setattr(module, "_CUT_OUTPUT_BYTES", 10)
    assert fold_batch(log().memory, records).records == 1


def test_offsets_have_gaps_but_never_go_back() -> None:
    step = fold_batch(log().memory, [raw(3), raw(9)])
    journal = CODEC.decode(step.journal)[1]
    assert (journal["first_offset"], journal["next_offset"], journal["records"]) == (3, 10, 2)
    toy = log()
    settle(toy.memory, fold_batch(toy.memory, [raw(3)]))
    with pytest.raises(AssertionError, match="offset 3 was folded before 4"):
        fold_batch(toy.memory, [raw(3)])
    with pytest.raises(AssertionError, match="offset 5 comes after 5"):
        fold_batch(toy.memory, [raw(5), raw(5)])


def test_the_journal_entry_says_what_the_transaction_did() -> None:
    toy = log()
    do(toy, "put", "p:a", text="1")
    step = fold_batch(
        toy.memory, [raw(1, "put", "p:a", text="2"), raw(2, "delete", "p:a"), raw(3, count=2)]
    )
    journal = CODEC.decode(step.journal)[1]
    position = step.position
    assert journal == {
        "stage": "toy",
        "fold": "toy@1",
        "partition": 0,
        "seq": 2,
        "first_offset": 1,
        "next_offset": 4,
        "now_ms": START_MS,
        "records": 3,
        "outputs": 2,
        "rows": 1,
        "skipped": [],
        "skipped_timers": [],
        "chain": position.chain,
        "state_hash": b"\0" * 32,
    }
    assert StatePosition.from_row(CODEC.decode(step.position_row)[1]) == position
    assert step.rows == [(b"p:a", None)]


def test_rows_that_end_as_they_began_are_not_written() -> None:
    toy = log()
    do(toy, "put", "p:a", text="1")
    records = [raw(1, "put", "p:a", text="2"), raw(2, "put", "p:a", text="1")]
    records += [raw(3, "put", "p:b"), raw(4, "delete", "p:b"), raw(5, "delete", "p:never")]
    assert fold_batch(toy.memory, records).rows == []


def test_the_state_hash_is_the_sum_over_the_rows() -> None:
    toy = log()
    for op, key, text in (("put", "p:a", "1"), ("put", "p:b", "2"), ("put", "p:a", "3")):
        do(toy, op, key, text=text)
    do(toy, "delete", "p:b")
    total = sum(row_hash(key, value) for key, value in toy.memory.rows.store.items())
    assert toy.memory.position.state_hash == (total % (1 << 256)).to_bytes(32)


def chain_of(records: list[LogRecord], **skips: Any) -> bytes:
    return fold_batch(log().memory, records, **skips).position.chain


def test_the_chain_changes_with_anything_that_was_fetched() -> None:
    plain = raw(1)
    variants = [
        plain,
        plain._replace(offset=2),
        plain._replace(timestamp=START_MS + 1),
        plain._replace(key=b"other"),
        plain._replace(key=None),
        raw(1, text="other"),
        raw(1, headers=[("cause", b"x/0/1/0")]),
        raw(1, headers=[("cause", b"x/0/1/1")]),
        raw(1, headers=[("fold", b"x@1")]),
        raw(1, headers=[("any", None)]),
        raw(1, headers=[("any", b"")]),
    ]
    chains = [chain_of([record]) for record in variants]
    chains.append(chain_of([plain], skips=frozenset({1})))
    assert len(set(chains)) == len(chains)


def test_the_chain_goes_on_from_the_one_before() -> None:
    toys = [log(), log()]
    do(toys[0], "put", "p:a")
    do(toys[1], "delete", "p:a")
    steps: list[Step] = [fold_batch(toy.memory, [raw(1)]) for toy in toys]
    assert steps[0].outputs == steps[1].outputs
    assert steps[0].position.chain != steps[1].position.chain


def test_a_loaded_memory_goes_on_where_it_was() -> None:
    toy = log()
    do(toy, "put", "t:a", due_ms=START_MS + 10)
    do(toy, "put", "p:a")
    memory = reloaded(toy.memory)
    assert memory.state.index == frozenset({"p:a"})
    assert memory.state.now_ms == START_MS
    record = raw(2, at_ms=START_MS + 10)
    live, loaded = fold_batch(toy.memory, [record]), fold_batch(memory, [record])
    assert live == loaded


def test_an_index_that_writes_rows_is_a_bug() -> None:
    def build(state: Any) -> None:
        state.rows.put("p:a", {"due_ms": None, "text": ""})

    with pytest.raises(AssertionError, match="an index is derived"):
        Memory(toy_stage(Fold(on_record=FOLD.on_record, build_index=build)), 0)
