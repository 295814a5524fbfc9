"""The canceller in memory: copies each cancel request into every dispatch partition.

Source: SEMANTICS 2.5; DESIGN 3.
"""

from __future__ import annotations

from collections import deque

from streams.testing.memory_kafka import MemoryKafka

REQUESTS = "trigger.cancel.requests"
DISPATCHES = "trigger.dispatches"
_KIND = "dispatch_cancel_requested"


class MemoryCanceller:
    """One canceller.  Replace it to make it crash: its successor begins anew, and repeats."""

    def __init__(self, kafka: MemoryKafka) -> None:
        self._kafka = kafka
        self._read_to = [0] * kafka.partitions(REQUESTS)
        self._pending: deque[tuple[int, bytes]] = deque()

    def has_work(self) -> bool:
        """Whether a request, or a part of its copies, is still to be made."""
        for partition, offset in enumerate(self._read_to):
            for record in self._kafka.fetch(REQUESTS, partition, offset, 1_000_000):
                self._read_to[partition] = record.offset + 1
                for home in range(self._kafka.partitions(DISPATCHES)):
                    self._pending.append((home, record.value or b""))
        return bool(self._pending)

    def work(self) -> None:
        """Make one copy; `has_work` came before."""
        home, value = self._pending.popleft()
        self._kafka.append(
            DISPATCHES, value, key=b"\0cancel", headers=[("kind", _KIND.encode())], partition=home
        )
