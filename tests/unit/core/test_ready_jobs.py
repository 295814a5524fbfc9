"""What the relay says of a queue: every record once, in order, within the bounds of a record."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.codec import Codec
from streams.core.placement import partition_of
from streams.core.ready_jobs import (
    JOB_BYTES_MAX,
    KEY_BYTES_MAX,
    RAW_BYTES_MAX,
    READY_BYTES_MAX,
    READY_JOBS_MAX,
    TRACEPARENT_BYTES_MAX,
    Dealt,
    Refused,
    Source,
    ready_job,
    words_of,
)
from streams.core.shards import mailbox_key
from streams.core.wire import ReadyJob, TriggerDispatch
from streams.engine import MAX_INPUT_BYTES
from streams.testing import event

SOURCE = Source("triage", "worker.triage", 0)
CODEC = Codec()


def dispatch(**changes: Any) -> TriggerDispatch:
    value: dict[str, Any] = {
        "queue": "triage",
        "dispatch_id": "d",
        "trigger_id": "issues",
        "binding_key": "issues@v1",
        "binding_version": 1,
        "priority": "high",
        "replay_of_event_id": None,
        "event": event("e1", tenant_id="acme"),
        **changes,
    }
    return cast("TriggerDispatch", value)


def job(offset: int, *, size: int = 1, tenant: str | None = "acme") -> ReadyJob:
    made = ready_job(offset, 17, dispatch(event=event("e", tenant_id=tenant)), b"x" * size, None)
    assert not isinstance(made, str)
    return made


def refused(offset: int, value: bytes = b"{}") -> Refused:
    return Refused(offset, 17, False, "no record", None, None, value)


def offsets(words: list[Any]) -> list[list[int]]:
    return [
        [each["offset"] for each in word.value["jobs"]]
        if word.kind == "jobs_ready"
        else [word.value["offset"]]
        for word in words
    ]


def test_a_job_says_what_the_scheduler_goes_by_and_carries_its_record_as_it_is() -> None:
    assert ready_job(7, 1_000, dispatch(), b"body", "00-a-b-01") == {
        "offset": 7,
        "occurred_at_ms": 1_000,
        "priority": "high",
        "tenant_id": "acme",
        "binding_key": "issues@v1",
        "trigger_id": "issues",
        "event_id": "e1",
        "traceparent": "00-a-b-01",
        "body": b"body",
    }


@pytest.mark.parametrize(
    ("said", "meant"), [("low", "low"), ("normal", "normal"), ("soon", "normal")]
)
def test_a_priority_that_nobody_knows_is_the_default(said: str, meant: str) -> None:
    made = ready_job(0, 0, dispatch(priority=said), b"", None)
    assert not isinstance(made, str)
    assert made["priority"] == meant


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"trigger_id": ""}, "trigger_id is empty"),
        ({"trigger_id": "t" * 257}, "trigger_id has 257 characters, expected at most 256"),
        ({"dispatch_id": "d" * 257}, "dispatch_id has 257 characters, expected at most 256"),
        ({"event": event("e" * 257)}, "event.id has 257 characters"),
        ({"event": event("e", tenant_id="t" * 257)}, "event.tenant_id has 257 characters"),
    ],
)
def test_a_job_that_no_scheduler_could_keep_is_refused(
    changes: dict[str, Any], problem: str
) -> None:
    made = ready_job(0, 0, dispatch(**changes), b"", None)
    assert isinstance(made, str)
    assert made.startswith(problem)


def test_words_follow_each_other_without_a_gap() -> None:
    dealt: list[Dealt] = [job(3), job(5), refused(6), job(9)]
    words = words_of(SOURCE, dealt, 2, 12)
    assert offsets(words) == [[3, 5], [6], [9]]
    ready: list[Any] = [word.value for word in words if word.kind == "jobs_ready"]
    assert [(each["first_offset"], each["next_offset"]) for each in ready] == [(2, 6), (7, 12)]
    assert {word.key for word in words} == {"triage"}


def test_a_word_holds_so_many_jobs_and_no_more() -> None:
    words = words_of(SOURCE, [job(number) for number in range(READY_JOBS_MAX + 1)], 0, 900)
    assert [len(each) for each in offsets(words)] == [READY_JOBS_MAX, 1]


def test_a_word_holds_so_many_bytes_and_a_larger_job_alone() -> None:
    half = READY_BYTES_MAX // 2 - 90  # the rest is names and numbers
    dealt = [job(0, size=half), job(1, size=half), job(2), job(3, size=JOB_BYTES_MAX), job(4)]
    words = words_of(SOURCE, dealt, 0, 5)
    assert offsets(words) == [[0, 1], [2], [3], [4]]
    values: list[Any] = [word.value for word in words]
    spans = [(each["first_offset"], each["next_offset"]) for each in values]
    assert spans == [(0, 2), (2, 3), (3, 4), (4, 5)]
    for word in words:
        assert len(CODEC.encode(word.kind, word.value)) <= MAX_INPUT_BYTES


@pytest.mark.parametrize("name", ["n" * 256, "\N{GRINNING FACE}" * 256])
@pytest.mark.parametrize("size", [1, 700, 6_000])
def test_many_jobs_with_the_longest_names_fit_into_the_mailbox(name: str, size: int) -> None:
    value = dispatch(trigger_id=name, binding_key=f"{name}@v1", event=event(name, tenant_id=name))
    body, trace = b"x" * size, "t" * TRACEPARENT_BYTES_MAX
    jobs = [ready_job(number, 17, value, body, trace) for number in range(READY_JOBS_MAX)]
    words = words_of(SOURCE, [each for each in jobs if not isinstance(each, str)], 0, 500)
    assert sum(len(each) for each in offsets(words)) == READY_JOBS_MAX
    for word in words:
        assert len(CODEC.encode(word.kind, word.value)) <= MAX_INPUT_BYTES


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        ("t" * TRACEPARENT_BYTES_MAX, True),
        ("t" * (TRACEPARENT_BYTES_MAX + 1), False),
        ("\N{GRINNING FACE}" * 17, False),
        ("t" * 400_000, False),
    ],
)
def test_a_header_that_no_tracer_writes_does_not_go_on_with_the_job(
    header: str, kept: bool
) -> None:
    made = ready_job(0, 17, dispatch(), b"", header)
    assert not isinstance(made, str)
    assert made["traceparent"] == (header if kept else None)


def test_the_largest_job_with_the_longest_names_fits_into_the_mailbox() -> None:
    long = "\N{GRINNING FACE}" * 256
    value = dispatch(
        trigger_id=long, binding_key=f"{long}@v2147483647", event=event(long, tenant_id=long)
    )
    made = ready_job(1 << 62, 1 << 62, value, b"x" * JOB_BYTES_MAX, "t" * 256)
    assert not isinstance(made, str)
    [word] = words_of(SOURCE._replace(queue="q" * 240), [made], 0, 1 << 62)
    assert len(CODEC.encode(word.kind, word.value)) <= MAX_INPUT_BYTES


def test_what_is_no_job_is_kept_up_to_a_bound() -> None:
    value = b"v" * (RAW_BYTES_MAX + 1)
    each = Refused(4, 17, True, "r" * 3_000, "k" * 300, b"k" * (KEY_BYTES_MAX + 1), value)
    [word] = words_of(SOURCE, [each], 0, 5)
    kept: Any = word.value
    assert (kept["topic"], kept["source_partition"], kept["offset"]) == ("worker.triage", 0, 4)
    assert len(kept["raw"]) == RAW_BYTES_MAX
    assert kept["raw_size"] == len(value)
    assert (len(kept["key"]), len(kept["kind"]), len(kept["reason"])) == (KEY_BYTES_MAX, 200, 2_000)
    assert kept["oversized"] is True


@pytest.mark.parametrize(
    ("shard_by", "key"),
    [
        ("tenant", "acme"),
        ("binding", "issues@v1"),
        ("trigger_id", "issues"),
        ("tenant_and_binding", "acme|issues@v1"),
    ],
)
def test_a_shard_is_chosen_by_what_the_queue_was_configured_with(shard_by: Any, key: str) -> None:
    source = SOURCE._replace(shards=7, shard_by=shard_by)
    [word] = words_of(source, [job(0)], 0, 1)
    shard = partition_of(key.encode(), 7)
    assert word.value["shard"] == shard
    assert word.key == f"triage#{shard}" == mailbox_key("triage", shard)


def test_jobs_of_no_tenant_share_a_shard() -> None:
    source = SOURCE._replace(shards=5)
    dealt: list[Dealt] = [job(number, tenant=None) for number in range(20)]
    assert len(words_of(source, dealt, 0, 20)) == 1


DEALT = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["a", "b", "c", None]), st.booleans()), max_size=40
)


@given(DEALT, st.integers(1, 4), st.integers(0, 40))
def test_every_record_is_in_one_word_wherever_a_round_is_cut(
    gaps: list[tuple[int, str | None, bool]], shards: int, cut: int
) -> None:
    source = SOURCE._replace(shards=shards)
    dealt: list[Dealt] = []
    offset = 0
    for gap, tenant, bad in gaps:
        offset += gap
        dealt.append(refused(offset) if bad else job(offset, tenant=tenant))
    end = offset + 1
    middle = dealt[cut - 1] if 0 < cut <= len(dealt) else None
    at = (
        0
        if middle is None
        else (middle.offset if isinstance(middle, Refused) else middle["offset"]) + 1
    )
    words = [
        *words_of(source, dealt[:cut] if at else [], 0, at),
        *words_of(source, dealt[cut:] if at else dealt, at, end),
    ]
    said = sorted(each for word in offsets(words) for each in word)
    known = sorted(each.offset if isinstance(each, Refused) else each["offset"] for each in dealt)
    assert said == known
    # By key, a fold that knows one number per partition drops nothing and takes nothing twice.
    reached: dict[str, int] = {}
    for word, places in zip(words, offsets(words), strict=True):
        assert places[0] >= reached.get(word.key, 0)
        following = word.value.get("next_offset", places[-1] + 1)
        assert following > places[-1]
        reached[word.key] = cast("int", following)
