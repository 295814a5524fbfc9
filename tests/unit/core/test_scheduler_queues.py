"""What a partition knows of queues is bounded, and so is what it says of them."""

from __future__ import annotations

import pytest

from streams.codec import Codec
from streams.core.bounds import ID_CHARS_MAX
from streams.core.ready_jobs import TRACEPARENT_BYTES_MAX
from streams.core.scheduler.book import KEY_IDLE_MS
from streams.core.scheduler.grants import GRANT_BYTES_MAX, GRANT_JOBS_MAX, HELD_MAX
from streams.core.scheduler.summary import KEYS_MAX
from streams.engine import MAX_RECORD_BYTES
from tests.support.scheduler_log import QUEUE, SchedulerLog, claimed, ready_job


def drr(**fields: object) -> SchedulerLog:
    return SchedulerLog(strategy="drr", **fields)


def queues_of(log: SchedulerLog) -> set[str]:
    return set(log.memory.state.index.queues)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("ack_requested", {"acks": []}),
        ("release_requested", {"claims": [], "reason": None}),
        ("gates_requested", {"jobs": []}),
    ],
)
def test_queues_that_words_about_claims_merely_name_are_not_kept(
    kind: str, fields: dict[str, object]
) -> None:
    log = drr()
    log.ready("a")
    worker = {"consumer_id": "w1", "incarnation": "i1"}
    for number in range(20):
        log.add(kind, {**worker, **fields, "queue": f"none-{number}"})
    assert queues_of(log) == {"triage"}


def test_queues_that_renewals_purges_and_summaries_merely_name_are_not_kept() -> None:
    log = drr()
    log.ready("a")
    named = [
        {"queue": f"none-{number}", "job_event_id": "0", "claim_id": "0.1"} for number in range(100)
    ]
    worker = {"consumer_id": "w1", "incarnation": "i1", "claim_ttl_ms": 1_000}
    assert log.add("renew_requested", {**worker, "claims": named}) == []
    log.add(
        "purge_requested",
        {
            "queue": "none",
            "request_id": "r",
            "deliveries_partition": None,
            "purged_by": "someone",
            "reason": None,
        },
    )
    log.add("summary_requested", {"queue": "none", "request_id": "r"})
    assert queues_of(log) == {"triage"}


def test_queues_that_only_a_worker_knows_go_with_it() -> None:
    log = drr()
    log.ready("a")
    log.beat(queues=["triage", "empty-1", "empty-2"])
    assert queues_of(log) == {"triage", "empty-1", "empty-2"}
    log.beat(queues=["triage", "empty-2"], claims=["0.1"])
    assert queues_of(log) == {"triage", "empty-2"}
    log.now_ms += 3_600_000
    log.ready("b")  # the worker's time is over
    assert queues_of(log) == {"triage"}


def test_a_key_whose_jobs_were_purged_is_forgotten() -> None:
    log = drr()
    log.ready("a")
    log.purge()
    log.tick(KEY_IDLE_MS - 1)
    assert "f:triage:tenant:a" in log.rows
    log.tick(1)
    assert "f:triage:tenant:a" not in log.rows
    assert log.summary()["keys_total"] == 0


def test_a_summary_of_the_longest_names_and_all_weights_fits_into_a_record() -> None:
    long = "\N{GRINNING FACE}" * 250
    weights = {f"{number:0100}": 1 for number in range(1_000)}
    log = drr(fairness_key="tenant_and_binding", weights=weights)
    tenants = [f"{long}{number:06}" for number in range(KEYS_MAX + 1)]
    log.ready(*tenants, binding_key=f"{long}{long[:6]}@v2147483647")
    found = log.summary()
    assert (len(found["keys"]), found["other_keys"]["ready_jobs"]) == (KEYS_MAX, 1)
    assert len(Codec().encode("queue_summary", found)) <= MAX_RECORD_BYTES


def test_grants_of_jobs_with_the_longest_names_fit_into_records() -> None:
    long = "\N{GRINNING FACE}" * ID_CHARS_MAX
    log = drr(fairness_key="tenant_and_binding")
    fields = {"binding_key": f"{long}@v2147483647", "traceparent": "0" * TRACEPARENT_BYTES_MAX}
    for _ in range(8):  # a body holds the names of its job as well
        log.ready(*[long] * 60, **fields, body=b"x" * 2_200)
    grants = [out.value for out in log.beat(capacity=480) if out.kind == "jobs_granted"]
    assert sum(len(each["jobs"]) for each in grants) == 480
    sizes = [len(Codec().encode("jobs_granted", each)) for each in grants]
    assert max(sizes) <= GRANT_BYTES_MAX + 1_000


