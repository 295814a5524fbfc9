"""Everything that happened to one event, as a tree: its dispatches, and under each its steps.

    event → dispatch of each binding → attempts, retries, decisions of gates, terminal record
                                     → its job on a worker queue → claims, responses

The event's records have its id as their key, so one partition of each output topic is read; the
envelope and the matches are found through the mailboxes.

Source: PEERS E "Wait explanation"; DESIGN "Proof" (`harn audit explain`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streams.audit.explain_jobs import JobStory, jobs_of
from streams.audit.happening import Happening, happenings
from streams.audit.log import LogReader
from streams.codec import Codec
from streams.core.dlq_words import home_of
from streams.core.placement import partition_of

__all__ = ["READS", "DispatchStory", "EventStory", "Graph", "Happening", "JobStory", "explain"]

ENVELOPES = "trigger.inbox.envelopes"
DISPATCHES = "trigger.dispatches"
LIFECYCLE = "triggers.lifecycle"
CANCELS = "trigger.cancel.requests"
ACTION_GRAPH = "observability.action_graph"
_KEYED_BY_EVENT = (LIFECYCLE, "trigger.attempts", "trigger.outbox", "trigger.dlq")

READS = (ENVELOPES, DISPATCHES, CANCELS, *_KEYED_BY_EVENT, ACTION_GRAPH)
"""What every explanation is told from; gates and queues have topics of their own beside."""

_GATE_TOPICS = tuple(
    f"trigger.{gate}."
    for gate in ("batch", "debounce", "rate_limit", "throttle", "singleton", "concurrency")
)


@dataclass(slots=True)
class DispatchStory:
    """One dispatch of the event, by one binding; happenings in the order of their times.

    `standing` says of one that has not ended what it waits for, where somebody has looked.
    """

    dispatch_id: str
    binding_key: str = ""
    standing: str | None = None
    happenings: list[Happening] = field(default_factory=list[Happening])
    jobs: list[JobStory] = field(default_factory=list[JobStory])

    @property
    def outcome(self) -> str:
        """How it ended, or `live`."""
        kinds = {happening.kind for happening in self.happenings}
        for kind in ("dispatch_succeeded", "dlq_moved", "dispatch_skipped", "dispatch_cancelled"):
            if kind in kinds:
                return kind
        return "live"


@dataclass(slots=True)
class Graph:
    """The action graph of an event: its nodes as they were drawn last, and its edges."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    edges: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def take(self, update: dict[str, Any]) -> None:
        """Take one update; they come in the order in which they were made."""
        drawn = update["observability"]
        self.nodes.update({node["id"]: node for node in drawn["action_graph_nodes"]})
        self.edges += [edge for edge in drawn["action_graph_edges"] if edge not in self.edges]


@dataclass(slots=True)
class EventStory:
    """What the log says of an event: its envelopes, what concerns it as a whole, its dispatches."""

    event_id: str
    envelopes: list[Happening] = field(default_factory=list[Happening])
    happenings: list[Happening] = field(default_factory=list[Happening])
    replays: list[Happening] = field(default_factory=list[Happening])
    """Envelopes of the events that replay this one."""
    graph: Graph = field(default_factory=Graph)
    dispatches: dict[str, DispatchStory] = field(default_factory=dict[str, DispatchStory])

    @property
    def binding_keys(self) -> frozenset[str]:
        """The bindings under which it was dispatched."""
        return frozenset(each.binding_key for each in self.dispatches.values())

    @property
    def known(self) -> bool:
        """Whether the log has anything about the event."""
        return bool(self.envelopes or self.happenings or self.dispatches)

    def dispatch(self, dispatch_id: str) -> DispatchStory:
        """Return the story of one dispatch, begun when it is new."""
        return self.dispatches.setdefault(dispatch_id, DispatchStory(dispatch_id))

    def of_binding(self, binding_key: str) -> list[Happening]:
        """Return the happenings of a binding's dispatch, or of the event when there is none."""
        for dispatch in self.dispatches.values():
            if dispatch.binding_key == binding_key:
                return dispatch.happenings
        return self.happenings


def explain(reader: LogReader, codec: Codec, event_id: str) -> EventStory:
    """Collect everything that the log holds about an event.

    Returns: the story; `known` is false when the log has nothing about the event.
    Cost:    one partition of each output topic, and both trigger mailboxes, are read; `jobs_of`
             says what is read of queues.
    """
    story = EventStory(event_id)
    asked = _Asked(reader, codec, event_id)
    for happening in asked.everywhere(ENVELOPES):
        replay = happening.value["event"]["id"] != event_id
        (story.replays if replay else story.envelopes).append(happening)
    for happening in asked.everywhere(DISPATCHES):
        if happening.kind != "event_matched":
            continue  # a copy of a request, for example, which is told where it was made
        dispatch = story.dispatch(happening.value["dispatch_id"])
        dispatch.binding_key = happening.value["binding_key"]
        dispatch.happenings.append(happening)
    for happening in asked.everywhere(CANCELS):
        story.of_binding(happening.value.get("binding_key", "")).append(happening)
    for topic in _KEYED_BY_EVENT:
        _enter(story, asked.at_home(topic))
    for happening in asked.at_home(ACTION_GRAPH):
        story.graph.take(happening.value)
    for topic in sorted(reader.topic_names()):
        if topic.startswith(_GATE_TOPICS):
            _enter(story, asked.everywhere(topic))
    for dispatch in story.dispatches.values():
        dispatch.happenings.sort(key=lambda happening: happening.at_ms)
        dispatch.jobs = jobs_of(reader, codec, dispatch.dispatch_id, dispatch.happenings)
    return story


class _Asked(NamedTuple):
    """The log, asked for one event."""

    reader: LogReader
    codec: Codec
    event_id: str

    def everywhere(self, topic: str) -> Iterator[Happening]:
        """Yield what all partitions of a topic hold about the event."""
        count = self.reader.partitions(topic)
        return _found(self.reader, self.codec, topic, range(count), self.event_id)

    def at_home(self, topic: str) -> Iterator[Happening]:
        """Yield what the topic holds in the partition of the event's key."""
        count = self.reader.partitions(topic)
        home = (partition_of(self.event_id.encode(), count),) if count else ()
        return _found(self.reader, self.codec, topic, home, self.event_id)


def _enter(story: EventStory, happenings: Iterator[Happening]) -> None:
    for happening in happenings:
        dispatch_id = happening.value.get("dispatch_id") or _dispatch_of(happening.value)
        if dispatch_id is None:
            story.happenings.append(happening)
        else:
            story.dispatch(dispatch_id).happenings.append(happening)


def _dispatch_of(value: dict[str, Any]) -> str | None:
    """Return the dispatch whose dead letter a record is about, or None."""
    home = home_of(value.get("entry_id", ""))
    return None if home is None else home.dispatch_id


def _found(
    reader: LogReader, codec: Codec, topic: str, partitions: range | tuple[int, ...], event_id: str
) -> Iterator[Happening]:
    needle = event_id.encode()
    # The id stands in the value as it is: what does not hold it need not be decoded.
    found = happenings(
        reader,
        codec,
        [(topic, partition) for partition in partitions],
        lambda record: needle in (record.value or b""),
    )
    for each in found:
        if event_id in _events(each):
            yield each


def _events(happening: Happening) -> set[str | None]:
    """Return the ids of the events that a record is about."""
    value = happening.value
    event = value.get("event")
    about = {event.get("id") if isinstance(event, dict) else value.get("event_id")}
    if happening.position.topic == ENVELOPES:
        about.add(value.get("replay_of_event_id"))
    return about
