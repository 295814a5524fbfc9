"""Workers of queues: each entry runs the command that exists, with its own manifest."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import typer.core
import typer.main

from tests.support.helm_engine import ChartRefused
from tests.support.rendered_chart import Rendered, container

Render = Callable[..., Rendered]

TRIAGE = {"name": "triage", "queues": ["triage", "bulk"], "existingConfigMap": "triage-handlers"}
BAKED = {
    "name": "baked",
    "queues": ["triage"],
    "path": "/app/harn.toml",
    "replicas": 5,
    "concurrency": 64,
    "claimTtl": "30s",
    "extraEnv": [{"name": "TOKEN", "value": "x"}],
}


def pod_of(rendered: Rendered, name: str) -> dict[str, Any]:
    return rendered.workload(f"worker-{name}")["spec"]["template"]


def test_a_worker_runs_the_command_that_exists_for_its_queues(render: Render) -> None:
    rendered = render("minimal", {"workers": [TRIAGE, BAKED]})
    args = container(pod_of(rendered, "baked"))["args"]
    assert args[:4] == ["worker", "run", "triage", "--no-provision"]
    for name in ("triage", "baked"):
        group, verb, *options = container(pod_of(rendered, name))["args"]
        commands = typer.main.get_command(importlib.import_module(f"streams.cli.{group}").app)
        assert isinstance(commands, typer.core.TyperGroup)
        context = commands.commands[verb].make_context(verb, options)
        assert context.params["consumer_id"] == "$(POD_NAME)"
    params = context.params
    assert (params["concurrency"], params["claim_ttl"], params["queues"]) == (64, "30s", ["triage"])
    assert rendered.workload("worker-baked")["spec"]["replicas"] == 5


def test_a_worker_has_its_own_manifest_and_the_name_of_its_pod(render: Render) -> None:
    pod = pod_of(render("minimal", {"workers": [TRIAGE]}), "triage")
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    assert volumes["manifest"]["configMap"]["name"] == "triage-handlers"
    found = {each["name"]: each for each in container(pod)["env"]}
    assert found["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert "HARN_INSTANCE_ID" not in found, "it joins no group"


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        ({"name": "a", "queues": ["q"]}, "existingConfigMap"),
        ({"name": "a", "queues": [], "path": "/x"}, "queues"),
        ({"name": "A b", "queues": ["q"], "path": "/x"}, "name"),
        ({"name": "a", "queues": ["q"], "path": "/x", "claimTtl": "soon"}, "claimTtl"),
    ],
)
def test_an_entry_that_cannot_work_is_refused(
    render: Render, entry: dict[str, Any], word: str
) -> None:
    with pytest.raises(ChartRefused, match=word):
        render("minimal", {"workers": [entry]})
