"""Values that cannot work are refused before anything is installed, and the message says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams.roles import Role
from tests.support.helm_engine import ChartRefused
from tests.support.rendered_chart import Rendered

Render = Callable[..., Rendered]


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"kafka": {"bootstrapServers": ""}}, "kafka.bootstrapServers is empty"),
        ({"kafka": {"securityProtocol": "SASL_SSL"}}, "kafka.sasl.mechanism"),
        ({"kafka": {"sasl": {"existingSecret": "x"}}}, "SASL_PLAINTEXT or SASL_SSL"),
        ({"topics": {"minInsyncReplicas": 4}}, "at most topics.replicationFactor (3)"),
        ({"manifest": {"path": ""}}, "need a manifest"),
        ({"manifest": {"existingConfigMap": "x"}}, "expected one source"),
        ({"manifest": {"path": "", "files": {"lib.py": "x"}}}, "no harn.toml"),
        (
            {"roles": {"inbox": {"replicas": 13}}},
            "roles.inbox.replicas is 13, expected at most topics.partitions (12)",
        ),
        ({"roles": {"dispatch": {"replicas": 13}}}, "roles.dispatch.replicas is 13"),
        ({"roles": {"invoker": {"replicas": 13}}}, "roles.invoker.replicas is 13"),
        (
            {"roles": {"inbox": {"autoscaling": {"enabled": True, "maxReplicas": 13}}}},
            "roles.inbox.autoscaling.maxReplicas is 13",
        ),
        (
            {"roles": {"ingest": {"autoscaling": {"enabled": True, "minReplicas": 9}}}},
            "roles.ingest.autoscaling.minReplicas is 9, expected at most maxReplicas (6)",
        ),
        ({"terminationGracePeriodSeconds": 25}, "expected more than drainSeconds (25)"),
        ({"settings": {"HARN_PARTITIONS": 4}}, "expected the value topics.partitions instead"),
        ({"settings": {"HARN_INSTANCE_ID": "x"}}, "the chart alone sets it"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    render: Render, over: dict[str, Any], message: str
) -> None:
    with pytest.raises(ChartRefused) as refused:
        render("minimal", over)

    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("over", "place"),
    [
        ({"kafka": {"bootstrapServer": "x"}}, "/kafka"),
        ({"kafka": {"bootstrapServers": "kafka"}}, "/kafka/bootstrapServers"),
        ({"kafka": {"sasl": {"password": "x"}}}, "/kafka/sasl"),
        ({"topics": {"partitions": 0}}, "/topics/partitions"),
        ({"store": {"kind": "redis"}}, "/store/kind"),
        ({"roles": {"worker": {"enabled": True}}}, "/roles"),
        ({"roles": {"inbox": {"replicas": -1}}}, "/roles/inbox/replicas"),
        ({"image": {"digest": "sha256:1"}}, "/image/digest"),
        ({"settings": {"PATH": "/bin"}}, "invalid propertyName 'PATH'"),
        ({"manifest": {"path": "harn.toml"}}, "/manifest/path"),
        ({"audit": {"schedule": "daily"}}, "/audit/schedule"),
    ],
)
def test_values_that_are_no_such_thing_are_refused_by_place(
    render: Render, over: dict[str, Any], place: str
) -> None:
    with pytest.raises(ChartRefused) as refused:
        render("minimal", over)

    assert place in str(refused.value)


def test_as_many_replicas_as_partitions_are_taken_and_edges_have_no_such_bound(
    render: Render,
) -> None:
    roles = {role: {"replicas": 12} for role in ("inbox", "dispatch", "invoker")}

    rendered = render("minimal", {"roles": {**roles, "ingest": {"replicas": 40}}})

    assert rendered.workload("dispatch")["spec"]["replicas"] == 12
    assert rendered.workload("ingest")["spec"]["replicas"] == 40


def test_a_second_registry_is_taken_and_explained(render: Render) -> None:
    assert "stand by" not in render("minimal").notes
    notes = render("minimal", {"roles": {"registry": {"replicas": 3}}}).notes

    assert "one of its 3 replicas works, the others stand by" in notes


def test_a_manifest_is_not_needed_where_no_role_loads_one(render: Render) -> None:
    off = {"registry": {"enabled": False}, "invoker": {"enabled": False}}

    rendered = render("minimal", {"manifest": {"path": ""}, "roles": off})

    assert len(rendered.of_kind("Deployment")) == len(Role) - 2
