"""The topology of these settings: laid out, checked, provisioned and verified.

Everything that stands between `topology`, which knows no settings, and a command or a role, which
wants one call: the layout is built, and failures come out as this package's own errors.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields

from confluent_kafka import KafkaError, KafkaException

import topology.errors
from streams.core.flow import flow_of
from streams.core.wire import BindingDefinition
from streams.errors import BrokerError, TopologyError
from streams.kafka import make_admin, right_missing, wait_until_served
from streams.settings import Settings
from streams.stages import FOLDS
from topology import TOPOLOGY, Stage, Topic, Topology
from topology.check import Bindings, raise_if_broken
from topology.cluster import observe
from topology.family import clash_form, expand
from topology.layout import Layout
from topology.plan import ChangeKind, Plan
from topology.provision import apply, grow, plan
from topology.resolve import ResolvedTopic, resolve, resolve_topic
from topology.topics import QUEUE_TOPICS
from topology.verify import verify_at_start, verify_topics

__all__ = [
    "check_topology",
    "grow_topics",
    "layout_of",
    "plan_topics",
    "provision_bindings",
    "provision_queue",
    "provision_topics",
    "queue_problem",
    "resolved_topics",
    "topics_of_bindings",
    "verify_stages",
    "verify_topics_of_edges",
]

_LIST_S = 10.0
_WORD = re.compile(r"[a-z]+(?:_[a-z]+)+")
_SERVED_S = 60.0
"""Until the leaders of new partitions answer: many of them, on a small broker, take their time."""

_OUTAGES = (
    KafkaError._TRANSPORT,  # noqa: SLF001 - librdkafka's own codes are spelled so
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
)


def layout_of(settings: Settings) -> Layout:
    """Return the numbers of `settings` that lay out topics; the others keep their defaults."""
    return Layout(
        **{
            each.name: getattr(settings, each.name)
            for each in fields(Layout)
            if hasattr(settings, each.name)
        }
    )


def resolved_topics(settings: Settings, declared: Topology = TOPOLOGY) -> tuple[ResolvedTopic, ...]:
    """Return every fixed topic as the cluster of `settings` should have it."""
    return resolve(declared, layout_of(settings))


def check_topology(
    settings: Settings, *, bindings: Bindings | None = FOLDS, declared: Topology = TOPOLOGY
) -> None:
    """Raise TopologyError with everything that does not fit together under `settings`.

    `bindings` holds the fold of each stage; None leaves out the rules about them.
    """
    with _own_errors(settings):
        try:
            raise_if_broken(declared, layout_of(settings), bindings=bindings)
        except topology.errors.TopologyError as error:
            raise TopologyError(
                [_as_set(settings, problem) for problem in error.problems]
            ) from None


def plan_topics(settings: Settings, declared: Topology = TOPOLOGY) -> Plan:
    """Compare the declarations with the cluster.  Raises BrokerError."""
    with _own_errors(settings):
        return plan(make_admin(settings), resolved_topics(settings, declared))


def provision_topics(
    settings: Settings, *, sync: bool = False, declared: Topology = TOPOLOGY
) -> Plan:
    """Create and grow topics; with `sync`, set what drifted.  Idempotent.

    Returns what was done.  Raises TopologyError, with nothing changed, when something is refused;
    BrokerError.
    """
    with _own_errors(settings):
        return _applied(settings, resolved_topics(settings, declared), sync=sync)


def grow_topics(settings: Settings, names: Collection[str]) -> None:
    """Give fixed topics the partitions of `settings`, also where `provision_topics` refuses.

    It is for whoever moves what their records' partitions stand for.  Raises TopologyError;
    BrokerError.
    """
    with _own_errors(settings):
        wanted = [topic for topic in resolved_topics(settings) if topic.name in names]
        grow(make_admin(settings), wanted)
        _wait_until_served(settings, wanted)


def provision_bindings(
    settings: Settings, bindings: Collection[BindingDefinition], declared: Topology = TOPOLOGY
) -> None:
    """Create the topics that bindings name, before their revision is in force: gates and queues.

    Raises TopologyError when two triggers or two queues would share a topic; BrokerError.
    """
    layout = layout_of(settings)
    with _own_errors(settings):
        found = topics_of_bindings(bindings, declared)
        if found:
            topics = {topic.name: resolve_topic(topic, layout) for topic in found}
            admin = make_admin(settings)
            _refuse_clashes(admin.list_topics(timeout=_LIST_S).topics, topics)
            _applied(settings, list(topics.values()))


def topics_of_bindings(
    bindings: Collection[BindingDefinition], declared: Topology = TOPOLOGY
) -> list[Topic]:
    """Return the topics that bindings name: of their gates, and of their queues."""
    return [*_gates(bindings, declared), *_queues(bindings, declared)]


def _refuse_clashes(present: Iterable[str], wanted: Iterable[str]) -> None:
    """Raise TopologyError where Kafka takes a name for another topic's: `.` and `_` are one."""
    forms = {clash_form(name): name for name in present}
    problems = [
        f"{name}: the topic {other} is there, and Kafka holds `.` and `_` for one, expected names "
        "that differ in letters, digits or '-'"
        for name in wanted
        if (other := forms.get(clash_form(name), name)) != name
    ]
    if problems:
        raise topology.errors.TopologyError(problems, remedy="choose another name")


