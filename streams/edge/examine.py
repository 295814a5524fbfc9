"""Look at a running application from outside: it reads, joins no group, and changes nothing.

Source: DESIGN "Roles", "State".
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from importlib.metadata import version
from typing import Any, NamedTuple, cast

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streams import __version__
from streams.audit.kafka_log import KafkaLog
from streams.audit.log import Place
from streams.audit.table_rows import table_rows
from streams.codec import Codec
from streams.core.registry_policy import last_proposal
from streams.core.wire import PartitionHalted, RowCircuit, RowDispatch
from streams.edge.applier import policy_of
from streams.edge.checkup import Checkup, Dispatcher, Group, Registry, given_back, unlucky
from streams.edge.codecs import codec_of
from streams.edge.group_members import Membership, memberships
from streams.edge.halts import halted_partitions
from streams.edge.ingest.webhooks.secrets import SecretFiles
from streams.edge.ingest.webhooks.targets import targets_of
from streams.edge.queue_catalog import queue_topics, read_catalog
from streams.edge.registry_view import RegistryView, read_registry
from streams.edge.scheduler_proposal import policy_of_environment
from streams.errors import BrokerError, StageHalted
from streams.kafka import make_admin
from streams.path_kind import is_folder
from streams.provision import plan_topics
from streams.roles import ALL_ROLES
from streams.settings import Settings
from topology import TOPOLOGY, Stage
from topology.edges import EDGES
from topology.plan import Change, ChangeKind

__all__ = ["examine", "versions"]

_REQUEST_S = 10.0
_COUNTED_MAX = 1_000
_VITAL = (ChangeKind.REFUSED, ChangeKind.CREATE, ChangeKind.GROW)
_DISPATCH = "dispatch"

# In the role of which an edge runs, where that is not its own name.
_ROLES = {"canceller": "registry"}


class _Follower(NamedTuple):
    """A group of ours, and a topic that it reads."""

    group: str
    role: str
    topic: str


def examine(settings: Settings) -> Checkup:
    """Look at everything that a cluster can tell.

    Raises: BrokerError when it does not answer.
    """
    admin, codec = make_admin(settings), codec_of(settings)
    brokers = _brokers(admin, settings)
    changes = plan_topics(settings).changes
    checkup = Checkup(
        at_ms=time.time_ns() // 1_000_000,
        versions=versions(),
        bootstrap=settings.bootstrap or "",
        brokers=brokers,
        topics=tuple((_difference(change), change.kind in _VITAL) for change in changes),
        policy=policy_of(settings),
        scheduler=policy_of_environment(settings),
    )
    if any(change.kind is ChangeKind.CREATE for change in changes):
        return checkup  # what is missing cannot be read, and is the first thing to mend
    view = _registry(settings, codec)
    with KafkaLog(settings) as log:
        return _filled(checkup, settings, admin, codec, view, log)


def _difference(change: Change) -> str:
    """Return one line about a topic; what a user may not see is not told from what is missing."""
    if change.kind is ChangeKind.CREATE:
        return f"{change.topic.name}: is missing, or this user may not see it"
    return str(change)


def _registry(settings: Settings, codec: Codec) -> RegistryView | PartitionHalted:
    """Return the registry's view, or where its fold raises: the registry stands there as well."""
    try:
        return read_registry(settings, codec)
    except StageHalted as halt:
        topic, partition, offset = halt.position
        return {
            "stage": halt.stage,
            "fold": TOPOLOGY.stage(halt.stage).fold_id,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timer": None,
            "reason": halt.reason,
            "member": f"{socket.gethostname()}-{os.getpid()}",
        }


def _halted(
    log: KafkaLog, codec: Codec, found_here: PartitionHalted | None
) -> tuple[PartitionHalted, ...]:
    """Return what the members told, and what was found here unless it is the same."""
    told = halted_partitions(log, codec, TOPOLOGY.stages)
    places = {(each["topic"], each["partition"]) for each in told}
    if found_here is None or (found_here["topic"], found_here["partition"]) in places:
        return told
    return (*told, found_here)


def _filled(
    checkup: Checkup,
    settings: Settings,
    admin: AdminClient,
    codec: Codec,
    found: RegistryView | PartitionHalted,
    log: KafkaLog,
) -> Checkup:
    view = found if isinstance(found, RegistryView) else None
    followers = list(_followers(log))
    described = memberships(admin, sorted({each.group for each in followers}))
    found_groups = (_group(each, described[each.group], log) for each in followers)
    groups = tuple(each for each in found_groups if not _is_unused(each))
    return replace(
        checkup,
        registry=None if view is None else _registered(view),
        groups=groups,
        dispatchers=tuple(_dispatchers(log, codec, TOPOLOGY.stage(_DISPATCH))),
        secrets={} if view is None else _secrets(settings, view),
        queues=read_catalog(settings, codec).summaries,
        halted=_halted(log, codec, None if isinstance(found, RegistryView) else found),
    )


