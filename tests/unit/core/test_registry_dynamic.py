"""Triggers that are registered and drained one by one, beside manifests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streams.core.bounds import BINDINGS_MAX
from streams.testing import binding
from tests.support.registry_log import RegistryLog
from tests.support.stage_log import Out, kinds


def transitions(outputs: list[Out]) -> list[tuple[str, str | None, str, str]]:
    return [
        (
            out.value["binding_key"],
            out.value["from_state"],
            out.value["to_state"],
            out.value["source"],
        )
        for out in outputs
        if out.kind == "state_transition"
    ]


def refusal(outputs: list[Out]) -> str:
    [out] = outputs
    assert (out.kind, out.value["answer"]) == ("apply_answered", "invalid")
    return out.value["reason"]


def test_a_registered_trigger_is_in_force_as_version_one() -> None:
    log = RegistryLog()
    outputs = log.register(binding("dynamic-a"), request_id="r7")
    assert kinds(outputs) == ["revision_published", "state_transition", "state_transition"]
    published = outputs[0].value
    assert (published["revision"], published["apply_id"]) == (1, "r7")
    assert [each["binding_key"] for each in published["added"]] == ["dynamic-a@v1"]
    assert transitions(outputs) == [
        ("dynamic-a@v1", None, "registering", "dynamic"),
        ("dynamic-a@v1", "registering", "active", "dynamic"),
    ]


def test_an_id_that_exists_in_any_state_is_refused() -> None:
    # Vector 1-02.
    log = RegistryLog()
    log.register(binding("dynamic-a"))
    again = refusal(log.register(binding("dynamic-a", note="other")))
    assert again == "trigger id 'dynamic-a' exists already: dynamic-a@v1 is active"
    log.drain("dynamic-a")
    assert "dynamic-a@v1 is draining" in refusal(log.register(binding("dynamic-a")))
    log.end("dynamic-a@v1", 2)
    assert "dynamic-a@v1 is terminated" in refusal(log.register(binding("dynamic-a")))
    log.apply(binding("by-manifest"))
    assert "by-manifest@v1 is active" in refusal(log.register(binding("by-manifest")))


def test_manifests_leave_a_registered_trigger_alone_and_cannot_take_its_id() -> None:
    log = RegistryLog()
    log.register(binding("dynamic-a"))
    published, *_ = log.apply(binding("other"))
    assert (published.value["added"][0]["trigger_id"], published.value["drained"]) == ("other", [])
    log.apply()
    assert log.states == {"dynamic-a@v1": "active", "other@v1": "draining"}
    refused = refusal(log.apply(binding("dynamic-a")))
    assert refused == "trigger id 'dynamic-a' is registered by itself: deregister it first"
    log.drain("dynamic-a", dynamic_only=True)
    log.end("dynamic-a@v1", 4)
    published, *_ = log.apply(binding("dynamic-a", note="other"))
    assert published.value["added"][0]["binding_key"] == "dynamic-a@v2"


def test_deregistering_drains() -> None:
    log = RegistryLog()
    log.register(binding("dynamic-a"))
    outputs = log.drain("dynamic-a", dynamic_only=True)
    assert outputs[0].value["drained"] == ["dynamic-a@v1"]
    assert transitions(outputs) == [("dynamic-a@v1", "active", "draining", "dynamic")]
    [ended] = log.end("dynamic-a@v1", 2)
    assert ended.value["to_state"] == "terminated"
    [again] = log.drain("dynamic-a", dynamic_only=True)
    assert (again.value["answer"], again.value["reason"]) == (
        "unchanged",
        "trigger 'dynamic-a' takes no new event already",
    )


def test_what_a_manifest_holds_is_drained_only_on_an_operators_word_and_comes_back() -> None:
    log = RegistryLog()
    log.apply(binding("a"), namespace="one")
    refused = refusal(log.drain("a", dynamic_only=True))
    assert refused == "trigger 'a' belongs to the manifest of namespace 'one'"
    outputs = log.drain("a")
    assert (outputs[0].value["namespace"], outputs[0].value["drained"]) == ("one", ["a@v1"])
    published, *_ = log.apply(binding("a"), namespace="one")
    assert published.value["added"][0]["binding_key"] == "a@v1"
    assert log.states == {"a@v1": "active"}
    assert log.rows["b:a@v1"]["source"] == "manifest"


def test_a_trigger_that_nobody_knows_cannot_be_drained() -> None:
    assert refusal(RegistryLog().drain("nope")) == "trigger 'nope' is unknown"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trigger_id": " "}, "a trigger id is blank"),
        ({"kind": "k" * 257}, "kind has 257 characters"),
        ({"definition": "x" * 600_000}, "the change has"),
    ],
)
def test_a_trigger_that_breaks_a_rule_is_refused(changes: dict[str, Any], reason: str) -> None:
    log = RegistryLog()
    found: Any = {**binding("a"), **changes}
    if "definition" in changes:
        found["definition"] = json.dumps(changes["definition"])[:500_500] + '"'
    assert reason in refusal(log.register(found))


def test_requests_with_ids_that_no_record_can_repeat_are_quarantined() -> None:
    log = RegistryLog()
    [out] = log.register(binding("a"), request_id="r" * 257)
    assert out.kind == "record_quarantined"
    assert "REG-002: request_id has 257 characters" in out.value["reason"]
    [out] = log.drain("t" * 257)
    assert "REG-002: trigger_id has 257 characters" in out.value["reason"]


def test_registered_triggers_are_bounded() -> None:
    log = RegistryLog()
    for number in range(BINDINGS_MAX):
        log.add(
            "trigger_registered",
            {
                "request_id": "r",
                "namespace": "default",
                "binding": binding(f"t{number}"),
                "registered_by": "test",
            },
        )
    assert "1000 triggers are registered, which is the most" in refusal(log.register(binding("x")))
