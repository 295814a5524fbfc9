from typing import Any

import pytest

from streams.core import bounds
from streams.engine import MAX_INPUT_BYTES
from streams.testing import binding, policy, retry_policy
from tests.support.registry_log import RegistryLog
from tests.support.stage_log import Out
from tests.support.webhooks import with_path


def moves(outputs: list[Out]) -> list[tuple[str, str | None, str]]:
    return [
        (out.value["binding_key"], out.value["from_state"], out.value["to_state"])
        for out in outputs
        if out.kind == "state_transition"
    ]


def answer(outputs: list[Out]) -> tuple[str, str]:
    [out] = outputs
    assert out.kind == "apply_answered"
    assert (out.topic, out.partition) == ("triggers.registry", 0)
    return out.value["answer"], out.value["reason"]


# ---------------------------------------------------------------------- publishing
def test_a_new_binding_becomes_version_1_and_active() -> None:  # vector 1-01
    log = RegistryLog()
    published, *others = log.apply(binding("a"))
    assert published.kind == "revision_published"
    assert published.value["revision"] == 1
    assert [added["binding_key"] for added in published.value["added"]] == ["a@v1"]
    assert moves(others) == [("a@v1", None, "registering"), ("a@v1", "registering", "active")]
    assert log.states == {"a@v1": "active"}


def test_a_changed_binding_drains_the_old_version_beside_the_new_one() -> None:  # vector 1-04
    log = RegistryLog()
    log.apply(binding("a"))
    published, *others = log.apply(binding("a", note="changed"))
    assert published.value["drained"] == ["a@v1"]
    assert moves(others) == [
        ("a@v1", "active", "draining"),
        ("a@v2", None, "registering"),
        ("a@v2", "registering", "active"),
    ]
    assert log.states == {"a@v1": "draining", "a@v2": "active"}
    assert moves(log.end("a@v1", 2)) == [("a@v1", "draining", "terminated")]


def test_only_the_two_newest_versions_are_remembered() -> None:  # vector 1-05
    log = RegistryLog()
    log.apply(binding("a", note="1"))
    log.apply(binding("a", note="2"))
    log.apply(binding("a", note="3"))
    log.end("a@v1", 2)
    assert set(log.states) == {"a@v2", "a@v3"}
    log.end("a@v2", 3)
    assert log.states == {"a@v2": "terminated", "a@v3": "active"}


def test_a_binding_goes_through_its_states_in_order() -> None:  # vector 1-06
    log = RegistryLog()
    outputs = [*log.apply(binding("a")), *log.apply(), *log.end("a@v1", 2)]
    states = [to_state for _, _, to_state in moves(outputs)]
    assert states == ["registering", "active", "draining", "terminated"]


def test_bindings_are_added_and_drained_in_id_order() -> None:
    log = RegistryLog()
    log.apply(binding("x"), binding("b"), binding("m"))
    published = log.apply(binding("z"), binding("c"))[0]
    assert [added["trigger_id"] for added in published.value["added"]] == ["c", "z"]
    assert published.value["drained"] == ["b@v1", "m@v1", "x@v1"]


# ---------------------------------------------------------------------- versions
def test_an_earlier_definition_gets_its_earlier_version_back() -> None:
    log = RegistryLog()
    log.apply(binding("a", note="1"))
    log.apply(binding("a", note="2"))
    outputs = log.apply(binding("a", note="1"))
    assert moves(outputs) == [("a@v2", "active", "draining"), ("a@v1", "draining", "active")]


def test_a_version_number_is_never_given_twice() -> None:
    log = RegistryLog()
    for note in range(1, 6):
        log.apply(binding("a", note=str(note)))
        if note > 1:
            log.end(f"a@v{note - 1}", note)
    log.apply()
    log.end("a@v5", 6)
    published = log.apply(binding("a", note="1"))[0]
    assert [added["binding_key"] for added in published.value["added"]] == ["a@v6"]


