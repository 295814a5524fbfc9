"""A trigger that reads a topic of somebody else's: what its definition says of the topic.

    kind = "stream"
    provider = "kafka"
    topics = ["orders", "refunds"]        # or topic = "orders"
    format = "json"                       # or "text", "bytes", "avro"
    start = "latest"                      # or "earliest"

Each trigger reads with a consumer group of its own, so that each keeps its own place, and its
events go to it alone.

Source: SEMANTICS 1.1 (stream payload), 1.4, 1.5; DESIGN "Roles", ingest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from streams.core.wire import BindingDefinition

__all__ = [
    "FORMATS",
    "GROUP_PREFIX",
    "KIND",
    "STARTS",
    "TOPICS_MAX",
    "StreamSource",
    "is_ours",
    "is_topic",
    "source_of",
]

KIND = "stream"
GROUP_PREFIX = "harn.stream."

FORMATS = ("json", "text", "bytes", "avro")
STARTS = ("latest", "earliest")

TOPICS_MAX = 20
"""Topics of one trigger."""

_TOPIC_CHARS_MAX = 249  # Kafka's own bound
_TOPIC_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

# What the application itself writes: a trigger on it would feed itself.
_OURS = ("trigger.", "triggers.", "worker.", "lifecycle.pool.", "agent.", "audit.", "fleet.")
_OURS_EXACTLY = ("agent_turns", "observability.action_graph", "orchestrator.lifecycle")
_CHANGELOG = "-changelog"

Format = Literal["json", "text", "bytes", "avro"]
Start = Literal["latest", "earliest"]


@dataclass(frozen=True, slots=True)
class StreamSource:
    """What a trigger reads, and how.

    `events` are the kinds that it takes, every kind when there are none.  `start` is where a group
    without a place begins.
    """

    trigger_id: str
    namespace: str
    provider: str
    topics: tuple[str, ...]
    format: Format
    start: Start
    events: tuple[str, ...]

    @property
    def group(self) -> str:
        """The consumer group that keeps the trigger's place, whatever its version."""
        return f"{GROUP_PREFIX}{self.namespace}.{self.trigger_id}"


def is_topic(text: str, /) -> bool:
    """Whether a text can name a topic."""
    return (
        0 < len(text) <= _TOPIC_CHARS_MAX
        and text not in (".", "..")
        and all(char in _TOPIC_CHARS for char in text)
    )


def is_ours(topic: str, /) -> bool:
    """Whether the application itself writes to a topic of that name, or may."""
    return topic.startswith(_OURS) or topic in _OURS_EXACTLY or topic.endswith(_CHANGELOG)


def source_of(binding: BindingDefinition, /) -> StreamSource | None:
    """Return what a binding reads; None when it reads no topic, or no manifest would hold it."""
    if binding["kind"] != KIND:
        return None
    try:
        table: dict[str, Any] = json.loads(binding["definition"])
    except ValueError:
        return None
    topics = cast("Sequence[str]", table.get("topics") or [table.get("topic", "")])
    format_, start = table.get("format", FORMATS[0]), table.get("start", STARTS[0])
    known = format_ in FORMATS and start in STARTS
    if not known or not all(is_topic(topic) and not is_ours(topic) for topic in topics):
        return None
    return StreamSource(
        trigger_id=binding["trigger_id"],
        namespace=binding["namespace"],
        provider=binding["provider"],
        topics=tuple(sorted(topics)),
        format=format_,
        start=start,
        events=tuple(binding["events"]),
    )
