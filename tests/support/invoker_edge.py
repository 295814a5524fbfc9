"""The invoker's two seams in memory: intents that a test delivers, and a log that it reads."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streams.codec import Codec
from streams.core.record import Position
from streams.edge.invoker import Invoker, Seams
from streams.edge.invoker.cancels import CancelListener
from streams.edge.invoker.intake import FetchedIntent, IntentSink
from streams.errors import BrokerError
from streams.handler_api import Handler
from streams.settings import Settings

CODEC = Codec()


class Appended(NamedTuple):
    topic: str
    kind: str
    value: dict[str, Any]
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    partition: int | None


class LogInMemory:
    """A publisher's log: acks after `ack_s`, unless appends are held back or fail."""

    def __init__(self, ack_s: float = 0.005) -> None:
        self.records: list[Appended] = []
        self.ack_s = ack_s
        self.failures: list[BrokerError] = []  # for the next appends, in order
        self.held: list[asyncio.Future[Position]] | None = None  # a list: acks wait in it
        self._grown = asyncio.Event()

    def append_soon(
        self,
        topic: str,
        *,
        kind: str,
        value: bytes,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
    ) -> asyncio.Future[Position]:
        loop = asyncio.get_running_loop()
        ack: asyncio.Future[Position] = loop.create_future()
        if self.failures:
            loop.call_later(self.ack_s, ack.set_exception, self.failures.pop(0))
            return ack
        schema, decoded = CODEC.decode(value)
        assert schema == kind, "a record's kind names its schema here"
        position = Position(topic, partition or 0, len(self.records))
        self.records.append(Appended(topic, kind, decoded, key, tuple(headers), partition))
        self._grown.set()
        if self.held is None:
            loop.call_later(self.ack_s, ack.set_result, position)
        else:
            self.held.append(ack)
        return ack

    async def wait_for(self, count: int) -> None:
        """Return once there are so many records."""
        while len(self.records) < count:
            self._grown.clear()
            await asyncio.wait_for(self._grown.wait(), 30)

    async def wait_for_outcomes(self, count: int) -> None:
        """Return once there are so many outcomes."""
        while len(self.outcomes) < count:
            await self.wait_for(len(self.records) + 1)

    def release(self) -> None:
        """Ack what was held back, and hold back nothing more."""
        held, self.held = self.held or [], None
        for ack in held:
            ack.set_result(Position("log", 0, 0))

    def of_kind(self, kind: str) -> list[Appended]:
        return [each for each in self.records if each.kind == kind]

    @property
    def outcomes(self) -> list[dict[str, Any]]:
        return [each.value for each in self.of_kind("invocation_completed")]

    @property
    def words(self) -> list[tuple[int | None, list[str]]]:
        """`running` records as (home partition, dispatch ids)."""
        return [
            (each.partition, [running["dispatch_id"] for running in each.value["running"]])
            for each in self.of_kind("invocations_running")
        ]


@dataclass
class ListIntake:
    """Delivers what the test says, and keeps what was committed and released."""

    sink: IntentSink | None = None
    released: int = 0
    committed: dict[int, int] = field(default_factory=dict)
    stopped: bool = False

    async def start(self, sink: IntentSink) -> None:
        self.sink = sink

    async def stop(self) -> None:
        assert self.sink is not None
        self.committed.update(await self.sink.settle([0, 1, 2], 3.0))
        self.stopped = True

    def release(self, size: int) -> None:
        assert size >= 0
        self.released += 1

    def commit(self, offsets: Mapping[int, int]) -> None:
        self.committed.update(offsets)


@dataclass
class Counts:
    """An observer that keeps what it is told."""

    waits_ms: list[int] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    unusable_count: int = 0
    late_ms: list[int] = field(default_factory=list)
    stray_counts: list[int] = field(default_factory=list)
    blocked_count: int = 0
    in_flight: Counter[str] = field(default_factory=Counter[str])

    def started(self, trigger_id: str, waited_ms: int) -> None:
        self.waits_ms.append(waited_ms)
        self.in_flight[trigger_id] += 1

    def finished(self, trigger_id: str, outcome: str, seconds: float | None) -> None:
        self.outcomes.append(outcome)
        if seconds is not None:
            assert seconds >= 0
            self.in_flight[trigger_id] -= 1
            assert self.in_flight[trigger_id] >= 0

    def outstanding(self, count: int) -> None:
        self.running.append(count)

    def unusable(self) -> None:
        self.unusable_count += 1

    def leases_late(self, late_ms: int) -> None:
        self.late_ms.append(late_ms)

    def strays(self, count: int) -> None:
        self.stray_counts.append(count)

    def loop_blocked(self) -> None:
        self.blocked_count += 1


