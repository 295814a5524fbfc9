"""Kubernetes takes what the chart renders, and every object follows the same rules."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from streams.roles import Role
from tests.support.helm_engine import CHART, HelmEngine
from tests.support.rendered_chart import WORKLOADS, Rendered, ci_values, container

ROOT = Path(__file__).parents[2]
NAMES = ["minimal", "rocksdb", "full"]
_OURS = {"ServiceMonitor", "PrometheusRule"}  # of the Prometheus operator, which Kubernetes lacks

Render = Callable[..., Rendered]


@pytest.mark.parametrize("name", NAMES)
def test_the_linter_has_nothing_to_warn_of(engine: HelmEngine, name: str) -> None:
    findings = engine.lint(ci_values(name))

    assert [each for each in findings if each["severity"] > 1] == []


@pytest.mark.parametrize("version", ["1.27", "1.31", kubernetes_validate.latest_version()])
@pytest.mark.parametrize("name", NAMES)
def test_kubernetes_takes_every_object(render: Render, name: str, version: str) -> None:
    objects = [each for each in render(name).objects if each["kind"] not in _OURS]

    assert len(objects) >= 9
    for each in objects:
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_unique_per_kind_and_every_object_has_the_standard_labels(
    render: Render, name: str
) -> None:
    objects = render(name).objects

    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(set(names)) == len(names)
    for each in objects:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "harn-streams"
        assert labels["app.kubernetes.io/instance"] == "rel"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["helm.sh/chart"] == "harn-streams-0.1.0"


@pytest.mark.parametrize("name", NAMES)
def test_selectors_find_their_pods_and_never_hold_a_version(render: Render, name: str) -> None:
    rendered = render(name)
    for workload in rendered.of_kind(*WORKLOADS):
        selector = workload["spec"]["selector"]["matchLabels"]
        assert selector.items() <= workload["spec"]["template"]["metadata"]["labels"].items()
        assert set(selector) == {
            "app.kubernetes.io/name",
            "app.kubernetes.io/instance",
            "app.kubernetes.io/component",
        }
    for service in rendered.of_kind("Service"):
        selector = service["spec"]["selector"]
        found = [
            workload
            for workload in rendered.of_kind(*WORKLOADS)
            if selector.items() <= workload["spec"]["template"]["metadata"]["labels"].items()
        ]
        (port,) = service["spec"]["ports"]
        assert found
        for workload in found:
            ports = container(workload["spec"]["template"])["ports"]
            assert port["targetPort"] in {each["name"] for each in ports}


@pytest.mark.parametrize("name", NAMES)
def test_every_pod_holds_to_the_restricted_standard_and_gets_no_token(
    render: Render, name: str
) -> None:
    pods = list(render(name).pods())

    assert len(pods) == len(Role) + 2  # the hook and the audit
    for _, pod in pods:
        spec, security = pod["spec"], container(pod)["securityContext"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False


def test_every_volume_is_mounted_and_every_mount_has_a_volume(render: Render) -> None:
    for name in NAMES:
        rendered = render(name)
        claims = {
            workload["metadata"]["name"]: {
                claim["metadata"]["name"]
                for claim in workload["spec"].get("volumeClaimTemplates", [])
            }
            for workload in rendered.of_kind(*WORKLOADS)
        }
        for owner, pod in rendered.pods():
            volumes = {each["name"] for each in pod["spec"]["volumes"]} | claims.get(owner, set())
            assert {each["name"] for each in container(pod)["volumeMounts"]} == volumes


def test_what_needs_an_operator_or_more_rights_is_off_by_default(render: Render) -> None:
    kinds = {each["kind"] for each in render("minimal").objects}

    assert kinds == {"ServiceAccount", "Job", "Deployment", "Service", "CronJob"}
    assert all("resources" not in container(pod) for _, pod in render("minimal").pods())


def test_secrets_are_referred_to_and_never_values(render: Render) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    for _, pod in render("full").pods():
        entries = {each["name"]: each for each in container(pod)["env"]}
        for name, key in (("USERNAME", "username"), ("PASSWORD", "password")):
            source = entries[f"KAFKA_SASL_{name}"]["valueFrom"]["secretKeyRef"]
            assert source == {"name": "kafka-user", "key": key}

    assert set(values["kafka"]["sasl"]) == {
        "mechanism",
        "existingSecret",
        "usernameKey",
        "passwordKey",
    }


def test_every_value_has_a_line_that_says_what_it_is() -> None:
    lines = (CHART / "values.yaml").read_text("utf-8").splitlines()
    silent = [
        line
        for before, line in pairwise(lines)
        if re.match(r"^[a-z]\w*:", line) and not before.startswith("#")
    ]

    # Groups whose members say it themselves.
    assert [line.split(":")[0] for line in silent] == [
        "image",
        "kafka",
        "schemaRegistry",
        "log",
        "store",
        "serviceAccount",
        "ingest",
        "metrics",
    ]


def test_chart_and_project_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert chart["version"] == chart["appVersion"] == project["version"]


def test_templates_are_numbered_in_the_order_of_their_use() -> None:
    names = [path.name for path in sorted((CHART / "templates").glob("*.yaml"))]

    assert all(re.match(r"^\d\d-[a-z-]+\.yaml$", name) for name in names)
