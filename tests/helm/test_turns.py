"""Agent turns in the chart: the worker's command, what carries turns, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kubernetes_validate
import pytest
import typer.main

from streams.cli.turn_worker import app
from streams.settings import Settings
from tests.support.helm_engine import ChartRefused
from tests.support.rendered_chart import Rendered, container, environment

Render = Callable[..., Rendered]

WORKER = {"enabled": True, "path": "/app/harn.toml", "slots": 32, "replicas": 3}
POSTGRES = {"backend": "postgres", "database": {"existingSecret": "turns-db"}}


def pod_of(rendered: Rendered, role: str = "turn-worker") -> dict[str, Any]:
    return rendered.workload(role)["spec"]["template"]


def test_without_being_asked_for_there_is_no_worker_and_no_api(render: Render) -> None:
    rendered = render("minimal")

    names = [each["metadata"]["name"] for each in rendered.of_kind("Deployment")]
    assert not [name for name in names if "turn-worker" in name]
    found = environment(pod_of(rendered, "ingest"))
    assert "AGENT_TURNS_API" not in found


def test_the_worker_runs_the_command_that_exists(render: Render) -> None:
    rendered = render("minimal", {"turns": {"worker": WORKER}})
    pod = pod_of(rendered)

    assert container(pod)["command"] == ["agent-dispatch-worker"]
    context = typer.main.get_command(app).make_context("work", list(container(pod)["args"]))
    assert context.params["workers"] == 32
    assert str(context.params["config"]) == "/app/harn.toml"
    assert context.params["worker_id"] == "$(POD_NAME)"
    assert context.params["provision"] is False
    assert rendered.workload("turn-worker")["spec"]["replicas"] == 3
    settings = Settings.from_env(environment(pod).get)
    assert settings.turn_queue_backend == "kafka"
    assert "HARN_INSTANCE_ID" not in environment(pod)


def test_its_pod_is_as_restricted_as_every_other_and_kubernetes_takes_it(render: Render) -> None:
    rendered = render("full", {"turns": {**POSTGRES, "api": True, "worker": WORKER}})
    deployment = rendered.workload("turn-worker")

    kubernetes_validate.validate(deployment, kubernetes_validate.latest_version(), strict=True)
    mine, other = pod_of(rendered), pod_of(rendered, "invoker")
    for name in ("securityContext", "automountServiceAccountToken", "enableServiceLinks"):
        assert mine["spec"][name] == other["spec"][name]
    assert container(mine)["securityContext"] == container(other)["securityContext"]
    assert container(mine)["livenessProbe"] == container(other)["livenessProbe"]


def test_it_is_scaled_by_cpu_and_evicted_one_by_one_where_that_is_asked_for(
    render: Render,
) -> None:
    asked = {"autoscaling": {"enabled": True}, "podDisruptionBudget": {"enabled": True}}
    rendered = render("minimal", {"turns": {"worker": WORKER | asked}})
    deployment = rendered.workload("turn-worker")

    (scaler,) = rendered.of_kind("HorizontalPodAutoscaler")
    (budget,) = rendered.of_kind("PodDisruptionBudget")
    for each in (scaler, budget):
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
    assert "replicas" not in deployment["spec"]
    assert scaler["spec"]["scaleTargetRef"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": deployment["metadata"]["name"],
    }
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 6)
    assert budget["spec"]["selector"] == deployment["spec"]["selector"]
    assert budget["spec"]["maxUnavailable"] == 1

    plain = render("minimal", {"turns": {"worker": WORKER}})
    assert not [*plain.of_kind("HorizontalPodAutoscaler"), *plain.of_kind("PodDisruptionBudget")]


def test_on_kafka_it_is_scaled_to_its_partitions_at_most(render: Render) -> None:
    asked = WORKER | {"autoscaling": {"enabled": True, "maxReplicas": 7}}
    with pytest.raises(ChartRefused, match=r"maxReplicas is 7, expected at most .* \(6\)"):
        render("minimal", {"turns": {"worker": asked}})
    least = WORKER | {"autoscaling": {"enabled": True, "minReplicas": 8}}
    with pytest.raises(ChartRefused, match="minReplicas is 8, expected at most maxReplicas"):
        render("minimal", {"turns": {"worker": least}})
    more = {"settings": {"AGENT_TURNS_PARTITIONS": 7}, "turns": {"worker": asked}}
    for values in (more, {"turns": {**POSTGRES, "worker": asked}}):
        (scaler,) = render("minimal", values).of_kind("HorizontalPodAutoscaler")
        assert scaler["spec"]["maxReplicas"] == 7


def test_its_manifest_may_be_a_config_map_or_none(render: Render) -> None:
    worker = {"enabled": True, "existingConfigMap": "my-agents"}
    pod = pod_of(render("minimal", {"turns": {"worker": worker}}))
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    assert volumes["manifest"]["configMap"]["name"] == "my-agents"
    assert "/etc/harn/manifest/harn.toml" in container(pod)["args"]

    pod = pod_of(render("minimal", {"turns": {"worker": {"enabled": True}}}))
    assert "--config" not in container(pod)["args"]
    assert "manifest" not in {each["name"] for each in pod["spec"]["volumes"]}


def test_a_database_is_named_by_a_secret_alone(render: Render) -> None:
    turns = {**POSTGRES, "api": True, "worker": WORKER}
    rendered = render("minimal", {"turns": turns})

    for role in ("turn-worker", "ingest"):
        entries = {each["name"]: each for each in container(pod_of(rendered, role))["env"]}
        assert entries["STATE_DB_URI"] == {
            "name": "STATE_DB_URI",
            "valueFrom": {"secretKeyRef": {"name": "turns-db", "key": "uri"}},
        }
        assert entries["TASK_QUEUE_BACKEND"]["value"] == "postgres"
    other = {each["name"] for each in container(pod_of(rendered, "dispatch"))["env"]}
    assert "STATE_DB_URI" not in other


def test_ingest_serves_the_api_by_way_of_the_queue(render: Render) -> None:
    found = environment(pod_of(render("minimal", {"turns": {"api": True}}), "ingest"))
    settings = Settings.from_env(found.get)

    assert settings.serves_turns
    assert not settings.runs_turns_inline


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"turns": {"backend": "postgres"}}, "turns.database.existingSecret"),
        ({"turns": {"database": {"existingSecret": "x"}}}, "turns.backend"),
        ({"turns": {"backend": "sqlite"}}, "backend"),
        (
            {"turns": {"worker": {"path": "/a", "existingConfigMap": "b"}}},
            "one source of the manifest",
        ),
        ({"turns": {"worker": {"slots": 0}}}, "slots"),
        ({"settings": {"AGENT_TURNS_API": "on"}}, "turns.api"),
    ],
)
def test_what_cannot_work_is_refused(render: Render, values: dict[str, Any], word: str) -> None:
    with pytest.raises(ChartRefused, match=word):
        render("minimal", values)