def test_a_worker_has_so_many_claims_at_most_whatever_it_asks_for() -> None:
    log = drr()
    log.ready(*["a"] * (HELD_MAX + 1))
    held = claimed(log.beat(capacity=2**31 - 1))
    assert len(held) == HELD_MAX
    assert claimed(log.beat(capacity=1, claims=held)) == []
    assert claimed(log.ack(held[0])) == [f"{HELD_MAX}.1"]


def test_a_record_of_grants_holds_so_many_jobs_at_most() -> None:
    log = drr()
    log.ready(*["a"] * (GRANT_JOBS_MAX + 1))
    outs = log.beat(capacity=GRANT_JOBS_MAX + 1)
    grants = [out.value["jobs"] for out in outs if out.kind == "jobs_granted"]
    assert [len(jobs) for jobs in grants] == [GRANT_JOBS_MAX, 1]


_LONG = "x" * 590_000
_WORKER = {"queue": QUEUE, "consumer_id": "w1", "incarnation": "i1"}
_CLAIM = {"job_event_id": "0", "claim_id": "0.1"}
_GATED = {**_CLAIM, "trigger_id": "t", "dispatch_id": "d", "keys": {}}
_RENEW = {"consumer_id": "w1", "incarnation": "i1", "claim_ttl_ms": 1_000}
_READY = {
    "queue": QUEUE,
    "shard": None,
    "shards": 1,
    "source_partition": 0,
    "first_offset": 2,
    "next_offset": 4,
    "jobs": [],
}
_PURGE = {
    "queue": QUEUE,
    "request_id": "r",
    "purged_by": "me",
    "reason": None,
    "deliveries_partition": 0,
}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("ack_requested", {**_WORKER, "acks": [{**_CLAIM, "job_event_id": _LONG}]}),
        ("ack_requested", {**_WORKER, "acks": [], "consumer_id": _LONG}),
        (
            "release_requested",
            {**_WORKER, "reason": None, "claims": [{**_CLAIM, "claim_id": _LONG}]},
        ),
        ("release_requested", {**_WORKER, "reason": _LONG, "claims": [_CLAIM]}),
        ("renew_requested", {**_RENEW, "claims": [{**_CLAIM, "queue": f"{QUEUE}:x"}]}),
        ("renew_requested", {**_RENEW, "claims": [{**_CLAIM, "queue": QUEUE, "claim_id": _LONG}]}),
        ("gates_requested", {**_WORKER, "jobs": [{**_GATED, "job_event_id": _LONG}]}),
        ("gates_requested", {**_WORKER, "jobs": [_GATED], "incarnation": _LONG}),
        ("purge_requested", {**_PURGE, "request_id": _LONG}),
        ("purge_requested", {**_PURGE, "purged_by": _LONG}),
        ("jobs_ready", {**_READY, "shards": 0}),
        ("jobs_ready", {**_READY, "shards": 65}),
        ("jobs_ready", {**_READY, "source_partition": -1}),
        ("jobs_ready", {**_READY, "next_offset": (1 << 62) + 1}),
        ("jobs_ready", {**_READY, "jobs": [ready_job(3), ready_job(3)]}),
        ("jobs_ready", {**_READY, "jobs": [ready_job(4)]}),
        ("summary_requested", {"queue": _LONG, "request_id": "r"}),
        ("summary_requested", {"queue": "", "request_id": "r"}),
        ("summary_requested", {"queue": "#1", "request_id": "r"}),
        ("renew_requested", {**_RENEW, "claims": [{**_CLAIM, "queue": " "}]}),
        ("consumer_registered", {"queue": QUEUE, "consumer_id": "w", "digest": _LONG, "gates": []}),
        ("consumer_registered", {"queue": "a:b", "consumer_id": "w", "digest": "d", "gates": []}),
    ],
)
def test_a_word_whose_names_cannot_be_repeated_is_quarantined(
    kind: str, value: dict[str, object]
) -> None:
    log = drr()
    log.ready("a", "a")
    assert claimed(log.beat(capacity=1)) == ["0.1"]
    before = log.rows
    [out] = log.add(kind, value)
    assert (out.kind, out.value["code"]) == ("record_quarantined", "rejected")
    assert "SCH-007" in out.value["reason"]
    assert log.rows == before
    assert claimed(log.ack("0.1")) == ["1.1"], "the partition goes on"


@pytest.mark.parametrize("queue", ["a#²", "a#99999999999", "a#-1", "a#1#2"])
def test_a_queue_whose_shard_is_no_number_is_answered_like_any_other(queue: str) -> None:
    log = drr()
    outs = log.add("summary_requested", {"queue": queue, "request_id": "r"})
    assert [(out.kind, out.key) for out in outs] == [("queue_summary", f"summary:{queue}")]
    assert outs[0].value["shard"] is None
