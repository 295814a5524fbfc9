"""`worker://<queue>`: a dispatch ends by becoming a job."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

import pytest

from streams.core.flow import flow_of
from streams.core.manifest import Manifest, parse_manifest
from streams.expressions import EXPRESSIONS
from streams.testing import event
from tests.support.dispatch_log import matched
from tests.support.gate_log import gated
from tests.support.revisions import revision
from tests.support.stage_log import Out, StageLog, kinds
from tests.support.triggers import published

TRIGGER = """
[[triggers]]
id = "triage"
kind = "webhook"
provider = "github"
match = { events = [] }
"""


def queued(queue: str = "triage-queue", flow: Mapping[str, Any] | None = None) -> Any:
    bound = gated(flow or {})
    return {
        **bound,
        "handler": queue,
        "handler_kind": "worker",
        "target_uri": f"worker://{queue}",
    }


def log_of(bound: Any, *, partition: int = 0) -> tuple[StageLog, list[Out]]:
    log = StageLog("dispatch", partition=partition, partitions=2)
    return log, log.add("revision_published", revision(1, added=[bound]))


def only(outs: list[Out], kind: str) -> Out:
    [found] = [out for out in outs if out.kind == kind]
    return found


def test_a_dispatch_becomes_one_job_and_its_receipt_is_the_result() -> None:
    log, _ = log_of(queued())
    outs = log.add("event_matched", matched("d1"), headers={"traceparent": "00-ab-cd-01"})
    assert kinds(outs) == [
        "DispatchStarted",
        "dispatch_started",
        "trigger_dispatch",
        "attempt_recorded",
        "DispatchSucceeded",
        "dispatch_succeeded",
    ]
    job = only(outs, "trigger_dispatch")
    assert (job.topic, job.key) == ("worker.triage-queue", "triage-queue")
    said = {key: job.value[key] for key in job.value if key != "event"}
    assert said == {
        "queue": "triage-queue",
        "dispatch_id": "d1",
        "trigger_id": "triage",
        "binding_key": "triage@v1",
        "binding_version": 1,
        "priority": "normal",
        "replay_of_event_id": None,
    }
    assert job.value["event"]["id"] == "event-of-d1"
    headers = {key: job.headers[key] for key in job.headers if key not in {"cause", "fold"}}
    assert headers == {
        "binding_key": "triage@v1",
        "event_id": "event-of-d1",
        "priority": "normal",
        "queue": "triage-queue",
        "traceparent": "00-ab-cd-01",
        "trigger_id": "triage",
    }
    assert json.loads(only(outs, "dispatch_succeeded").value["result"]) == {
        "queue": "triage-queue",
        "dispatch_id": "d1",
        "job_event_id": None,
        "job_topic": "worker.triage-queue",
        "response_topic": "worker.triage-queue.responses",
    }
    assert not [key for key in log.rows if key.startswith(("d:", "e:"))]


@pytest.mark.parametrize(
    ("header", "declared", "expected"),
    [
        (" HIGH ", "low", "high"),  # vector 5-14
        ("normal", "high", "normal"),  # … as decided: an explicit word counts
        ("urgent", "low", "low"),
        (None, "high", "high"),
        (None, None, "normal"),
    ],
)
def test_the_events_priority_overrides_the_triggers(
    header: str | None, declared: str | None, expected: str
) -> None:
    log, _ = log_of(queued(flow={} if declared is None else {"priority": declared}))
    headers = {} if header is None else {"priority": header}
    word = matched("d1", found=event("e1", headers=headers))
    job = only(log.add("event_matched", word), "trigger_dispatch")
    assert (job.value["priority"], job.headers["priority"]) == (expected, expected)


def test_predicates_and_gates_come_first() -> None:
    flow = {"when": "is_big", "rate_limit": {"period_ms": 60_000, "max": 1}}
    log, _ = log_of(queued(flow=flow))
    assert kinds(log.add("event_matched", matched("d1"))) == ["invoke"]
    log, _ = log_of(queued(flow={"rate_limit": {"period_ms": 60_000, "max": 1}}))
    assert "trigger_dispatch" in kinds(log.add("event_matched", matched("d1")))
    assert "trigger_dispatch" not in kinds(log.add("event_matched", matched("d2")))


def test_a_slot_is_held_for_no_time_at_all() -> None:
    log, _ = log_of(queued(flow={"concurrency": {"max": 1}}))
    for name in ("d1", "d2", "d3"):
        assert "trigger_dispatch" in kinds(log.add("event_matched", matched(name)))
    log.assert_replays([2, 1], reload_at=frozenset({1}))


def test_the_catalog_hears_of_a_queue_once() -> None:
    _, outs = log_of(queued("a:b"))
    [seen] = outs
    assert (seen.topic, seen.key, seen.value) == ("worker.queues", "a:b", {"queue": "a:b"})
    _, outs = log_of(queued("a:b"), partition=1)
    assert outs == []


# ---------------------------------------------------------------------- manifests
def test_a_manifest_names_a_queue_and_a_priority() -> None:
    [bound] = published(TRIGGER + 'handler = "worker:// triage "\npriority = "high"\n')
    assert (bound["handler"], bound["handler_kind"], bound["target_uri"]) == (
        "triage",
        "worker",
        "worker://triage",
    )
    flow = flow_of(bound)
    assert (flow.queue, flow.queue_priority, flow.priority) == ("triage", "high", ())


def test_a_batch_may_be_a_job_of_a_priority() -> None:
    lines = 'handler = "worker://q"\npriority = "low"\nbatch = { size = 2, timeout = "1m" }\n'
    assert len(published(TRIGGER + lines)) == 1


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('handler = "worker://requests"', "whose topic worker.requests has another use"),
        ('handler = "worker://a.claims"', "whose topic worker.a.claims has another use"),
        (f'handler = "worker://{"q" * 192}"', "expected at most 200 characters, not 201"),
        ('handler = "worker://q"\npriority = "urgent"', "expected one of high, normal, low"),
        ('handler = "worker://a\\tb"', "has no control characters"),
        ('handler = "worker://q"\ntimeout = "5s"', "timeout is for functions"),
        ('handler = "worker://q"\nexecutor = "thread"', "executor is for functions"),
        ('handler = "worker://q"\ncircuit = "dlq"', "circuit never opens for a queue"),
        ('handler = "a2a://host/x"', "a2a:// is not built in this release"),
        ('handler = "pool://x"', "pool:// is not built in this release"),
    ],
)
def test_what_a_queue_cannot_be_or_take_is_refused(lines: str, words: str) -> None:
    found = parse_manifest(tomllib.loads(TRIGGER + lines), "harn.toml", EXPRESSIONS)
    assert not isinstance(found, Manifest)
    assert words in "\n".join(found)
