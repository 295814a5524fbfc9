"""The rights that each role needs on a secured cluster, and no more.

Nobody gets DELETE: no command removes a topic.  Names of principals are up to the operator; a role
is named here.

Source: DESIGN "Roles", "The stage runtime" (Transactions).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from topology.model import APPLICATION, Edge, Stage, TopicRole, Topology
from topology.topics import PARTITION_HALTED

__all__ = ["Acl", "acls", "command"]

_OUR_GROUPS = f"{APPLICATION}."
_CONFIGURE = ("Create", "Alter", "AlterConfigs", "Describe", "DescribeConfigs")


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """Operations that a role may perform on one resource, or on all with one prefix."""

    role: str
    resource: str  # topic, group, transactional-id
    name: str
    operations: tuple[str, ...]
    prefixed: bool = False


def acls(topology: Topology) -> tuple[Acl, ...]:
    """Return what every stage's role, every edge, the auditor and `topology apply` need."""
    return (
        *(acl for stage in topology.stages for acl in _stage_acls(topology, stage)),
        *(acl for edge in topology.edges for acl in _edge_acls(edge)),
        *(
            acl
            for edge in topology.edges
            if edge.examines
            for acl in _examiner(topology, edge.name)
        ),
        *_groups(topology, "audit"),
        *(
            Acl("audit", "topic", name, ("Read", "DescribeConfigs"), prefixed)
            for name, prefixed in _patterns(topology)
        ),
        *(
            Acl("provision", "topic", name, _CONFIGURE, prefixed)
            for name, prefixed in _patterns(topology)
        ),
    )


def command(acl: Acl, *, principal_prefix: str) -> str:
    """Return the arguments of `kafka-acls` that grant `acl` to `<prefix><role>`."""
    parts = [
        "kafka-acls --bootstrap-server $KAFKA_BOOTSTRAP_SERVERS --add",
        f"--allow-principal {principal_prefix}{acl.role}",
        *(f"--operation {operation}" for operation in acl.operations),
        f"--{acl.resource} {acl.name}",
    ]
    if acl.prefixed:
        parts.append("--resource-pattern-type prefixed")
    return " ".join(parts)


def _stage_acls(topology: Topology, stage: Stage) -> Iterator[Acl]:
    rights: dict[str, list[str]] = {stage.source: ["Read", "Write"]}  # Write: its own ticks
    runtime = [
        topic.name
        for topic in topology.topics
        if topic.role in (TopicRole.JOURNAL, TopicRole.CHECKPOINT)
        or PARTITION_HALTED in dict(topic.kinds)
    ]
    for name in (*stage.sinks, stage.quarantine, *runtime):
        rights.setdefault(name, ["Write"])
    rights[stage.changelog] = ["Read", "Write"]
    for name, operations in rights.items():
        # The start check reads settings.
        yield Acl(stage.role, "topic", name, (*operations, "DescribeConfigs"))
    yield Acl(stage.role, "group", stage.group, ("Read",))
    yield Acl(
        stage.role, "transactional-id", f"{stage.group}-{stage.name}-", ("Write",), prefixed=True
    )


def _edge_acls(edge: Edge) -> Iterator[Acl]:
    rights: dict[str, list[str]] = {}
    for name in (*edge.reads_in_group, *edge.reads):
        rights.setdefault(name, []).append("Read")
    for name in edge.writes:
        rights.setdefault(name, []).append("Write")
    for name in edge.creates:
        rights.setdefault(name, []).append("Create")
    # Families of one prefix are one resource.
    resources: dict[tuple[str, bool], list[str]] = {}
    for name, operations in rights.items():
        prefix, brace, _ = name.partition("{")
        known = resources.setdefault((prefix, bool(brace)), [])
        known += [each for each in operations if each not in known]
    for (name, prefixed), operations in resources.items():
        yield Acl(edge.name, "topic", name, (*operations, "DescribeConfigs"), prefixed)
    if edge.reads_in_group:
        operations = ("Read", "DescribeConfigs", "AlterConfigs") if edge.sets_group else ("Read",)
        yield Acl(edge.name, "group", edge.group, operations)
    if edge.transactional:
        yield Acl(
            edge.name, "transactional-id", edge.transactional_prefix, ("Write",), prefixed=True
        )
    for group in edge.watched_groups:
        yield Acl(edge.name, "group", group, ("Describe",))
    if edge.foreign_groups is not None:
        yield Acl(edge.name, "group", edge.foreign_groups, ("Read",), prefixed=True)


def _examiner(topology: Topology, role: str) -> Iterator[Acl]:
    """Yield what it takes to see every topic, its settings, and where every group stands."""
    for name, prefixed in _patterns(topology):
        yield Acl(role, "topic", name, ("Describe", "DescribeConfigs"), prefixed)
    yield from _groups(topology, role)


def _groups(topology: Topology, role: str) -> Iterator[Acl]:
    """Yield what it takes to see where every group stands."""
    yield Acl(role, "group", _OUR_GROUPS, ("Describe",), prefixed=True)
    for group in sorted({edge.group for edge in topology.edges if edge.reads_in_group}):
        if not group.startswith(_OUR_GROUPS):
            yield Acl(role, "group", group, ("Describe",))


def _patterns(topology: Topology) -> Iterator[tuple[str, bool]]:
    """Yield every fixed topic, and the prefix of every family that no shorter prefix covers."""
    prefixes = sorted(
        {topic.name.partition("{")[0] for topic in topology.topics if topic.is_family}
    )
    for prefix in prefixes:
        if not any(prefix.startswith(other) and prefix != other for other in prefixes):
            yield prefix, True
    for topic in topology.topics:
        if not topic.is_family and not any(topic.name.startswith(each) for each in prefixes):
            yield topic.name, False
