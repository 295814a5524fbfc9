"""Make a cluster what the topology says: create what is missing, grow what may grow.

Nothing is ever deleted or shrunk.  `apply` may be repeated, and two may run at once.

Source: DESIGN "Who creates topics"; STYLE 2.14.
"""

from __future__ import annotations

from collections.abc import Collection

from topology import cluster
from topology.cluster import Admin
from topology.errors import TopologyError
from topology.plan import ChangeKind, Plan, diff
from topology.resolve import ResolvedTopic

__all__ = ["apply", "grow", "plan"]

# Half a minute until a change is seen by the broker that answers us.
_VISIBLE_ROUNDS = 150
_VISIBLE_ROUND_S = 0.2


def plan(admin: Admin, resolved: Collection[ResolvedTopic]) -> Plan:
    """Compare the cluster with `resolved`; KafkaException when it cannot be reached."""
    return diff(resolved, cluster.observe(admin, [topic.name for topic in resolved]))


def apply(admin: Admin, resolved: Collection[ResolvedTopic], *, sync: bool = False) -> Plan:
    """Create what is missing and grow what may grow; with `sync`, set what drifted.

    Returns: the plan that was carried out; clients see every change of it.
    Raises:  TopologyError, with nothing changed, when a part of it is refused;
             KafkaException when the cluster cannot be reached or denies a change.
    """
    carried_out = plan(admin, resolved)
    _raise_if_refused(carried_out)
    cluster.create(admin, [change.topic for change in carried_out.of(ChangeKind.CREATE)])
    cluster.grow(admin, [change.topic for change in carried_out.of(ChangeKind.GROW)])
    if sync:
        drifted = {
            change.topic.name: change.settings for change in carried_out.of(ChangeKind.DRIFT)
        }
        cluster.alter(admin, drifted)
    if carried_out.pending(sync=sync):
        _wait_until_visible(admin, resolved, sync=sync)
    return carried_out


def grow(admin: Admin, topics: Collection[ResolvedTopic]) -> None:
    """Add partitions where `apply` refuses: for whoever moves what hangs on their number.

    Raises: TopologyError when the cluster does not show them in time; KafkaException.
    """
    names = [topic.name for topic in topics]
    cluster.grow(admin, topics)
    for _ in range(_VISIBLE_ROUNDS):
        found = cluster.observe(admin, names).topics
        if all(
            topic.name in found and found[topic.name].partitions >= topic.partitions
            for topic in topics
        ):
            return
        admin.poll(_VISIBLE_ROUND_S)
    raise TopologyError("the cluster accepted more partitions but does not show them yet")


def _wait_until_visible(admin: Admin, resolved: Collection[ResolvedTopic], *, sync: bool) -> None:
    """Return once the cluster reports what was changed; another's conflicting change is refused."""
    for _ in range(_VISIBLE_ROUNDS):
        remaining = plan(admin, resolved)
        _raise_if_refused(remaining)
        if not remaining.pending(sync=sync):
            return
        admin.poll(_VISIBLE_ROUND_S)
    raise TopologyError(
        "the cluster accepted the changes but does not show them yet",
        remedy="run `harn topology apply` again",
    )


def _raise_if_refused(planned: Plan) -> None:
    refused = planned.of(ChangeKind.REFUSED)
    if refused:
        raise TopologyError([str(change) for change in refused])
