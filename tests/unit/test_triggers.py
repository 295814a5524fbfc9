"""Triggers declared in Python: what a mark is, and what becomes of it before anybody is asked."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

from streams.core.wire import BindingDefinition
from streams.edge.handlers import Handlers, load_manifest
from streams.edge.registrar import dynamic_binding
from streams.errors import ManifestError
from streams.triggers import declared_triggers, trigger, trigger_register

LIB = """
from streams.triggers import trigger
from other import elsewhere

@trigger(id="nightly", kind="cron", provider="cron", match={}, schedule="0 3 * * *")
@trigger(id="on-push", kind="webhook", provider="github", match={"events": ["push"]})
async def marked(event):
    return 1

def plain(event):
    return 2
"""
OTHER = """
from streams.triggers import trigger

@trigger(id="elsewhere", kind="webhook", provider="github", match={})
def elsewhere(event): ...
"""
GITHUB = {"kind": "webhook", "provider": "github", "match": {}}


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    (tmp_path / "harn.toml").write_text(
        '[orchestrator]\nname = "team"\n[exports]\nother = "other.py"\n'
    )
    (tmp_path / "lib.py").write_text(dedent(LIB))
    (tmp_path / "other.py").write_text(dedent(OTHER))
    return tmp_path / "harn.toml"


def modules(manifest: Path) -> dict[str, ModuleType]:
    return dict(Handlers.load(load_manifest(manifest), whole=True).exported)


def bound(manifest: Path, **declaration: Any) -> BindingDefinition:
    return dynamic_binding({**GITHUB, **declaration}, manifest, modules(manifest))


def refused(manifest: Path, **declaration: Any) -> str:
    with pytest.raises(ManifestError) as error:
        bound(manifest, **declaration)
    return str(error.value)


# ---------------------------------------------------------------------- marks
def test_a_mark_leaves_the_function_as_it_is_and_is_found_in_its_own_module(manifest: Path) -> None:
    exported = modules(manifest)
    found = [each["id"] for each in declared_triggers(exported["lib"])]
    assert found == ["on-push", "nightly"]
    assert [each["id"] for each in declared_triggers(exported["other"])] == ["elsewhere"]
    [handler] = {each["handler"] for each in declared_triggers(exported["lib"])}
    assert handler is exported["lib"].marked


def test_a_mark_needs_an_id_and_is_its_own_handler() -> None:
    with pytest.raises(ManifestError, match="needs an id"):
        trigger(**GITHUB)
    with pytest.raises(ManifestError, match="leave `handler` out"):
        trigger(id="a", handler="f", **GITHUB)


# ---------------------------------------------------------------------- bindings
def test_a_function_becomes_the_reference_under_which_invokers_find_it(manifest: Path) -> None:
    exported = modules(manifest)
    assert bound(manifest, handler=exported["lib"].plain)["handler"] == "plain"
    assert bound(manifest, handler=exported["other"].elsewhere)["handler"] == "elsewhere"
    assert bound(manifest, handler="other::elsewhere")["handler"] == "other::elsewhere"


def test_a_declaration_is_a_table_of_the_manifests_namespace(manifest: Path) -> None:
    declared = {each["id"]: each for each in declared_triggers(modules(manifest)["lib"])}
    found = dynamic_binding(declared["nightly"], manifest, modules(manifest))
    assert (found["trigger_id"], found["namespace"], found["kind"]) == ("nightly", "team", "cron")
    assert json.loads(found["definition"])["schedule"] == "0 3 * * *"
    again = dynamic_binding(declared["nightly"], manifest, modules(manifest))
    assert again["fingerprint"] == found["fingerprint"]


def test_an_id_is_made_where_none_is_given(manifest: Path) -> None:
    ids = {bound(manifest, handler="plain")["trigger_id"] for _ in range(2)}
    assert len(ids) == 2
    assert all(each.startswith("dynamic_trigger_") for each in ids)


@pytest.mark.parametrize(
    ("declaration", "problem"),
    [
        ({"handler": "nope"}, "lib.py has no 'nope'"),
        ({"handler": "gone::f"}, "[exports] has no 'gone'"),
        ({"handler": len}, "handler 'len' of module 'builtins' is in no export"),
        ({"handler": "plain", "kind": "cron"}, "'github' does not support kind 'cron'"),
        ({"handler": "plain", "nonsense": 1}, "nonsense is not a key here"),
        ({"handler": "plain", "executor": "process"}, "executor is for a manifest's triggers"),
        ({"handler": "plain", "sources": []}, "sources is for a manifest's triggers"),
        ({"handler": "plain", "id": " "}, "id is empty"),
        ({}, "handler is missing"),
    ],
)
def test_the_rules_are_those_of_a_manifest(
    manifest: Path, declaration: dict[str, Any], problem: str
) -> None:
    assert problem in refused(manifest, **declaration)


def test_an_export_that_cannot_be_imported_is_told(manifest: Path) -> None:
    (manifest.parent / "other.py").write_text("1 / 0")
    with pytest.raises(ManifestError, match="ZeroDivisionError"):
        trigger_register({**GITHUB, "handler": "plain"}, manifest=manifest.parent)
