"""What happened to one event, told from the log."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from streams.audit.explain import READS, explain
from streams.cli.trigger_explain import as_json, print_story, require_readable, unseen_topics
from streams.codec import Codec
from streams.core.wire import RowRegisteredBinding
from streams.edge.registry_view import RegistryLog
from streams.edge.topic_reader import ReadRecord
from streams.errors import BrokerError
from streams.testing import PipelineDriver, event
from tests.support.triggers import bindings_of

MANIFEST = """
[[triggers]]
id = "works"
kind = "webhook"
provider = "github"
match = { events = [] }
handler = "second_time"
rate_limit = { period = "1h", max = 1 }
retry = { max = 3, backoff = "immediate" }

[[triggers]]
id = "fails"
kind = "webhook"
provider = "github"
match = { events = [] }
handler = "never"
retry = { max = 2, backoff = "immediate" }
"""


STARTED = {"dispatch_id": "d", "attempt": 1, "handler_kind": "local", "target_uri": "x"}


def second_time(_event: object, context: object) -> str:
    if context.attempt == 1:  # type: ignore[attr-defined]
        message = "not yet"
        raise RuntimeError(message)
    return "done"


def never(_event: object) -> None:
    message = "never"
    raise RuntimeError(message)


def run() -> PipelineDriver:
    driver = PipelineDriver(handlers={"second_time": second_time, "never": never})
    driver.apply(bindings_of(MANIFEST))
    driver.emit(event("e1"))
    driver.emit(event("e2"))
    driver.finish()
    return driver


def test_each_dispatch_has_its_steps_and_its_outcome() -> None:
    story = explain(run().kafka, Codec(), "e1")
    assert len(story.envelopes) == 1
    outcomes = {each.binding_key: each.outcome for each in story.dispatches.values()}
    assert outcomes == {"works@v1": "dispatch_succeeded", "fails@v1": "dlq_moved"}
    [works] = [each for each in story.dispatches.values() if each.binding_key == "works@v1"]
    kinds = [happening.kind for happening in works.happenings]
    assert kinds.count("attempt_recorded") == 2
    assert "rate_limit_allowed" in kinds
    assert all(happening.value.get("event_id", "e1") == "e1" for happening in works.happenings)


def test_a_skipped_dispatch_says_which_gate_skipped_it() -> None:
    story = explain(run().kafka, Codec(), "e2")
    [works] = [each for each in story.dispatches.values() if each.binding_key == "works@v1"]
    assert works.outcome == "dispatch_skipped"
    assert "rate_limit_blocked" in [happening.kind for happening in works.happenings]


def test_what_others_wrote_about_an_event_is_no_part_of_its_story() -> None:
    driver, codec = run(), Codec()
    before = as_json(explain(driver.kafka, codec, "e1"))
    foreign = codec.encode("lifecycle_dispatch_started", {**STARTED, "event_id": "e1"})
    for topic in READS:
        for kind in (b"event_ingested", b"event_matched", b"dlq_moved", b"\xff", b"DlqMoved"):
            driver.kafka.append(topic, foreign, key=b"e1", headers=[("kind", kind)])
    assert as_json(explain(driver.kafka, codec, "e1")) == before


def test_an_unknown_event_has_no_story() -> None:
    assert not explain(run().kafka, Codec(), "nobody").known


def test_the_tree_names_bindings_outcomes_and_positions() -> None:
    story = explain(run().kafka, Codec(), "e1")
    screen = StringIO()
    print_story(Console(file=screen, width=200, no_color=True), story)
    shown = screen.getvalue()
    for text in ("e1", "works@v1 dispatch_succeeded", "fails@v1 dlq_moved", "trigger.attempts/"):
        assert text in shown
    assert "DispatchStarted" not in shown, "what is said twice is shown once"
    assert as_json(story)["dispatches"][0]["happenings"]


def test_the_tree_shows_of_long_texts_the_beginning_and_no_control_characters() -> None:
    def breaks(_event: object) -> None:
        raise RuntimeError("\x1b[2J\x9b31m[/]" + "x" * 500)

    driver = PipelineDriver(handlers={"second_time": breaks, "never": breaks})
    driver.apply(bindings_of(MANIFEST))
    driver.emit(event("e1"))
    driver.finish()
    story = explain(driver.kafka, Codec(), "e1")
    screen = StringIO()
    print_story(Console(file=screen, width=1_000, no_color=True), story)
    shown = screen.getvalue()
    assert "\\x1b[2J\\x9b31m[/]xxx" in shown
    assert "characters, all of them with --json)" in shown
    assert "x" * 300 not in shown
    assert shown.replace("\n", "").isprintable()
    assert "x" * 500 in str(as_json(story))


def test_a_cancel_is_told_once_where_it_belongs() -> None:
    driver = PipelineDriver(handlers={"second_time": second_time, "never": never}, partitions=3)
    driver.apply(bindings_of(MANIFEST.replace('"immediate"', '"svix"')))
    driver.emit(event("e1"))
    driver.run_until_idle()
    for key in ("fails@v1", "gone@v1"):
        request = {
            "binding_key": key,
            "event_id": "e1",
            "requested_at": "2026-01-01T00:00:00.000Z",
            "requested_by": "ada",
            "audit_id": "trigger_audit_1",
        }
        driver.append("trigger.cancel.requests", "dispatch_cancel_requested", request, key=key)
    driver.run_until_idle()
    story = explain(driver.kafka, Codec(), "e1")
    fails = next(each for each in story.dispatches.values() if each.binding_key == "fails@v1")
    assert fails.outcome == "dispatch_cancelled"
    told = [happening.kind for happening in fails.happenings]
    assert told.count("dispatch_cancel_requested") == 1
    assert [each.kind for each in story.happenings] == ["dispatch_cancel_requested"]
    out = StringIO()
    print_story(Console(file=out, width=200), story)
    assert "requested_by=ada" in out.getvalue()


def test_replays_dead_letters_and_the_action_graph_belong_to_the_story() -> None:
    driver = run()
    [dead] = [
        seen
        for seen in driver.records("trigger.dlq", "dlq_moved")
        if seen.value["event"]["id"] == "e1"
    ]
    entry_id = dead.value["entry_id"]
    driver.emit(event("r1"), trigger_id="fails", replay_of_event_id="e1", dlq_entry_id=entry_id)
    driver.finish()
    story = explain(driver.kafka, Codec(), "e1")
    assert [each.value["event"]["id"] for each in story.replays] == ["r1"]
    fails = next(each for each in story.dispatches.values() if each.binding_key == "fails@v1")
    changes = [each.value["status"] for each in fails.happenings if each.kind == "dlq_entry"]
    assert changes == ["replay_started", "replay_dlq"]
    assert story.graph.nodes["dispatch:works@v1:e1:2"]["status"] == "completed"
    assert story.graph.nodes["dispatch:fails@v1:e1:2"]["status"] == "failed"
    kinds = {(edge["from_id"], edge["kind"]) for edge in story.graph.edges}
    assert ("trigger:e1", "trigger_dispatch") in kinds
    assert ("dispatch:fails@v1:e1:2", "dlq_move") in kinds
    replay = explain(driver.kafka, Codec(), "r1")
    chain = ("trigger:e1", "trigger:r1", "replay_chain")
    assert chain in {(edge["from_id"], edge["to_id"], edge["kind"]) for edge in replay.graph.edges}
    out = StringIO()
    console = Console(file=out, width=200)
    print_story(console, story)
    print_story(console, replay)
    text = out.getvalue()
    assert "replayed as r1" in text
    assert "a replay of e1" in text
    assert "status=replay_dlq" in text
    assert "trigger:e1 → trigger:r1 replay_chain (replay chain)" in text
    shown = as_json(story)
    assert shown["replays"][0]["event_id"] == "r1"
    assert shown["action_graph"]["edges"]


QUEUED = """
[[triggers]]
id = "triage"
kind = "webhook"
provider = "github"
match = { events = [] }
handler = "worker://triage:new"
"""
QUEUE = "triage_new"


def queued(*event_ids: str) -> PipelineDriver:
    driver = PipelineDriver(partitions=1)
    driver.apply(bindings_of(QUEUED))
    for event_id in event_ids:
        driver.emit(event(event_id))
    driver.finish()
    return driver


def decide(driver: PipelineDriver, kind: str, job: str, **fields: object) -> None:
    """Append a record about a job, as scheduler and worker do."""
    topic = f"worker.{QUEUE}.{'responses' if kind == 'job_response' else 'claims'}"
    said = {"queue": QUEUE, "job_event_id": job, "consumer_id": "worker-a", "claim_id": f"{job}.1"}
    driver.kafka.append(
        topic,
        Codec().encode(kind, {**said, **fields}),
        key=job.encode(),
        headers=[("kind", kind.encode())],
        partition=0,
    )


def claim(driver: PipelineDriver, job: str) -> None:
    at = driver.clock.now_ms
    decide(
        driver,
        "job_claimed",
        job,
        fence=1,
        incarnation="i",
        delivery=1,
        fairness_key="_",
        promoted=False,
        claimed_at_ms=at,
        expires_at_ms=at + 1_000,
    )


def test_a_job_on_a_queue_belongs_to_the_story_of_its_event() -> None:
    driver = queued("e1", "e2")
    [dispatch] = explain(driver.kafka, Codec(), "e2").dispatches.values()
    [job] = dispatch.jobs
    assert (job.queue, job.job_event_id, job.outcome) == (QUEUE, "1", "ready")
    assert [each.kind for each in job.happenings] == ["trigger_dispatch"]

    claim(driver, "0")
    claim(driver, "1")
    driver.run_until_idle()
    [dispatch] = explain(driver.kafka, Codec(), "e2").dispatches.values()
    assert [job.outcome for job in dispatch.jobs] == ["claimed"]
    decide(
        driver,
        "job_response",
        "1",
        trigger_id="triage",
        event_id="e2",
        dispatch_id=dispatch.dispatch_id,
        handled_at_ms=driver.clock.now_ms,
        outcome="succeeded",
        result="42",
        error=None,
    )
    driver.clock.move(1)
    decide(driver, "job_acked", "1", fence=1, acked_at_ms=driver.clock.now_ms)
    driver.run_until_idle()
    story = explain(driver.kafka, Codec(), "e2")
    [dispatch] = story.dispatches.values()
    [job] = dispatch.jobs
    assert job.outcome == "job_acked"
    kinds = [each.kind for each in job.happenings]
    assert kinds == ["trigger_dispatch", "job_claimed", "job_response", "job_acked"]

    [shown] = as_json(story)["dispatches"][0]["jobs"]
    assert (shown["job_event_id"], shown["outcome"]) == ("1", "job_acked")
    out = StringIO()
    print_story(Console(file=out, width=200), story)
    assert f"job 1 of queue {QUEUE} job_acked" in out.getvalue()
    assert "consumer_id=worker-a" in out.getvalue()


def registered(driver: PipelineDriver) -> list[RowRegisteredBinding]:
    log = RegistryLog(Codec())
    log.add(
        [
            ReadRecord(0, record.offset, record.timestamp, record.key, record.value, record.headers)
            for _, record in driver.kafka.history("triggers.registry")
        ]
    )
    return list(log.view().rows)


def test_topics_that_belong_to_the_story_and_are_not_to_be_seen_are_named() -> None:
    driver = run()
    story = explain(driver.kafka, Codec(), "e1")
    rows = registered(driver)
    names = driver.kafka.topic_names()
    assert unseen_topics(names, story, rows) == []
    hidden = names - {"trigger.rate_limit.works", "trigger.rate_limit.of_another"}
    assert unseen_topics(hidden, story, rows) == ["trigger.rate_limit.works"]
    queue = queued("e1")
    story = explain(queue.kafka, Codec(), "e1")
    assert unseen_topics([], story, registered(queue)) == [
        f"worker.{QUEUE}",
        f"worker.{QUEUE}.claims",
        f"worker.{QUEUE}.responses",
    ]


def test_what_every_explanation_needs_must_be_seen() -> None:
    require_readable(READS)
    with pytest.raises(BrokerError, match=r"^trigger.outbox cannot be seen.*role operator"):
        require_readable([topic for topic in READS if topic != "trigger.outbox"])


def test_a_result_that_only_looks_like_a_receipt_is_followed_nowhere() -> None:
    def answers(_event: object) -> dict[str, str]:
        return {"queue": "triage", "dispatch_id": "of another", "response_topic": "x"}

    driver = PipelineDriver(handlers={"answers": answers})
    driver.apply(bindings_of(QUEUED.replace("worker://triage:new", "answers")))
    driver.emit(event("e1"))
    driver.finish()
    [dispatch] = explain(driver.kafka, Codec(), "e1").dispatches.values()
    assert (dispatch.outcome, dispatch.jobs) == ("dispatch_succeeded", [])