def test_an_end_from_before_a_revival_says_nothing() -> None:
    log = RegistryLog()
    log.apply(binding("a"))
    log.apply()
    log.end("a@v1", 2, partitions=[0])
    log.apply(binding("a"))
    assert log.end("a@v1", 2, partitions=[1]) == []
    log.apply()
    assert log.end("a@v1", 2) == []
    assert log.states == {"a@v1": "draining"}
    assert moves(log.end("a@v1", 4)) == [("a@v1", "draining", "terminated")]


def test_a_partition_that_says_it_twice_counts_once() -> None:
    log = RegistryLog()
    log.apply(binding("a"))
    log.apply()
    assert log.end("a@v1", 2, partitions=[0, 0, 0]) == []
    assert moves(log.end("a@v1", 2, partitions=[1])) == [("a@v1", "draining", "terminated")]
    assert log.end("a@v1", 2, partitions=[1]) == []


# ---------------------------------------------------------------------- compare and set
def test_the_loser_of_a_race_is_told() -> None:
    log = RegistryLog()
    log.apply(binding("a"))
    before = log.rows
    what, reason = answer(log.apply(binding("b"), expected_revision=0))
    assert what == "conflict"
    assert "revision 1 is in force" in reason
    assert "compared with revision 0" in reason
    assert log.rows == before


def test_the_same_manifest_again_changes_nothing() -> None:
    log = RegistryLog()
    log.apply(binding("a"))
    assert answer(log.apply(binding("a")))[0] == "unchanged"
    assert log.rows["revision"]["revision"] == 1


def test_the_first_manifest_is_published_even_when_it_is_empty() -> None:
    log = RegistryLog()
    assert log.apply()[0].kind == "revision_published"
    assert answer(log.apply())[0] == "unchanged"


def test_another_policy_alone_is_a_revision() -> None:
    log = RegistryLog()
    log.apply(binding("a"))
    [published] = log.apply(binding("a"), in_force=policy(lease_ms=1))
    assert published.value["policy"]["lease_ms"] == 1
    assert published.value["added"] == []


# ---------------------------------------------------------------------- namespaces
def test_an_apply_touches_its_own_namespace_only() -> None:
    log = RegistryLog()
    log.apply(binding("a"), namespace="one")
    log.apply(binding("b"), namespace="two")
    log.apply(namespace="one")
    assert log.states == {"a@v1": "draining", "b@v1": "active"}


def test_a_live_trigger_of_another_namespace_cannot_be_taken() -> None:
    log = RegistryLog()
    log.apply(binding("a"), namespace="one")
    taken = "trigger id 'a' belongs to namespace 'one'"
    assert answer(log.apply(binding("a"), namespace="two")) == ("invalid", taken)
    log.apply(namespace="one")
    assert answer(log.apply(binding("a"), namespace="two")) == ("invalid", taken)


def test_an_ended_trigger_can_move_to_another_namespace() -> None:
    log = RegistryLog()
    log.apply(binding("a", note="1"), namespace="one")
    log.apply(namespace="one")
    log.end("a@v1", 2)
    published = log.apply(binding("a", note="2"), namespace="two")[0]
    [added] = published.value["added"]
    assert (added["binding_key"], added["namespace"]) == ("a@v2", "two")


