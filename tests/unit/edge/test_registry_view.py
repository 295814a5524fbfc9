from typing import Any

import pytest

from streams.core.manifest import Manifest
from streams.core.record import Record
from streams.core.revision import POLICY_DEFAULT
from streams.core.state import Answer, Fold, State
from streams.core.wire import BindingDefinition
from streams.edge.applier import policy_of, preview_apply
from streams.edge.registry_view import RegistryView, fold_registry
from streams.errors import ManifestError, StageHalted
from streams.settings import Settings
from streams.testing import binding, policy
from tests.support.registry_records import CODEC, Registry


def states(view: RegistryView) -> dict[str, str]:
    return {row["binding"]["binding_key"]: row["state"] for row in view.rows}


def manifest(*bindings: BindingDefinition, namespace: str = "default") -> Manifest:
    return Manifest(file="harn.toml", namespace=namespace, exports={}, bindings=bindings)


# ---------------------------------------------------------------------- the view
def test_an_empty_log_is_revision_0_under_the_default_policy() -> None:
    view = Registry().view()
    assert (view.revision, view.broadcast, view.rows, view.next_offset) == (0, 0, (), 0)
    assert view.policy == POLICY_DEFAULT


def test_the_view_has_what_the_registry_has() -> None:
    log = Registry()
    log.apply(binding("a"), binding("b"), revision=0)
    log.apply(binding("b", note="changed"), revision=1)
    log.add("revision_broadcast", {"revision": 1})
    view = log.view()
    assert (view.revision, view.broadcast) == (2, 1)
    assert states(view) == {"a@v1": "draining", "b@v1": "draining", "b@v2": "active"}
    assert view.policy == policy()
    assert view.next_offset == len(log.records)


def test_records_that_nobody_can_use_are_passed_over() -> None:
    log = Registry()
    log.add("revision_broadcast", b"garbage")
    log.add("unheard_of", b"")
    log.add("revision_broadcast", CODEC.encode("tick", {"due_ms": 1}))
    log.add("stage_skip", CODEC.encode("tick", {"due_ms": 1}))
    log.apply(binding("a"), revision=0)
    assert states(log.view()) == {"a@v1": "active"}


def test_a_record_that_an_operator_skipped_is_skipped_here_too() -> None:
    log = Registry()
    log.apply(binding("a"), revision=0)
    word: dict[str, Any] = {
        "stage": "registry",
        "topic": "triggers.registry",
        "partition": 0,
        "offset": 0,
        "requested_by": "test",
        "reason": "",
    }
    log.add("stage_skip", {**word, "stage": "inbox"})
    assert states(log.view()) == {"a@v1": "active"}, "the word of another stage"
    log.add("stage_skip", word)
    assert states(log.view()) == {}


def test_a_record_that_halts_the_registry_is_named() -> None:
    def raises(_state: State, record: Record, /) -> Answer:
        raise ArithmeticError(record.kind)

    log = Registry()
    log.add("revision_broadcast", {"revision": 1})
    with pytest.raises(StageHalted, match=r"registry halted at triggers\.registry/0/0: .*Arith"):
        fold_registry(log.records, CODEC, Fold(on_record=raises))


# ---------------------------------------------------------------------- previews
def test_a_preview_is_what_the_registry_would_answer() -> None:
    log = Registry()
    log.apply(binding("a"), binding("b"), revision=0)
    changed = manifest(binding("a", note="changed"), binding("c"))
    preview = preview_apply(log.view(), changed, CODEC, policy=None)
    assert (preview.answer, preview.revision) == ("published", 2)
    assert preview.added == ("a@v2", "c@v1")
    assert preview.drained == ("a@v1", "b@v1")
    assert (preview.position, preview.broadcast) == (None, False)
    same = preview_apply(log.view(), manifest(binding("a"), binding("b")), CODEC, policy=policy())
    assert (same.answer, same.revision) == ("unchanged", 1)


def test_another_policy_alone_is_a_change() -> None:
    log = Registry()
    log.apply(binding("a"), revision=0)
    settings = Settings(lease_ms=60_000)
    assert policy_of(settings)["lease_ms"] == 60_000
    preview = preview_apply(log.view(), manifest(binding("a")), CODEC, policy=policy_of(settings))
    assert (preview.answer, preview.added, preview.drained) == ("published", (), ())


def test_a_manifest_that_the_registry_would_refuse_is_refused_here() -> None:
    log = Registry()
    log.apply(binding("a"), revision=0)
    other = manifest(binding("a", namespace="other"), namespace="other")
    with pytest.raises(ManifestError, match=r"harn\.toml: the registry refuses it: .*'default'"):
        preview_apply(log.view(), other, CODEC, policy=None)


def test_a_manifest_too_large_for_one_record_is_refused_with_a_remedy() -> None:
    large = binding("a", note="x" * 600_000)
    with pytest.raises(ManifestError, match="expected at most 600000") as caught:
        preview_apply(Registry().view(), manifest(large), CODEC, policy=None)
    assert caught.value.remedy is not None
    assert "namespaces" in caught.value.remedy
