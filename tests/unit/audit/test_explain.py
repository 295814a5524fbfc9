"""What happened to one event, told from the log."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from streams.audit.explain import explain
from streams.cli.trigger_explain import as_json, print_story
from streams.codec import Codec
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
