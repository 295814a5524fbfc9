"""What each step of a dispatch adds to the action graph (SEMANTICS 2.11)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streams.testing import event, policy, retry_policy
from tests.support.dispatch_log import LEASE_MS, DispatchLog, completed
from tests.support.gate_log import GateLog, gated
from tests.support.revisions import revision, versioned
from tests.support.stage_log import Out, StageLog

KEY = "triage@v1"
EVENT = "event-of-d1"


def nodes(log: StageLog) -> dict[str, tuple[str, str, str]]:
    """Nodes of the last step: kind, status, outcome."""
    return {
        node["id"]: (node["kind"], node["status"], node["outcome"])
        for update in log.drawn
        for node in update.value["observability"]["action_graph_nodes"]
    }


def edges(log: StageLog) -> list[tuple[str, str, str, str | None]]:
    """Edges of the last step."""
    return [
        (edge["from_id"], edge["to_id"], edge["kind"], edge["label"])
        for update in log.drawn
        for edge in update.value["observability"]["action_graph_edges"]
    ]


def only(log: StageLog) -> Out:
    [update] = log.drawn
    return update


def test_an_event_that_is_delivered_at_once_costs_two_updates() -> None:
    log = DispatchLog()
    log.match("d1", found=event(EVENT, tenant_id="acme", dedupe_key="x1"))
    trigger, attempt = f"trigger:{EVENT}", f"dispatch:{KEY}:{EVENT}:1"
    assert nodes(log) == {
        trigger: ("trigger", "received", "received"),
        attempt: ("dispatch", "running", "attempt_1"),
    }
    assert edges(log) == [(trigger, attempt, "trigger_dispatch", None)]
    update = only(log)
    assert (update.topic, update.key) == ("observability.action_graph", EVENT)
    assert update.headers["tenant_id"] == "acme"
    value = update.value
    assert (value["source"], value["event_id"]) == ("dispatcher", EVENT)
    assert value["trace_id"] == f"trace_{EVENT}"
    assert value["observability"]["schema_version"] == 1
    assert value["context"] == {"dispatch_id": "d1", "binding_key": KEY, "trigger_id": "triage"}
    first, second = value["observability"]["action_graph_nodes"]
    assert (first["label"], first["trace_id"]) == ("github:issues.opened", f"trace_{EVENT}")
    assert first["metadata"] == {
        "provider": "github",
        "event_kind": "issues.opened",
        "signature_status": "unsigned",
        "dedupe_key": "x1",
    }
    assert second["metadata"] == {
        "handler_kind": "local",
        "target_uri": "on_event",
        "attempt": "1",
        "trigger_id": "triage",
        "event_id": EVENT,
    }
    log.complete("success", result="1")
    assert nodes(log) == {attempt: ("dispatch", "completed", "success")}
    assert edges(log) == []
    assert only(log).value["trace_id"] == f"trace_{EVENT}"


@pytest.mark.parametrize("gates", [{}, {"when": "cel:true"}, {"when": "is_big"}])
@pytest.mark.parametrize("dedupe_key", [None, "delivery-{}", "x{}"])
def test_updates_that_are_alike_differ_in_ids_alone(
    gates: dict[str, Any], dedupe_key: str | None
) -> None:
    """Once a pattern is known, the engine fills in ids; the first updates are drawn whole."""
    log = GateLog(gates)
    told: list[list[str]] = []
    asks = gates.get("when") == "is_big"
    for number in range(510, 530):
        key = None if dedupe_key is None else dedupe_key.format(number)
        found = event(f"trigger_evt_{number}", dedupe_key=key)
        name = f"dispatch-{number}"
        log.arrive(name, number, keys={"when": "true"}, found=found)
        drawn = [*log.drawn]
        if asks:
            log.add("invocation_completed", completed("success", name, attempt=0, result="true"))
            drawn += log.drawn
        log.end(name, number, fence=2 if asks else 1)
        drawn += log.drawn
        told.append([json.dumps(update.value).replace(str(number), "#") for update in drawn])
    assert all(each == told[0] for each in told)
    assert len(told[0]) == (3 if asks else 2)


def test_a_retry_is_a_node_between_two_attempts_and_the_last_one_leads_to_the_dlq() -> None:
    log = DispatchLog(retry_policy("svix", max_attempts=2))
    log.match("d1")
    log.complete("timeout", error="too slow")
    first, second = (f"dispatch:{KEY}:{EVENT}:{number}" for number in (1, 2))
    retry, dead = f"retry:{KEY}:{EVENT}:1", f"dlq:{KEY}:{EVENT}"
    assert nodes(log) == {
        first: ("dispatch", "failed", "timeout"),
        retry: ("retry", "scheduled", "attempt_2"),
    }
    assert edges(log) == [(first, retry, "retry", "attempt 2")]
    [_, planned] = only(log).value["observability"]["action_graph_nodes"]
    assert planned["label"] == "retry in 5000 ms"
    assert (planned["metadata"]["delay_ms"], planned["metadata"]["error"]) == ("5000", "too slow")
    log.tick(after_ms=5_000)
    assert nodes(log) == {second: ("dispatch", "running", "attempt_2")}
    assert edges(log) == [(retry, second, "retry", "attempt 2")]
    assert only(log).value["trace_id"] == f"trace_{EVENT}"
    log.complete("failed", error="no", error_class="handler_error", fence=2)
    assert nodes(log) == {
        second: ("dispatch", "failed", "failed"),
        dead: ("dlq", "queued", "retry_exhausted"),
    }
    assert edges(log) == [(second, dead, "dlq_move", "2 attempts")]


def test_a_retry_at_once_is_one_update() -> None:
    log = DispatchLog()
    log.match("d1")
    log.complete("failed", error="no")
    assert len(log.drawn) == 1
    assert [kind for kind, _, _ in nodes(log).values()] == ["dispatch", "retry", "dispatch"]
    assert [kind for _, _, kind, _ in edges(log)] == ["retry", "retry"]


def test_a_predicate_stands_between_trigger_and_attempt() -> None:
    log = StageLog("dispatch")
    bound = gated({"when": "cel:true"})
    log.add("revision_published", revision(1, added=[bound]))
    word: dict[str, Any] = {
        "dispatch_id": "d1",
        "trigger_id": "triage",
        "binding_key": KEY,
        "accepted_at_ms": 1,
        "replay_of_event_id": None,
        "event": event(EVENT),
        "keys": {"when": "true"},
    }
    log.add("event_matched", word)
    trigger, predicate = f"trigger:{EVENT}", f"predicate:{KEY}:{EVENT}"
    attempt = f"dispatch:{KEY}:{EVENT}:1"
    assert nodes(log)[predicate] == ("predicate", "completed", "true")
    assert edges(log) == [
        (trigger, predicate, "trigger_dispatch", None),
        (predicate, attempt, "predicate_gate", "true"),
    ]
    keys = {"when": "failed: no such key"}
    log.add("event_matched", {**word, "dispatch_id": "d2", "event": event("e2"), "keys": keys})
    assert nodes(log) == {
        "trigger:e2": ("trigger", "received", "received"),
        f"predicate:{KEY}:e2": ("predicate", "completed", "false"),
    }
    [_, drawn] = only(log).value["observability"]["action_graph_nodes"]
    assert drawn["metadata"]["reason"] == "failed: no such key"


def test_a_gated_dispatch_is_drawn_when_it_comes_and_when_it_starts() -> None:
    log = GateLog({"when": "cel:true", "concurrency": {"max": 1}})
    log.arrive("a", 0, keys={"when": "true"})
    log.arrive("b", 1, keys={"when": "true"})
    assert [kind for kind, _, _ in nodes(log).values()] == ["trigger", "predicate"]
    log.end("a", 2)
    ended, started = log.drawn  # one for each dispatch that the step is about
    assert (ended.value["event_id"], started.value["event_id"]) == ("a", "b")
    assert edges(log) == [
        (f"predicate:{KEY}:b", f"dispatch:{KEY}:b:1", "predicate_gate", "true"),
    ]
    assert started.value["trace_id"] == "trace_b"
    plain = GateLog({"concurrency": {"max": 1}})
    plain.arrive("a", 0)
    plain.arrive("b", 1)
    assert nodes(plain) == {"trigger:b": ("trigger", "received", "received")}


def test_a_replay_is_chained_to_the_event_that_it_replays() -> None:
    log = DispatchLog()
    log.match("d1", replay_of_event_id="e0")
    assert nodes(log)["trigger:e0"] == ("trigger", "historical", "replayed_from")
    assert edges(log)[0] == ("trigger:e0", f"trigger:{EVENT}", "replay_chain", "replay chain")
    assert only(log).value["context"]["replay_of_event_id"] == "e0"


def test_dead_letters_without_an_attempt_lead_from_trigger_or_predicate() -> None:
    log = DispatchLog()
    word: dict[str, Any] = {
        "dispatch_id": "d1",
        "trigger_id": "triage",
        "binding_key": KEY,
        "accepted_at_ms": 1,
        "replay_of_event_id": None,
        "event": event(EVENT),
        "keys": {"error": "no such field"},
    }
    log.add("event_matched", word)
    assert edges(log) == [
        (f"trigger:{EVENT}", f"dlq:{KEY}:{EVENT}", "dlq_move", "expression_failed")
    ]
    assert nodes(log)[f"dlq:{KEY}:{EVENT}"] == ("dlq", "queued", "expression_failed")


def test_an_attempt_whose_invokers_are_lost_leads_to_the_dlq() -> None:
    log = DispatchLog()
    log.match("d1")
    for fence in range(1, 18):
        log.run("d1", fence=fence)
        log.tick(after_ms=LEASE_MS)
    assert edges(log) == [
        (f"dispatch:{KEY}:{EVENT}:1", f"dlq:{KEY}:{EVENT}", "dlq_move", "0 attempts")
    ]


def cancel(log: DispatchLog) -> None:
    log.add(
        "dispatch_cancel_requested",
        {
            "binding_key": KEY,
            "event_id": EVENT,
            "requested_at": "",
            "requested_by": "ada",
            "audit_id": None,
        },
    )


def test_a_cancelled_attempt_and_a_cancelled_retry_say_so() -> None:
    log = DispatchLog(retry_policy("svix"))
    log.match("d1")
    cancel(log)
    assert log.drawn == []
    log.complete("success")
    assert nodes(log) == {f"dispatch:{KEY}:{EVENT}:1": ("dispatch", "cancelled", "cancelled")}
    log = DispatchLog(retry_policy("svix"))
    log.match("d1")
    log.complete("failed")
    cancel(log)
    assert nodes(log) == {f"retry:{KEY}:{EVENT}:1": ("retry", "cancelled", "cancelled")}
    log = DispatchLog()
    cancel(log)
    log.match("d1")
    assert nodes(log) == {f"trigger:{EVENT}": ("trigger", "received", "received")}


def test_a_job_is_a_node_of_its_own_kind() -> None:
    log = StageLog("dispatch")
    bound = versioned()
    queued = {
        **bound,
        "handler": "triage-queue",
        "handler_kind": "worker",
        "target_uri": "worker://triage-queue",
        "definition": json.dumps(
            {**json.loads(bound["definition"]), "handler": "worker://triage-queue"}
        ),
    }
    log.add("revision_published", revision(1, added=[queued]))  # type: ignore[list-item]
    word = {
        "dispatch_id": "d1",
        "trigger_id": "triage",
        "binding_key": KEY,
        "accepted_at_ms": 1,
        "replay_of_event_id": None,
        "event": event(EVENT),
        "keys": {},
    }
    log.add("event_matched", word)
    assert nodes(log)[f"dispatch:{KEY}:{EVENT}:1"] == ("worker_enqueue", "completed", "enqueued")
    [_, node] = only(log).value["observability"]["action_graph_nodes"]
    assert node["metadata"]["queue_name"] == "triage-queue"
    assert node["metadata"]["response_topic"] == "worker.triage-queue.responses"


def test_what_is_quarantined_or_only_renews_a_lease_draws_nothing() -> None:
    log = DispatchLog()
    log.match("d1", binding_key="gone@v1")
    assert log.drawn == []
    log.match("d1")
    log.run("d1")
    assert log.drawn == []
    log.complete("success", fence=9)
    assert log.drawn == []


def test_errors_are_cut_where_several_nodes_repeat_them() -> None:
    log = DispatchLog()
    log.match("d1")
    log.complete("denied", error="x" * 2_000, error_class="auth_failed")
    for node in only(log).value["observability"]["action_graph_nodes"]:
        text = node["metadata"].get("error") or node["metadata"]["final_error"]
        assert len(text) == 300


def test_drawing_can_be_left_to_others() -> None:
    log = DispatchLog()
    log.add("revision_published", revision(2, in_force=policy(action_graph=False)))
    log.match("d1")
    assert log.drawn == []
    log.complete("failed")
    assert log.drawn == []
    log.assert_replays([1])


def test_a_predicate_that_is_a_function_is_drawn_when_its_verdict_comes() -> None:
    log = GateLog({"when": "is_big"})
    log.arrive("a", 0)
    assert nodes(log) == {"trigger:a": ("trigger", "received", "received")}
    log.add("invocation_completed", completed("success", "a", attempt=0, result="true"))
    predicate = f"predicate:{KEY}:a"
    assert nodes(log)[predicate] == ("predicate", "completed", "true")
    assert edges(log) == [
        ("trigger:a", predicate, "trigger_dispatch", None),
        (predicate, f"dispatch:{KEY}:a:1", "predicate_gate", "true"),
    ]
    assert len(log.drawn) == 1
