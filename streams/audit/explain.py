"""Everything that happened to one event, as a tree: its dispatches, and under each its steps.

    event → dispatch of each binding → attempts, retries, decisions of gates, terminal record

The event's records have its id as their key, so one partition of each output topic is read; the
envelope and the matches are found through the mailboxes.

Source: PEERS E "Wait explanation"; DESIGN "Proof" (`harn audit explain`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from streams.audit.log import LogReader, LogRecord
from streams.codec import Codec, DecodeError
from streams.core.placement import partition_of
from streams.core.record import Position

__all__ = ["DispatchStory", "EventStory", "Happening", "explain"]

ENVELOPES = "trigger.inbox.envelopes"
DISPATCHES = "trigger.dispatches"
LIFECYCLE = "triggers.lifecycle"
CANCELS = "trigger.cancel.requests"
_KEYED_BY_EVENT = (LIFECYCLE, "trigger.attempts", "trigger.outbox", "trigger.dlq")
_GATE_TOPICS = tuple(
    f"trigger.{gate}."
    for gate in ("batch", "debounce", "rate_limit", "throttle", "singleton", "concurrency")
)


@dataclass(frozen=True, slots=True)
class Happening:
    """One record about the event; `value` is decoded."""

    at_ms: int
    position: Position
    kind: str
    value: dict[str, Any]


@dataclass(slots=True)
class DispatchStory:
    """One dispatch of the event, by one binding; happenings in the order of their times."""

    dispatch_id: str
    binding_key: str = ""
    happenings: list[Happening] = field(default_factory=list[Happening])

    @property
    def outcome(self) -> str:
        """How it ended, or `live`."""
        kinds = {happening.kind for happening in self.happenings}
        for kind in ("dispatch_succeeded", "dlq_moved", "dispatch_skipped", "dispatch_cancelled"):
            if kind in kinds:
                return kind
        return "live"


@dataclass(slots=True)
class EventStory:
    """What the log says of an event: its envelopes, what concerns it as a whole, its dispatches."""

    event_id: str
    envelopes: list[Happening] = field(default_factory=list[Happening])
    happenings: list[Happening] = field(default_factory=list[Happening])
    dispatches: dict[str, DispatchStory] = field(default_factory=dict[str, DispatchStory])

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
    Cost:    one partition of each output topic, and both trigger mailboxes, are read.
    """
    story = EventStory(event_id)
    for happening in _found(
        reader, codec, ENVELOPES, range(reader.partitions(ENVELOPES)), event_id
    ):
        story.envelopes.append(happening)
    for happening in _found(
        reader, codec, DISPATCHES, range(reader.partitions(DISPATCHES)), event_id
    ):
        if happening.kind != "event_matched":
            continue  # a copy of a request, for example, which is told where it was made
        dispatch = story.dispatch(happening.value["dispatch_id"])
        dispatch.binding_key = happening.value["binding_key"]
        dispatch.happenings.append(happening)
    for happening in _found(reader, codec, CANCELS, range(reader.partitions(CANCELS)), event_id):
        story.of_binding(happening.value.get("binding_key", "")).append(happening)
    for topic in _KEYED_BY_EVENT:
        count = reader.partitions(topic)
        if count:
            home = partition_of(event_id.encode(), count)
            _enter(story, _found(reader, codec, topic, (home,), event_id))
    for topic in sorted(reader.topic_names()):
        if topic.startswith(_GATE_TOPICS):
            _enter(story, _found(reader, codec, topic, range(reader.partitions(topic)), event_id))
    for dispatch in story.dispatches.values():
        dispatch.happenings.sort(key=lambda happening: happening.at_ms)
    return story


def _enter(story: EventStory, happenings: Iterator[Happening]) -> None:
    for happening in happenings:
        dispatch_id = happening.value.get("dispatch_id")
        if dispatch_id is None:
            story.happenings.append(happening)
        else:
            story.dispatch(dispatch_id).happenings.append(happening)


def _found(
    reader: LogReader, codec: Codec, topic: str, partitions: range | tuple[int, ...], event_id: str
) -> Iterator[Happening]:
    places = [(topic, partition) for partition in partitions]
    needle = event_id.encode()
    for place, span in reader.spans(places).items() if places else ():
        for records in reader.read(place, *span):
            for record in records:
                # The id stands in the value as it is: what does not hold it need not be decoded.
                if needle in (record.value or b""):
                    happening = _happening(codec, place, record, event_id)
                    if happening is not None:
                        yield happening


def _happening(
    codec: Codec, place: tuple[str, int], record: LogRecord, event_id: str
) -> Happening | None:
    try:
        _, value = codec.decode(record.value or b"")
    except DecodeError:
        return None
    event = value.get("event")
    about = event.get("id") if isinstance(event, dict) else value.get("event_id")
    if about != event_id:
        return None
    kind = next((text.decode() for name, text in record.headers if name == "kind"), "")
    return Happening(record.timestamp, Position(*place, record.offset), kind, value)