def queue_problem(queue: str, *, taken: Iterable[str] = (), declared: Topology = TOPOLOGY) -> None:
    """Raise TopologyError, with every reason, when a queue cannot have this name.

    `taken` are the queues that are there.
    """
    with _own_names():
        for family in QUEUE_TOPICS:
            expand(declared, family, queue, taken=taken)


def provision_queue(settings: Settings, queue: str, declared: Topology = TOPOLOGY) -> Plan:
    """Create the topics of a queue that are missing; those that are there stay as they are.

    Raises TopologyError when its name cannot be a topic, or would be another declaration's;
    BrokerError.
    """
    layout = layout_of(settings)
    with _own_errors(settings):
        admin = make_admin(settings)
        topics = [resolve_topic(expand(declared, each, queue), layout) for each in QUEUE_TOPICS]
        # Another's topic may have more partitions than ours: only what is missing is our business.
        present = observe(admin, [topic.name for topic in topics]).topics
        return _applied(settings, [topic for topic in topics if topic.name not in present])


def _applied(
    settings: Settings, resolved: Collection[ResolvedTopic], *, sync: bool = False
) -> Plan:
    """Make the cluster what is wanted; whoever writes next is served."""
    done = apply(make_admin(settings), resolved, sync=sync)
    made = (*done.of(ChangeKind.CREATE), *done.of(ChangeKind.GROW))
    _wait_until_served(settings, [change.topic for change in made])
    return done


def _wait_until_served(settings: Settings, topics: Iterable[ResolvedTopic]) -> None:
    places = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
    if places:
        wait_until_served(settings, places, _SERVED_S)


def _gates(bindings: Iterable[BindingDefinition], declared: Topology) -> Iterator[Topic]:
    for binding in bindings:
        for gate in flow_of(binding).declared:
            yield expand(declared, f"trigger.{gate}.{{binding}}", binding["trigger_id"])


def _queues(bindings: Iterable[BindingDefinition], declared: Topology) -> Iterator[Topic]:
    flows = (flow_of(binding) for binding in bindings)
    queues = sorted({flow.queue for flow in flows if flow.queue is not None})
    for queue in queues:
        for family in QUEUE_TOPICS:
            yield expand(declared, family, queue, taken=queues)


def verify_stages(
    settings: Settings, stages: Iterable[Stage], declared: Topology = TOPOLOGY
) -> None:
    """Raise TopologyError that names every topic these stages cannot start on; BrokerError."""
    with _own_errors(settings):
        verify_at_start(make_admin(settings), resolved_topics(settings, declared), stages)


def verify_topics_of_edges(
    settings: Settings, names: Collection[str], declared: Topology = TOPOLOGY
) -> None:
    """Verify the topics `names` as `verify_stages` does."""
    with _own_errors(settings):
        verify_topics(make_admin(settings), resolved_topics(settings, declared), names)


def _as_set(settings: Settings, problem: str) -> str:
    """Name numbers of the layout by the variables that set them."""
    variables = {each.name: each.env for each in settings.describe()}
    return _WORD.sub(lambda found: variables.get(found[0], found[0]), problem)


@contextmanager
def _own_names() -> Iterator[None]:
    try:
        yield
    except topology.errors.TopologyError as error:
        raise TopologyError(error.problems, remedy=error.remedy) from error


@contextmanager
def _own_errors(settings: Settings) -> Iterator[None]:
    try:
        with _own_names():
            yield
    except KafkaException as exception:
        cause: KafkaError = exception.args[0]
        outage = cause.retriable() or cause.code() in _OUTAGES
        raise BrokerError(
            f"Kafka at {settings.bootstrap}: {cause.str()}",
            retryable=outage,
            remedy="check KAFKA_BOOTSTRAP_SERVERS and that the cluster is up"
            if outage
            else right_missing(cause),
        ) from exception