class NoCancels:
    """A source of cancels that stays silent: a test says them itself."""

    async def start(self, listener: CancelListener) -> None:
        pass

    async def stop(self) -> None:
        pass


def _no_exit(code: int) -> None:
    message = f"the invoker ends its process with {code}"
    raise AssertionError(message)


class Rig:
    """An invoker between the two seams, with handlers by name."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        strays_max: int = 16,
        **functions: Callable[..., Any] | Handler,
    ) -> None:
        self.log = LogInMemory()
        self.intake = ListIntake()
        self.counts = Counts()
        self._exit_now: Callable[[int], object] = _no_exit
        self._functions = functions
        self._offsets: dict[int, int] = {}
        self.invoker = Invoker(
            settings or Settings(),
            self.log,
            CODEC,
            self,
            observer=self.counts,
            seams=Seams(
                intake=self.intake,
                cancels=NoCancels(),
                clock=lambda: 1_700_000_000_000,
                strays_max=strays_max,
                exit_now=self._exit,
            ),
        )

    def resolve(self, reference: str, _trigger_id: str = "", /) -> Handler | None:
        function = self._functions.get(reference)
        if function is None or isinstance(function, Handler):
            return function
        return Handler(function, asyncio.iscoroutinefunction(function), takes_context=True)

    def exit_with(self, exit_now: Callable[[int], object]) -> None:
        """Let a stuck invoker call this in place of ending the process."""
        self._exit_now = exit_now

    def _exit(self, code: int) -> None:
        self._exit_now(code)

    async def start(self) -> Rig:
        await self.invoker.start()
        return self

    def deliver(self, *intents: FetchedIntent) -> None:
        """Deliver intents as one batch."""
        self.invoker.take(intents)

    def intent(
        self,
        handler: str,
        dispatch_id: str = "d1",
        *,
        partition: int = 0,
        offset: int | None = None,
        home: int = 3,
        fence: int = 1,
        attempt: int = 1,
        trigger: str = "on-issue",
        headers: Sequence[tuple[str, bytes]] = (),
        timeout_ms: int | None = None,
        purpose: str = "handler",
        payload: str = '{"action": "opened"}',
    ) -> FetchedIntent:
        """Return an intent at the partition's next offset."""
        if offset is None:
            offset = self._offsets.get(partition, 0)
        self._offsets[partition] = offset + 1
        value = intent_value(
            handler, dispatch_id, home=home, fence=fence, attempt=attempt, trigger=trigger
        )
        value |= {"timeout_ms": timeout_ms, "purpose": purpose}
        value["event"]["provider_payload"] = payload
        return FetchedIntent(partition, offset, CODEC.encode("invoke", value), headers)

    async def outcome(self, intent: FetchedIntent) -> dict[str, Any]:
        """Deliver one intent and return the outcome that comes of it."""
        before = len(self.log.outcomes)
        self.deliver(intent)
        await self.log.wait_for_outcomes(before + 1)
        return self.log.outcomes[-1]


def intent_value(
    handler: str,
    dispatch_id: str,
    *,
    home: int = 3,
    fence: int = 1,
    attempt: int = 1,
    trigger: str = "on-issue",
) -> dict[str, Any]:
    """Return the fields of an `invoke` record."""
    return {
        "dispatch_id": dispatch_id,
        "attempt_id": f"{dispatch_id}.{attempt}",
        "attempt": attempt,
        "fence": fence,
        "home_partition": home,
        "trigger_id": trigger,
        "binding_key": f"{trigger}@v1",
        "handler": handler,
        "accepted_at_ms": 1_699_999_999_990,
        "purpose": "handler",
        "timeout_ms": None,
        "replay_of_event_id": None,
        "event": {
            "id": f"trigger_evt_{dispatch_id}",
            "provider": "github",
            "kind": "issues.opened",
            "received_at": "2026-11-28T00:00:00.000Z",
            "occurred_at": None,
            "dedupe_key": None,
            "trace_id": "trace_1",
            "tenant_id": None,
            "headers": {"x-github-event": "issues"},
            "raw_body": None,
            "provider_payload": '{"action": "opened"}',
            "signature_state": "unsigned",
            "signature_reason": None,
        },
    }
