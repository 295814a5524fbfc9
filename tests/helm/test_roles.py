"""Each role runs the command that exists, with settings that it takes."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.core
import typer.main
import yaml
from prometheus_client import CollectorRegistry

from streams.edge.handlers import Handlers, load_manifest
from streams.observe.ingest_metrics import IngestMetrics
from streams.observe.invoker_metrics import InvokerMetrics
from streams.observe.source_metrics import SourceMetrics
from streams.observe.stage_metrics import StageCollectors
from streams.observe.turn_metrics import TurnMetrics, TurnWorkerMetrics
from streams.roles import STAGE_ROLES, Role
from streams.settings import Settings
from tests.support.helm_engine import CHART
from tests.support.rendered_chart import WORKLOADS, Rendered, ci_values, container, environment

NAMES = ["minimal", "rocksdb", "full"]

Render = Callable[..., Rendered]


@pytest.mark.parametrize("name", NAMES)
def test_there_is_one_workload_a_role(render: Render, name: str) -> None:
    found = [
        each["metadata"]["labels"]["app.kubernetes.io/component"]
        for each in render(name).of_kind(*WORKLOADS)
    ]

    assert sorted(found) == sorted(Role)


@pytest.mark.parametrize("name", NAMES)
def test_every_pod_runs_a_command_that_exists(render: Render, name: str) -> None:
    for _, pod in render(name).pods():
        group, verb, *options = container(pod)["args"]
        commands = typer.main.get_command(importlib.import_module(f"streams.cli.{group}").app)
        assert isinstance(commands, typer.core.TyperGroup)
        command = commands.commands[verb]

        command.make_context(verb, options)  # refuses an unknown option


@pytest.mark.parametrize("role", list(Role))
def test_a_role_runs_alone_unsupervised_on_topics_that_the_hook_made(
    render: Render, role: Role
) -> None:
    args = container(render("minimal").workload(role)["spec"]["template"])["args"]

    assert args[:6] == [
        "orchestrator",
        "serve",
        "--no-supervise",
        "--no-provision",
        "--role",
        role.value,
    ]
    needs_manifest = role in {Role.REGISTRY, Role.INVOKER}
    assert args[6:] == (["--manifest", "/app/harn.toml"] if needs_manifest else [])


@pytest.mark.parametrize("name", NAMES)
def test_settings_take_what_every_pod_is_given(render: Render, name: str, tmp_path: Path) -> None:
    authorities = tmp_path / "ca.crt"
    authorities.write_text("PEM", "utf-8")
    known = {row.env for row in Settings().describe()}
    values = ci_values(name)
    for _, pod in render(name).pods():
        given = environment(pod)
        if "KAFKA_SSL_CA_LOCATION" in given:
            assert given["KAFKA_SSL_CA_LOCATION"] == "/etc/harn/tls/ca.crt"
            given["KAFKA_SSL_CA_LOCATION"] = str(authorities)

        settings = Settings.from_env(given.get)

        assert {each for each in given if each.startswith(("HARN_", "KAFKA_"))} <= known
        assert settings.bootstrap == values["kafka"]["bootstrapServers"]
        assert settings.partitions == values.get("topics", {}).get("partitions", 12)
        assert settings.replication_factor == 3
        assert settings.min_insync_replicas == 2
        assert settings.drain_ms == 25_000
        assert settings.log_format == "json"


def test_large_numbers_reach_the_process_in_full(render: Render) -> None:
    given = environment(render("full").workload("inbox")["spec"]["template"])

    assert given["HARN_RETENTION_AUDIT_MS"] == "7776000000"
    assert given["HARN_LEASE_MS"] == "60000"


def test_a_stage_has_a_stable_name_that_no_other_namespace_has(render: Render) -> None:
    rendered = render("minimal")
    for role in Role:
        given = environment(rendered.workload(role)["spec"]["template"])
        name = given.get("HARN_INSTANCE_ID")
        assert name == ("metadata-namespace.metadata-name" if role in STAGE_ROLES else None)


def test_stages_keep_rows_on_volumes_only_with_rocksdb(render: Render) -> None:
    memory, rocksdb = render("minimal"), render("rocksdb")
    services = {each["metadata"]["name"] for each in rocksdb.of_kind("Service")}
    for role in Role:
        assert memory.workload(role)["kind"] == "Deployment"
        workload = rocksdb.workload(role)
        assert workload["kind"] == ("StatefulSet" if role in STAGE_ROLES else "Deployment")
        if role in STAGE_ROLES:
            (claim,) = workload["spec"]["volumeClaimTemplates"]
            assert claim["spec"]["resources"]["requests"]["storage"] == "20Gi"
            assert claim["spec"]["storageClassName"] == "fast"
            assert workload["spec"]["serviceName"] in services
            template = workload["spec"]["template"]
            mounts = {
                each["name"]: each["mountPath"] for each in container(template)["volumeMounts"]
            }
            assert mounts["state"] == environment(template)["HARN_STATE_DIR"]


def test_probes_ask_the_right_port(render: Render) -> None:
    rendered = render("full")
    for role in Role:
        one = container(rendered.workload(role)["spec"]["template"])
        ports = {each["name"] for each in one["ports"]}
        assert one["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
        assert one["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
        ready = one["readinessProbe"]["httpGet"]
        assert ready == {"path": "/readyz", "port": "http" if role is Role.INGEST else "metrics"}
        assert ready["port"] in ports


@pytest.mark.parametrize("drain_s", [0, 25, 600])
def test_a_pod_gets_longer_than_its_drain_before_it_is_killed(render: Render, drain_s: int) -> None:
    rendered = render("minimal", {"drainSeconds": drain_s})
    for role in Role:
        template = rendered.workload(role)["spec"]["template"]
        assert template["spec"]["terminationGracePeriodSeconds"] > drain_s + 30
        assert environment(template)["HARN_DRAIN_MS"] == str(drain_s * 1_000)


def test_topics_come_before_everything_else(render: Render) -> None:
    (job,) = render("full").of_kind("Job")

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert container(job["spec"]["template"])["args"] == ["topology", "apply", "--sync"]
    # The hook runs before the chart's own account exists.
    assert "serviceAccountName" not in job["spec"]["template"]["spec"]


def test_the_audit_runs_once_at_a_time_and_its_verdict_stands(render: Render) -> None:
    (cron,) = render("full").of_kind("CronJob")
    job = cron["spec"]["jobTemplate"]["spec"]

    assert cron["spec"]["concurrencyPolicy"] == "Forbid"
    assert job["backoffLimit"] == 0
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert container(job["template"])["args"] == ["audit", "verify"]


def test_a_manifest_in_the_values_loads_and_its_handlers_resolve(
    render: Render, tmp_path: Path
) -> None:
    (found,) = [
        each
        for each in render("full").of_kind("ConfigMap")
        if each["metadata"]["name"].endswith("-manifest")
    ]
    for name, text in found["data"].items():
        (tmp_path / name).write_text(text, "utf-8")

    assert found["data"] == ci_values("full")["manifest"]["files"]
    assert len(Handlers.load(load_manifest(tmp_path))) == 1


def test_a_changed_manifest_rolls_the_two_roles_that_load_it(render: Render) -> None:
    changed = {"manifest": {"files": {"lib.py": "def triage_issue(event):\n    return 1\n"}}}
    before, after = render("full"), render("full", changed)
    rolled = {
        role.value
        for role in Role
        if before.workload(role)["spec"]["template"] != after.workload(role)["spec"]["template"]
    }

    assert rolled == {"registry", "invoker"}


def test_a_roles_own_pod_values_win_and_the_others_stay(render: Render) -> None:
    rendered = render("full")
    invoker = rendered.workload("invoker")["spec"]["template"]

    assert invoker["spec"]["nodeSelector"] == {
        "kubernetes.io/os": "linux",
        "example.com/pool": "handlers",
    }
    assert environment(invoker)["POOL"] == "handlers"
    assert container(invoker)["envFrom"] == [{"secretRef": {"name": "handler-credentials"}}]
    for role in set(Role) - {Role.INVOKER}:
        other = rendered.workload(role)["spec"]["template"]
        assert other["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert "envFrom" not in container(other)


def test_ingest_alone_has_the_secrets_of_webhooks(render: Render) -> None:
    rendered = render("full")
    pod = rendered.workload("ingest")["spec"]["template"]
    folder = environment(pod)["HARN_SECRETS_DIR"]
    mount = next(each for each in container(pod)["volumeMounts"] if each["mountPath"] == folder)
    volume = next(each for each in pod["spec"]["volumes"] if each["name"] == mount["name"])

    assert mount["readOnly"]
    assert volume["secret"] == {"secretName": "webhook-secrets"}
    for role in set(Role) - {Role.INGEST}:
        other = rendered.workload(role)["spec"]["template"]
        assert "HARN_SECRETS_DIR" not in environment(other)
        assert volume not in other["spec"]["volumes"]


def test_autoscaling_owns_the_number_of_replicas(render: Render) -> None:
    rendered = render("rocksdb")
    (scaler,) = rendered.of_kind("HorizontalPodAutoscaler")
    workload = rendered.workload("dispatch")

    assert "replicas" not in workload["spec"]
    assert scaler["spec"]["scaleTargetRef"] == {
        "apiVersion": "apps/v1",
        "kind": workload["kind"],
        "name": workload["metadata"]["name"],
    }
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 12)


def test_alerts_and_dashboards_ask_for_metrics_that_exist(render: Render) -> None:
    registry = CollectorRegistry()
    StageCollectors(registry)
    InvokerMetrics(registry)
    IngestMetrics(registry)
    SourceMetrics(registry)
    TurnMetrics(registry)
    TurnWorkerMetrics(registry)
    exported: set[str] = set()
    for family in registry.collect():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
        exported |= {family.name + suffix for suffix in suffixes.get(family.type, [""])}
    rendered = render("full")
    (rule,) = rendered.of_kind("PrometheusRule")
    asked = [each["expr"] for group in rule["spec"]["groups"] for each in group["rules"]]
    for path in (CHART / "files" / "dashboards").glob("*.json"):
        asked += _expressions(json.loads(path.read_text("utf-8")))

    names = {name for text in asked for name in re.findall(r"\b(?:harn|agent)_\w+", text)}

    assert len(names) >= 12
    assert names <= exported


def _expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_the_monitor_scrapes_the_service_of_all_roles(render: Render) -> None:
    rendered = render("full")
    (monitor,) = rendered.of_kind("ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    found = [
        each
        for each in rendered.of_kind("Service")
        if wanted.items() <= each["metadata"]["labels"].items()
    ]

    (service,) = found
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {each["name"] for each in service["spec"]["ports"]}


def test_settings_that_the_chart_sets_are_named_in_values_only_once() -> None:
    text = (CHART / "templates" / "_checks.tpl").read_text("utf-8")
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    (pairs,) = re.findall(r"\$ours := dict (.*?) -}}", text)
    names = re.findall(r'"([^"]+)"', pairs)
    known = {row.env for row in Settings().describe()}

    for variable, path in zip(names[::2], names[1::2], strict=True):
        assert variable in known
        found: Any = values
        for step in path.split("."):
            assert step in found, f"{path} is no value"
            found = found[step]
