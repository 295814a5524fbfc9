from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from streams.audit.explain import READS
from topology import TOPOLOGY
from topology.acls import Acl, acls, command
from topology.describe import as_json, duration, mermaid, page, topic_rows
from topology.layout import Layout

DOCS = Path(__file__).parents[3] / "docs" / "topology.md"
LAYOUT = Layout(partitions=5)


def test_the_page_in_docs_is_the_declared_topology() -> None:
    wanted = page(TOPOLOGY)
    assert DOCS.read_text(encoding="utf-8") == wanted, (
        "write it anew: harn topology describe --format markdown > docs/topology.md"
    )


def test_the_table_has_every_declaration_with_its_numbers() -> None:
    rows = {row.name: row for row in topic_rows(TOPOLOGY, LAYOUT)}
    assert list(rows) == [topic.name for topic in TOPOLOGY.topics]
    dispatches = rows["trigger.dispatches"]
    assert (dispatches.partitions, dispatches.retention) == ("5", "7 d")
    assert dispatches.used_by == (
        ">inbox, <dispatch, >dispatch, >invoker, >broadcaster, >canceller, <operator, >operator"
    )


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (604_800_000, "7 d"),
        (90 * 60_000, "90 min"),
        (3_600_000, "1 h"),
        (1_500, "1500 ms"),
        (-1, "for ever"),
    ],
)
def test_an_age_is_said_in_its_largest_whole_unit(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


def test_the_flowchart_links_only_what_it_draws_and_draws_each_once() -> None:
    lines = mermaid(TOPOLOGY).splitlines()
    assert lines[0] == "flowchart LR"
    drawn = [found[1] for line in lines if (found := re.match(r"  (\w+)[\[{(]", line))]
    linked = {
        end
        for line in lines
        if (found := re.fullmatch(r"  (\w+) (?:-->|-\.->|===) (\w+)", line))
        for end in found.groups()
    }
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == linked
    assert len(drawn) + len([line for line in lines if " --> " in line or "=" in line]) > 20


def test_the_flowchart_shows_the_way_of_an_event() -> None:
    flow = mermaid(TOPOLOGY)
    for link in (
        "e_ingest --> k_trigger_inbox_envelopes",
        "k_trigger_inbox_envelopes --> s_inbox",
        "s_inbox --> k_trigger_dispatches",
        "k_trigger_dispatches --> s_dispatch",
        "s_dispatch --> k_trigger_invocations",
        "k_trigger_invocations --> e_invoker",
        "e_invoker --> k_trigger_dispatches",
        "s_dispatch --> k_trigger_outbox",
        "s_inbox -.-> k_trigger_dlq",
        "s_dispatch === t_dispatches",
    ):
        assert f"  {link}\n" in flow


def test_the_json_holds_what_a_program_needs() -> None:
    described = json.loads(json.dumps(as_json(TOPOLOGY, LAYOUT)))
    by_name = {topic["name"]: topic for topic in described["topics"]}
    mailbox = by_name["trigger.dispatches"]
    assert mailbox["config"]["message.timestamp.type"] == "LogAppendTime"
    assert mailbox["kinds"]["event_matched"] == "event_matched"
    assert "config" not in by_name["worker.{queue}"]
    stages = {stage["name"]: stage for stage in described["stages"]}
    assert stages["dispatch"]["changelog"] == "dispatch-dispatches-changelog"
    assert [edge["name"] for edge in described["edges"]] == [edge.name for edge in TOPOLOGY.edges]


def test_a_stage_may_write_what_it_declares_and_nothing_else() -> None:
    writable = {
        acl.name
        for acl in acls(TOPOLOGY)
        if acl.role == "inbox" and acl.resource == "topic" and "Write" in acl.operations
    }
    stage = TOPOLOGY.stage("inbox")
    assert writable == {
        stage.source,
        *stage.sinks,
        stage.quarantine,
        stage.changelog,
        "audit.journal",
        "audit.checkpoints",
        "orchestrator.lifecycle",
    }


def test_nobody_may_delete_and_only_provision_may_create_beside_queues() -> None:
    granted = acls(TOPOLOGY)
    assert not any("Delete" in acl.operations for acl in granted)
    creators = {acl for acl in granted if "Create" in acl.operations and acl.role != "provision"}
    # A queue that somebody else made lacks the topics of its claims and responses.
    assert {(acl.role, acl.name, acl.prefixed) for acl in creators} == {("relay", "worker.", True)}


@pytest.mark.parametrize("role", ["audit", "provision"])
def test_the_reader_of_all_and_the_provisioner_reach_every_declared_topic(role: str) -> None:
    mine = [acl for acl in acls(TOPOLOGY) if acl.role == role]
    for topic in TOPOLOGY.topics:
        name = topic.name.replace("{queue}", "mail").replace("{binding}", "orders")
        assert any(
            name.startswith(acl.name) if acl.prefixed else name == acl.name for acl in mine
        ), name


def may(role: str, operation: str, topic: str) -> bool:
    """Whether the rights of a role hold for a topic."""
    return any(
        operation in acl.operations
        for acl in acls(TOPOLOGY)
        if acl.role == role and acl.resource == "topic"
        if (topic.startswith(acl.name) if acl.prefixed else topic == acl.name)
    )


@pytest.mark.parametrize("topic", [*READS, "trigger.throttle.orders", "worker.mail.claims"])
def test_an_operator_may_read_what_an_event_is_explained_from(topic: str) -> None:
    assert may("operator", "Read", topic)


@pytest.mark.parametrize("topic", [each.name for each in TOPOLOGY.topics])
def test_an_operator_may_see_what_the_whole_application_is_like(topic: str) -> None:
    name = topic.replace("{queue}", "mail").replace("{binding}", "orders")
    assert may("operator", "Describe", name)
    assert may("operator", "DescribeConfigs", name)


@pytest.mark.parametrize(
    "group", sorted({edge.group for edge in TOPOLOGY.edges if edge.reads_in_group})
)
def test_an_operator_may_ask_how_far_every_group_is(group: str) -> None:
    assert any(
        "Describe" in acl.operations
        for acl in acls(TOPOLOGY)
        if (acl.role, acl.resource) == ("operator", "group")
        if (group.startswith(acl.name) if acl.prefixed else group == acl.name)
    )


@pytest.mark.parametrize("role", ["operator", "audit"])
def test_who_compares_offsets_may_ask_every_group_for_its_own(role: str) -> None:
    assert Acl(role, "group", "harn.", ("Describe",), prefixed=True) in acls(TOPOLOGY)


def test_a_right_is_shown_as_the_command_that_grants_it() -> None:
    [transactions] = [
        acl for acl in acls(TOPOLOGY) if acl.resource == "transactional-id" and acl.role == "inbox"
    ]
    assert command(transactions, principal_prefix="User:harn-") == (
        "kafka-acls --bootstrap-server $KAFKA_BOOTSTRAP_SERVERS --add --allow-principal "
        "User:harn-inbox --operation Write --transactional-id harn.inbox-inbox- "
        "--resource-pattern-type prefixed"
    )


def test_a_worker_of_turns_writes_what_comes_of_them_in_transactions_of_its_group() -> None:
    mine = {
        (acl.resource, acl.name, acl.prefixed): set(acl.operations)
        for acl in acls(TOPOLOGY)
        if acl.role == "turn-worker"
    }

    assert mine["group", "agent-dispatch", False] == {"Read", "DescribeConfigs", "AlterConfigs"}
    assert mine["transactional-id", "agent-dispatch-", True] == {"Write"}
    assert "Read" in mine["topic", "agent_turns", False]
    assert "Write" not in mine["topic", "agent_turns", False]
    for topic in ("agent.turns.claims", "agent.sessions", "agent.jobs"):
        assert mine["topic", topic, False] >= {"Read", "Write"}
    assert "Write" in mine["topic", "agent.turns.dlq", False]
