"""`dedupe_key`: evaluated by the inbox, claimed in dispatch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from streams.core.intake_plan import plan_of, take
from streams.expressions import EXPRESSIONS
from streams.testing import event, policy
from tests.support.dispatch_log import matched
from tests.support.gate_log import gated
from tests.support.revisions import revision
from tests.support.stage_log import Out, StageLog, kinds
from tests.support.triggers import published

DAY_MS = 86_400_000
ORDER = 'dedupe_key = "event.payload.order"'
TRIGGER = """
[[triggers]]
id = "t"
kind = "webhook"
provider = "github"
match = { events = [] }
handler = "f"
"""


def taken(lines: str, payload: object, *, replay: bool = False) -> Any:
    [binding] = published(TRIGGER + lines)
    found = event("e1", payload=payload)
    return take(plan_of(binding), binding, found, EXPRESSIONS, replay=replay)


# ---------------------------------------------------------------------- where it is evaluated
def test_matches_with_one_value_meet_in_one_partition() -> None:
    one = taken(ORDER, {"order": 7})
    assert (one.keys, one.scope) == ({"dedupe": "7"}, "t:7")


@pytest.mark.parametrize("payload", [{}, {"order": None}, {"order": ""}, {"order": " \t"}])
def test_an_event_without_the_value_is_nobodys_repeat(payload: object) -> None:
    found = taken(ORDER, payload)
    assert (found.keys, found.scope) == ({}, "e1")


@pytest.mark.parametrize("value", [0, False, [], "0"])
def test_a_value_that_is_false_is_a_value(value: object) -> None:
    assert "dedupe" in taken(ORDER, {"order": value}).keys


def test_a_replay_is_meant_to_be_a_repeat() -> None:
    found = taken(ORDER, {"order": 7}, replay=True)
    assert (found.keys, found.scope) == ({}, "e1")


def test_it_is_keyed_by_the_gates_only_if_all_declare_the_same_expression() -> None:
    same = taken(ORDER + '\nconcurrency = { max = 1, key = "event.payload.order" }', {"order": "a"})
    assert (same.keys, same.scope) == ({"concurrency": "a", "dedupe": "a"}, "t:a")
    other = taken(ORDER + '\nconcurrency = { max = 1, key = "event.kind" }', {"order": "a"})
    assert other.scope == "t"
    unkeyed = taken(ORDER + "\nsingleton = {}", {"order": "a"})
    assert unkeyed.scope == "t"


# ---------------------------------------------------------------------- where it is claimed
class ClaimLog(StageLog):
    def __init__(self, flow: Mapping[str, Any] | None = None, *, rows_max: int = 1_000) -> None:
        super().__init__("dispatch")
        bound = gated(flow or {})
        in_force = policy(dedupe_rows_max=rows_max)
        self.add("revision_published", revision(1, added=[bound], in_force=in_force))

    def match(self, name: str, value: str) -> list[Out]:
        return self.add("event_matched", {**matched(name), "keys": {"dedupe": value}})

    def claims(self) -> list[str]:
        return [row["dedupe_key"] for key, row in self.rows.items() if key.startswith("k:")]


def test_the_first_one_claims_the_value_and_repeats_are_skipped_on_the_record() -> None:
    log = ClaimLog()
    outs = log.match("a", "7")
    assert kinds(outs)[0] == "dedupe_claim"
    assert (outs[0].topic, outs[0].key) == ("trigger.inbox.claims", "triage:7")
    assert outs[0].value["expires_at_ms"] == log.now_ms + 7 * DAY_MS
    assert "invoke" in kinds(outs)
    [skipped] = log.match("b", "7")
    assert skipped.value["skip_stage"] == "dedupe"
    assert json.loads(skipped.value["detail"]) == {
        "dedupe_key": "7",
        "first_event_id": "event-of-a",
    }
    assert "invoke" in kinds(log.match("c", "8"))


def test_repeats_and_what_is_remembered_are_counted() -> None:
    log = ClaimLog({"retry": {"retention_days": 2}}, rows_max=2)
    for number, value in enumerate("xyxzx"):
        log.now_ms += 1
        log.match(f"d{number}", value)
    # The third is a repeat; the fourth takes the room of x, and the fifth that of y.
    assert log.rows["dedupe"] == {"duplicates": 1, "forgotten": 2, "active": 2}
    log.tick(2 * DAY_MS)
    assert log.rows["dedupe"] == {"duplicates": 1, "forgotten": 4, "active": 0}
    log.match("later", "z")
    assert log.rows["dedupe"] == {"duplicates": 1, "forgotten": 4, "active": 1}
    log.assert_replays([2, 1], reload_at=frozenset({1, 2}))


def test_a_lower_bound_is_reached_with_the_next_claim() -> None:
    log = ClaimLog()
    for number in range(5):
        log.now_ms += 1
        log.match(f"d{number}", f"v{number}")
    fewer = policy(dedupe_rows_max=2)
    log.add("revision_published", revision(2, in_force=fewer))
    log.match("next", "new")
    assert sorted(log.claims()) == ["new", "v4"], "what expires first goes first"


def test_a_trigger_s_claims_are_not_another_s_whatever_their_ids_hold() -> None:
    log = ClaimLog()
    bound: Any = gated({})
    other: Any = {**bound, "trigger_id": "triage:a", "binding_key": "triage:a@v1"}
    log.add("revision_published", revision(2, added=[other]))
    log.match("d1", "a:b")
    word = {**matched("d2"), "trigger_id": "triage:a", "binding_key": "triage:a@v1"}
    assert "invoke" in kinds(log.add("event_matched", {**word, "keys": {"dedupe": "b"}}))


def test_a_claim_outlives_its_dispatch_and_ends_with_its_days() -> None:
    log = ClaimLog({"retry": {"retention_days": 2}, "when": "cel:false"})
    log.match("a", "7")
    log.now_ms += 2 * DAY_MS - 1
    assert kinds(log.match("b", "7")) == ["dispatch_skipped"]
    log.now_ms += 1
    outs = log.match("c", "7")
    assert [(out.kind, out.value != {}) for out in outs if out.kind == "dedupe_claim"] == [
        ("dedupe_claim", False),  # the key is removed from the topic
        ("dedupe_claim", True),
    ]
    log.assert_replays([2, 1], reload_at=frozenset({1, 2}))


def test_claims_are_bounded_and_the_one_that_expires_first_goes_first() -> None:
    log = ClaimLog(rows_max=2)
    for number, value in enumerate(("x", "y", "z")):
        log.now_ms += 1
        outs = log.match(f"d{number}", value)
    assert [out.key for out in outs if out.value == {}] == ["triage:x"]
    assert sorted(log.claims()) == ["y", "z"]
    assert "invoke" in kinds(log.match("again", "x"))


def test_a_claim_holds_for_every_version_of_its_trigger() -> None:
    log = ClaimLog()
    log.match("a", "7")
    second: Any = {**gated({"note": "v2"}), "version": 2, "binding_key": "triage@v2"}
    log.add("revision_published", revision(2, added=[second], drained=["triage@v1"]))
    word = {**matched("b", binding_key="triage@v2"), "keys": {"dedupe": "7"}}
    assert kinds(log.add("event_matched", word)) == ["dispatch_skipped"]