def _registered(view: RegistryView) -> Registry:
    return Registry(
        revision=view.revision,
        broadcast=view.broadcast,
        states=dict(sorted(Counter(row["state"] for row in view.rows).items())),
        policy=view.policy,
        proposed=last_proposal(view.memory.state),
    )


def versions() -> dict[str, str]:
    """Return the versions of what runs here."""
    return {
        "harn-streams": __version__,
        "python": platform.python_version(),
        "faust-streaming": version("faust-streaming"),
        "confluent-kafka": version("confluent-kafka"),
        "librdkafka": f"{confluent_kafka.libversion()[0]}",
    }


def _brokers(admin: AdminClient, settings: Settings) -> tuple[str, ...]:
    try:
        cluster = admin.describe_cluster(request_timeout=_REQUEST_S).result(2 * _REQUEST_S)
    except (KafkaException, TimeoutError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else "nothing came back"
        raise BrokerError(
            f"Kafka at {settings.bootstrap} does not answer: {reason}",
            retryable=True,
            remedy="check KAFKA_BOOTSTRAP_SERVERS and that the cluster is up",
        ) from error
    nodes = sorted(cluster.nodes, key=lambda node: node.id)
    return tuple(f"{node.id}={node.host}:{node.port}" for node in nodes)


def _followers(log: KafkaLog) -> Iterator[_Follower]:
    queues = tuple(queue_topics(log.topic_names()).values())
    for stage in TOPOLOGY.stages:
        yield _Follower(stage.group, stage.role, stage.source)
    for edge in EDGES:
        families = [topic for topic in edge.reads_in_group if TOPOLOGY.topic(topic).is_family]
        fixed = [topic for topic in edge.reads_in_group if topic not in families]
        # Queues are the one family that a group reads; without one there is nobody to miss.
        for topic in (*fixed, *(queues if families else ())):
            yield _Follower(edge.group, _ROLES.get(edge.name, edge.name), topic)


def _is_unused(group: Group) -> bool:
    """Whether it is of what one may leave alone, and nobody has begun with it."""
    return group.role not in ALL_ROLES and group.members == 0 and group.lag == 0


def _group(follower: _Follower, described: Membership, log: KafkaLog) -> Group:
    state, members, _ = described
    partitions = range(log.partitions(follower.topic))
    committed = log.committed(follower.group, follower.topic, partitions)
    spans = log.spans([(follower.topic, partition) for partition in partitions])
    lags = {
        place[1]: _unread(log, place, max(committed.get(place[1], 0), span.start), span.end)
        for place, span in spans.items()
    }
    return Group(
        id=follower.group,
        role=follower.role,
        topic=follower.topic,
        state=state,
        members=members,
        lags=lags,
    )


def _unread(log: KafkaLog, place: Place, start: int, end: int) -> int:
    """Return how many records a partition has between two offsets, counted where they are few.

    Offsets count the ends of transactions as well, so that a mailbox which stages write seems to
    have some left when all of it is read.
    """
    if not 0 < end - start <= _COUNTED_MAX:
        return max(0, end - start)
    try:
        return sum(len(records) for records in log.read(place, start, end))
    except BrokerError:  # whoever asks may see where groups stand, and not what they read
        return end - start


def _dispatchers(log: KafkaLog, codec: Codec, stage: Stage) -> Iterator[Dispatcher]:
    rows: defaultdict[int, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for partition, key, value in table_rows(log, codec, stage, "d:", "q:", "o:", "revision"):
        rows[partition].append((key, value))
    for partition in range(log.partitions(stage.source)):
        yield _dispatcher(partition, rows[partition])


def _dispatcher(partition: int, rows: Collection[tuple[str, dict[str, Any]]]) -> Dispatcher:
    live = [cast("RowDispatch", value) for key, value in rows if key.startswith("d:")]
    circuits = [cast("RowCircuit", value) for key, value in rows if key.startswith("o:")]
    dues = [row["due_ms"] for row in live if row["due_ms"] is not None]
    return Dispatcher(
        partition=partition,
        revision=max((value["revision"] for key, value in rows if key == "revision"), default=0),
        statuses=dict(sorted(Counter(row["status"] for row in live).items())),
        dead_letters=sum(key.startswith("q:") for key, _ in rows),
        given_back=given_back(live),
        unlucky=unlucky(live),
        open_circuits=tuple(row["destination"] for row in circuits if row["episodes"]),
        oldest_ms=min((row["accepted_at_ms"] for row in live), default=None),
        overdue_ms=min(dues, default=None),
    )


def _secrets(settings: Settings, view: RegistryView) -> dict[str, str | None]:
    """Say of each webhook path whether it could be checked here; nothing where no secrets are."""
    if not is_folder(settings.secrets_dir):
        return {}
    targets = targets_of(view.rows, SecretFiles(settings.secrets_dir))
    return {path: target.problem for path, target in sorted(targets.items())}
