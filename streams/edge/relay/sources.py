"""What the relay reads: every queue's topic, from the moment that it can be dealt out.

A queue whose topic is new gets the topics that its claims and responses go to, and is looked up in
the catalog, before its first job is read.  One that cannot be used is told once, and looked at
again with every look.
"""

from __future__ import annotations

from collections.abc import Collection

from streams.codec import Codec
from streams.core.ready_jobs import Source
from streams.core.shards import numbers_of
from streams.core.wire import QueueConfigured
from streams.edge.queue_catalog import queue_topics, read_configured
from streams.errors import HarnError
from streams.observe import logs
from streams.provision import provision_queue
from streams.settings import Settings

__all__ = ["QueueSources"]

_LOG = logs.logger(__name__)


class QueueSources:
    """The queues that can be relayed, by topic; used in the relay's thread."""

    def __init__(self, settings: Settings, codec: Codec) -> None:
        self._settings = settings
        self._codec = codec
        self._known: dict[str, Source] = {}
        self._refused: dict[str, str] = {}

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics to read, sorted."""
        return tuple(sorted(self._known))

    def look(self, topics: Collection[str]) -> bool:
        """Take the topics that a cluster has now; return whether there is more or less to read.

        Raises: HarnError when the catalog cannot be read.
        """
        queues = {topic: queue for queue, topic in queue_topics(topics).items()}
        gone = [topic for topic in self._known if topic not in queues]
        for topic in gone:
            del self._known[topic]
        new = [topic for topic in queues if topic not in self._known]
        usable = [topic for topic in new if self._is_usable(topic, queues[topic])]
        if usable:
            configured = read_configured(self._settings, self._codec)
            for topic in usable:
                queue = queues[topic]
                self._known[topic] = _source(queue, topic, configured.get(queue))
                extra = {"queue": queue, "shards": self._known[topic].shards}
                _LOG.info("queue_relayed", extra=extra)
        return bool(gone or usable)

    def source(self, topic: str, partition: int) -> Source | None:
        """Return the source of a partition; None when its topic has gone meanwhile."""
        found = self._known.get(topic)
        return None if found is None else found._replace(partition=partition)

    def _is_usable(self, topic: str, queue: str) -> bool:
        try:
            provision_queue(self._settings, queue)
        except HarnError as error:
            reason = str(error)
            if self._refused.get(topic) != reason:
                self._refused[topic] = reason
                _LOG.error("queue_not_relayed", extra={"queue": queue, "reason": reason})
            return False
        self._refused.pop(topic, None)
        return True


def _source(queue: str, topic: str, configured: QueueConfigured | None) -> Source:
    if configured is None:
        return Source(queue, topic, 0)
    numbers = numbers_of(configured["shards"], configured["numbers"])
    return Source(queue, topic, 0, configured["shards"], configured["shard_by"], numbers)
