"""The broadcaster in memory: copies each revision to where it is needed, one append at a time.

Like the live one it begins by repeating the last revision that was broadcast, goes through the
dispatch mailbox before the inbox, and says `revision_broadcast` when both have it.  It may die
between any two appends; another one then begins anew.

Source: DESIGN law 3.
"""

from __future__ import annotations

from collections import deque

from streams.codec import Codec, DecodeError
from streams.testing.memory_kafka import MemoryKafka, header

REGISTRY = "triggers.registry"
MAILBOXES = ("worker.requests", "trigger.dispatches", "trigger.inbox.envelopes")
"""Downstream first."""

_KEY = b"\0revision"


class MemoryBroadcaster:
    """One broadcaster.  Replace it to make it crash."""

    def __init__(self, kafka: MemoryKafka, codec: Codec) -> None:
        self._kafka = kafka
        self._codec = codec
        self._read_to = 0
        self._values: dict[int, bytes] = {}
        self._broadcast = 0
        self._sent = 0
        self._pending: deque[tuple[str, int, bytes, str]] = deque()
        self._take()

    def _take(self) -> None:
        """Read what is new in the registry's log."""
        for record in self._kafka.fetch(REGISTRY, 0, self._read_to, 1_000_000):
            self._read_to = record.offset + 1
            kind = header(record.headers, "kind")
            if kind not in {"revision_published", "revision_broadcast"} or record.value is None:
                continue
            try:
                revision: int = self._codec.decode(record.value)[1]["revision"]
            except DecodeError:
                continue  # the registry quarantines it
            if kind == "revision_published":
                self._values[revision] = record.value
            else:
                self._broadcast = max(self._broadcast, revision)

    def has_work(self) -> bool:
        """Whether a revision, or a part of one, is still to be copied."""
        if self._pending:
            return True
        self._take()
        revision = min(
            (each for each in self._values if each >= self._broadcast and each > self._sent),
            default=None,
        )
        if revision is None:
            return False
        self._sent = revision
        value = self._values.pop(revision)
        for mailbox in MAILBOXES:
            for partition in range(self._kafka.partitions(mailbox)):
                self._pending.append((mailbox, partition, value, "revision_published"))
        done = self._codec.encode("revision_broadcast", {"revision": revision})
        self._pending.append((REGISTRY, 0, done, "revision_broadcast"))
        return True

    def work(self) -> None:
        """Make one append; `has_work` came before."""
        topic, partition, value, kind = self._pending.popleft()
        self._kafka.append(
            topic, value, key=_KEY, headers=[("kind", kind.encode())], partition=partition
        )
