"""Copy each revision into every mailbox partition that needs it; dispatch before inbox.

    triggers.registry: revision_published r → every partition of worker.requests, acked
                                            → every partition of trigger.dispatches, acked
                                            → every partition of trigger.inbox.envelopes, acked
                                            → triggers.registry: revision_broadcast r

So no dispatch partition meets work under a revision that it has not seen.  A broadcaster begins by
repeating the last revision that was broadcast, and then every later one, in order: whatever its
predecessor left half done is whole then.  A fold takes a repeat as nothing, so that several
broadcasters at once do no harm, and no revision is ever skipped.

Source: DESIGN law 3, "Roles".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from streams.codec import Codec, DecodeError
from streams.core import inbox, registry
from streams.edge.follower import BACKOFF_FIRST_S, BACKOFF_MAX_S, Follower
from streams.edge.ingest.envelopes import ENVELOPES
from streams.edge.publisher import Publisher
from streams.edge.topic_reader import LONG_WAIT_MS, ReadRecord, TopicReader
from streams.errors import BrokerError
from streams.settings import Settings

__all__ = ["Broadcaster"]

_LOG = logging.getLogger("harn.broadcaster")

MAILBOXES = ("worker.requests", inbox.DISPATCHES, ENVELOPES)
"""Downstream first."""

_READ_S = 0.5

_CONTROL_KEY = b"\0revision"
"""No event has this key: ids and delivery keys hold no NUL."""


class Broadcaster(Follower):
    """Follows the registry's log and broadcasts its revisions; an `EdgeService`.

    Args:    publisher: started and stopped by whoever made it, around this service.
    """

    name = "broadcaster"

    def __init__(self, settings: Settings, publisher: Publisher, codec: Codec) -> None:
        super().__init__(settings)
        self._publisher = publisher
        self._codec = codec
        self._pending = _Pending(codec)
        self._reader: TopicReader | None = None

    async def start(self) -> None:
        """Begin to follow.  Raises TopologyError without the registry's topic, BrokerError."""
        open_reader = partial(TopicReader, wait_ms=LONG_WAIT_MS)
        self._reader = await self._in_thread(open_reader, self._settings, registry.REGISTRY)
        self._reader.start_at({0: 0})
        self._begin(self._follow(self._reader))

    async def stop(self) -> None:
        """Stop between two steps, at once when idle; idempotent."""
        await self._end()
        if self._reader is not None:
            await self._in_thread(self._reader.close)
            self._reader = None
        self._thread.shutdown(wait=False)

    async def _follow(self, reader: TopicReader) -> None:
        backoff_s = BACKOFF_FIRST_S
        caught_up = False
        while not self._stopping.is_set():
            try:
                self._pending.take(await self._in_thread(reader.read, _READ_S))
                # Only the whole log says which revision is to be repeated.
                caught_up = caught_up or reader.at_end
                if caught_up:
                    await self._broadcast_due()
                backoff_s = BACKOFF_FIRST_S
            except BrokerError as error:
                if not error.retryable:
                    raise
                _LOG.warning("broadcast_delayed", extra={"reason": str(error), "wait_s": backoff_s})
                await self._pause(backoff_s)
                backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)

    async def _broadcast_due(self) -> None:
        """Broadcast what is due; after a failure the same revision is due again."""
        for revision, value in self._pending.due():
            for mailbox in MAILBOXES:
                appends = [
                    self._publisher.append_soon(
                        mailbox,
                        kind="revision_published",
                        value=value,
                        key=_CONTROL_KEY,
                        partition=partition,
                    )
                    for partition in range(self._settings.partitions)
                ]
                await asyncio.gather(*appends)
            await self._publisher.append(
                registry.REGISTRY,
                kind="revision_broadcast",
                value=self._codec.encode("revision_broadcast", {"revision": revision}),
                key=_CONTROL_KEY,
                partition=0,
            )
            self._pending.done(revision)
            _LOG.info("revision_broadcast", extra={"revision": revision})


class _Pending:
    """The revisions that are still to be broadcast, as far as the log has been read."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._values: dict[int, bytes] = {}
        self._published = 0
        self._broadcast = 0
        self._sent = 0

    def take(self, records: Sequence[ReadRecord]) -> None:
        """Note what the records say; of the rest nothing is kept."""
        for record in records:
            if record.kind not in {"revision_published", "revision_broadcast"}:
                continue
            value = record.value or b""
            try:
                schema, said = self._codec.decode(value)
            except DecodeError:
                continue  # nobody can take it; the registry quarantines it
            if schema != record.kind:
                continue  # nor this
            revision: int = said["revision"]
            is_new = record.kind == "revision_published"
            if revision != self._published + 1 if is_new else revision > self._published:
                # Not the registry's, which counts: no mailbox could go on behind it.
                reason = f"{record.kind} of revision {revision}, after {self._published}"
                position = f"{registry.REGISTRY}/0/{record.offset}"
                extra = {"position": position, "reason": reason}
                _LOG.warning("revision_passed_over", extra=extra)
            elif is_new:
                self._published = revision
                self._values[revision] = value
            else:
                self._broadcast = max(self._broadcast, revision)
        for revision in [each for each in self._values if each < self._broadcast]:
            del self._values[revision]

    def due(self) -> list[tuple[int, bytes]]:
        """Return the last revision that was broadcast, unless we did it, and every later one."""
        return [(each, self._values[each]) for each in sorted(self._values) if each > self._sent]

    def done(self, revision: int) -> None:
        """Note that we have broadcast a revision."""
        self._sent = revision
