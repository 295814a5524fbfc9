"""Heartbeats of a worker: every 30 s, and soon after what it runs has changed.

A worker that ends in order takes its record back; one that was killed drops out by its age.

They are for people: a worker whose heartbeats do not arrive works all the same.

Source: SEMANTICS 8.9, A3; seed queue-driven-agent-dispatch, "Fleet visibility".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple

from streams.codec import Codec
from streams.core.record import Position
from streams.core.turn.fleet import HEARTBEAT_MS, WORKER_TTL_MS, Presence
from streams.edge.publisher import Publisher
from streams.edge.topic_reader import TopicReader
from streams.observe import logs
from streams.settings import Settings

__all__ = ["FLEET", "Doing", "Heartbeats", "namesakes"]

_LOG = logs.logger(__name__)

FLEET = "fleet.workers"

_APART_S = 1.0
_READ_S = 0.5


class Doing(NamedTuple):
    """What a worker does now."""

    sessions: frozenset[str]
    partitions: frozenset[int]
    draining: bool


def namesakes(settings: Settings, codec: Codec, presence: Presence, now_ms: int) -> set[str]:
    """Return the tokens of other workers of this id that seem to live; it blocks.

    Raises: BrokerError, TopologyError.
    """
    last_ms: dict[str, int] = {}
    with TopicReader(settings, FLEET) as reader:
        reader.start_at(dict.fromkeys(range(reader.partitions), 0))
        while not reader.at_end:
            for record in reader.read(_READ_S):
                if record.key != presence.worker_id.encode():
                    continue
                if record.value is None:  # one of that name has left
                    last_ms.clear()
                    continue
                said = codec.decode_as("fleet_worker", record.value)
                if said is not None:
                    last_ms[said["token"]] = said["last_heartbeat_ms"]
    last_ms.pop(presence.token, None)
    return {each for each, at_ms in last_ms.items() if now_ms - at_ms <= WORKER_TTL_MS}


class Heartbeats:
    """Tells of one worker; made and used inside one event loop.

    Args: doing: says what the worker does; now_ms: ms since the epoch.
          every_s: between heartbeats; apart_s: between those that tell of a change.
    """

    def __init__(
        self,
        publisher: Publisher,
        codec: Codec,
        presence: Presence,
        doing: Callable[[], Doing],
        now_ms: Callable[[], int],
        *,
        every_s: float = HEARTBEAT_MS / 1_000,
        apart_s: float = _APART_S,
    ) -> None:
        self._publisher = publisher
        self._codec = codec
        self._presence = presence
        self._doing = doing
        self._now_ms = now_ms
        self._every_s, self._apart_s = every_s, apart_s
        self._changed = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Say that the worker is there, and go on saying it."""
        self._beating = asyncio.ensure_future(self._beat())

    def changed(self) -> None:
        """Say soon what the worker does."""
        self._changed.set()

    async def stop(self) -> None:
        """Say that the worker is there no more, and nothing after that."""
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None
            self._append(None)

    async def _beat(self) -> None:
        while True:
            self._changed.clear()
            self._say()
            await asyncio.sleep(self._apart_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self._every_s - self._apart_s)

    def _say(self) -> None:
        doing = self._doing()
        value = self._presence.heartbeat(
            active_sessions=doing.sessions,
            partitions=doing.partitions,
            draining=doing.draining,
            now_ms=self._now_ms(),
        )
        self._append(self._codec.encode("fleet_worker", value))

    def _append(self, value: bytes | None) -> None:
        appended = self._publisher.append_soon(
            FLEET,
            kind="fleet_worker",
            value=value,
            key=self._presence.worker_id.encode(),
        )
        appended.add_done_callback(_heard)


def _heard(appended: asyncio.Future[Position]) -> None:
    if not appended.cancelled() and (error := appended.exception()) is not None:
        _LOG.warning("turn_worker_not_heard", extra={"reason": str(error)})
