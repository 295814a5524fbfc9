"""What the relay makes of a record that anyone has written: a job, or why it is none."""

from __future__ import annotations

import pytest

from streams.audit.log import LogRecord
from streams.core.ready_jobs import JOB_BYTES_MAX, Refused
from streams.edge.relay.jobs import dealt_of
from tests.support.invoker_edge import CODEC
from tests.support.worker_edge import body_of

AT_MS = 1_700_000_000_000


def record(value: bytes | None, *headers: tuple[str, bytes], at_ms: int = AT_MS) -> LogRecord:
    return LogRecord(7, at_ms, b"triage", value, list(headers))


@pytest.mark.parametrize(
    ("value", "oversized", "reason"),
    [
        (None, False, "the record has no value"),
        (b"", False, "too_short"),
        (b"no frame", False, "expected a trigger_dispatch record"),
        (CODEC.encode("queue_seen", {"queue": "q"}), False, "the value is a queue_seen record"),
        (body_of("", 1), False, "trigger_id is empty"),
        (body_of("quick", 1, tenant_id="t" * 257), False, "event.tenant_id has 257 characters"),
        (body_of("quick", 1) + b" " * JOB_BYTES_MAX, True, f"at most {JOB_BYTES_MAX}"),
    ],
)
def test_what_is_no_job_is_refused_by_name_and_kept(
    value: bytes | None, oversized: bool, reason: str
) -> None:
    dealt = dealt_of(CODEC, record(value, ("kind", b"what it said")))
    assert isinstance(dealt, Refused)
    assert (dealt.offset, dealt.timestamp_ms, dealt.oversized) == (7, AT_MS, oversized)
    assert (dealt.kind, dealt.key, dealt.value) == ("what it said", b"triage", value or b"")
    assert reason in dealt.reason


def test_a_job_needs_no_header_and_goes_on_as_it_is() -> None:
    body = body_of("quick", 1, tenant_id="a")
    dealt = dealt_of(CODEC, record(body))
    assert not isinstance(dealt, Refused)
    assert (dealt["offset"], dealt["occurred_at_ms"], dealt["body"]) == (7, AT_MS, body)
    assert (dealt["tenant_id"], dealt["trigger_id"], dealt["traceparent"]) == ("a", "quick", None)
    traced = dealt_of(CODEC, record(body, ("traceparent", b"00-1-2-01")))
    assert not isinstance(traced, Refused)
    assert traced["traceparent"] == "00-1-2-01"


def test_a_record_of_the_epoch_is_that_old_and_one_without_a_time_is_new() -> None:
    old, new = (dealt_of(CODEC, record(body_of("quick", 1), at_ms=at_ms)) for at_ms in (0, -1))
    assert not isinstance(old, Refused)
    assert not isinstance(new, Refused)
    assert (old["occurred_at_ms"], new["occurred_at_ms"] > AT_MS) == (0, True)