# ---------------------------------------------------------------------- invalid manifests
@pytest.mark.parametrize(
    ("bindings", "reason"),
    [
        ([binding(" ")], "a trigger id is blank"),
        ([binding("a"), binding("a", note="2")], "trigger id 'a' stands twice in the manifest"),
        (
            [binding("a", retry=retry_policy(max_attempts=101))],
            "trigger 'a': 101 attempts, expected 1 to 100",
        ),
        (
            [binding("a", retry=retry_policy(max_attempts=0))],
            "trigger 'a': 0 attempts, expected 1 to 100",
        ),
        (
            [binding("a", retry=retry_policy("linear", delay_ms=-1))],
            f"trigger 'a': delay_ms is -1, expected 0 to {bounds.DURATION_MS_MAX}",
        ),
        (
            [binding("a", retry=retry_policy("exponential", cap_ms=2**62))],
            f"trigger 'a': cap_ms is {2**62}, expected 0 to {bounds.DURATION_MS_MAX}",
        ),
        (
            [binding("a", handler="h" * 1_025)],
            "trigger 'a': handler has 1025 characters, expected at most 1024",
        ),
        (
            [binding(f"t{number}") for number in range(1_001)],
            "1001 bindings, expected at most 1000 in a manifest",
        ),
    ],
)
def test_a_manifest_that_breaks_a_rule_is_refused_as_a_whole(
    bindings: list[Any], reason: str
) -> None:
    log = RegistryLog()
    assert answer(log.apply(*bindings)) == ("invalid", reason)
    assert log.rows == {}


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"lease_ms": 0}, f"policy: lease_ms is 0, expected 1 to {bounds.DURATION_MS_MAX}"),
        (
            {"event_id_window_ms": 2**62},
            f"policy: event_id_window_ms is {2**62}, expected 1 to {bounds.DURATION_MS_MAX}",
        ),
        ({"dedupe_rows_max": 0}, "policy: dedupe_rows_max is 0, expected at least 1"),
    ],
)
def test_a_policy_out_of_range_is_refused(limits: dict[str, Any], reason: str) -> None:
    log = RegistryLog()
    assert answer(log.apply(in_force=policy(**limits))) == ("invalid", reason)


@pytest.mark.parametrize("names", [{"namespace": "n" * 257}, {"apply_id": "i" * 257}])
def test_names_that_cannot_be_repeated_are_refused(names: dict[str, Any]) -> None:
    what, reason = answer(RegistryLog().apply(binding("a"), **names))
    assert what == "invalid"
    assert "257 characters, expected at most 256" in reason


def test_a_change_too_large_to_be_broadcast_is_refused_and_can_be_made_in_parts() -> None:
    log = RegistryLog()
    bindings = [binding(f"{number:03d}" + "t" * 197) for number in range(600)]
    what, reason = answer(log.apply(*bindings))
    assert what == "invalid"
    assert "expected at most 500000: apply it in parts" in reason
    first = log.apply(*bindings[:400])[0]
    second = log.apply(*bindings)[0]
    assert (len(first.value["added"]), len(second.value["added"])) == (400, 200)
    largest = max(len(output.value or b"") for step in log.steps for output in step.outputs)
    assert largest < MAX_INPUT_BYTES


def test_versions_and_states_survive_a_reload() -> None:
    log = RegistryLog()
    log.apply(binding("a", note="1"), binding("b"))
    log.apply(binding("a", note="2"))
    log.end("a@v1", 2)
    log.apply(binding("a", note="1"), binding("b", note="2"))
    log.assert_replays([1], reload_at=frozenset(range(20)))
    log.assert_replays([3, 2])


def test_a_kind_that_it_has_no_use_for_is_quarantined() -> None:
    log = RegistryLog()
    [out] = log.add_raw(b"\xc3\x01", headers=[("kind", b"manifest_applied")])
    assert out.value["code"] == "undecodable"


def test_a_webhook_path_is_one_namespace_s_until_it_gives_it_up() -> None:
    log = RegistryLog()
    log.apply(with_path(binding("a"), "hook"))
    other = with_path(binding("b", namespace="other"), "hook")
    said, why = answer(log.apply(other, namespace="other"))
    assert (said, why) == ("invalid", "webhook path 'hook' belongs to namespace 'default'")
    log.apply()
    assert log.apply(other, namespace="other")[0].kind == "revision_published"


def test_a_definition_that_no_manifest_gives_is_refused() -> None:
    log = RegistryLog()
    said, why = answer(log.apply({**binding("a"), "definition": "{"}))
    assert (said, why) == ("invalid", "trigger 'a': the definition is none of a manifest")
