"""Kafka as a `TurnLedger`: records and turns of a session go to the session's own partition.

What an edge appends is a fact once the broker has it on every in-sync replica.  A record is written
here until its turn is in the topic, and while it is paused; in between it is its worker's.  Kafka
knows no compare-and-set: two APIs that resume one goal at once enqueue two turns, and the worker
runs the one that it claims.

Source: DESIGN "Topics"; SEMANTICS 8.1, 8.2 and 8.9.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from weakref import WeakValueDictionary

from streams.agents.backlog import KafkaBacklog
from streams.codec import Codec
from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.partition_key import partition_of_session, session_key
from streams.core.turn.record import (
    desired_key,
    goal_key,
    job_key,
    new_goal,
    new_job,
    session_record_key,
)
from streams.core.turn.session import new_session
from streams.core.turn.words import TURNS
from streams.core.wire import AgentSessionDesired, GoalSpec
from streams.core.wire import FleetWorker as FleetWorkerRecord
from streams.edge.publisher import Publisher
from streams.edge.turns.kafka_record import turn_record
from streams.edge.turns.kafka_wish import WISH, Wish, write_wish
from streams.edge.turns.turn_codec import encode_turn
from streams.edge.turns.turn_store import (
    WORKER_TTL_MS,
    FleetWorker,
    Session,
    Status,
    TurnRecord,
)
from streams.edge.turns.turn_view import TurnView
from streams.errors import BrokerError, TaskQueueUnavailable
from streams.settings import Settings
from topology.edges import TURN_WORKER

__all__ = ["KafkaLedger"]

_SESSIONS = "agent.sessions"
_JOBS = "agent.jobs"
_FLEET = "fleet.workers"
_GOAL = "goal_loop"
_ACK_S = 10.0
_FAILURE_ACK_S = 2.0
_UNSURE_MAX = 1_000
_RECORDS = {_GOAL: ("agent_goal", goal_key), "orchestrator_task": ("agent_job", job_key)}


class KafkaLedger:
    """Turns on Kafka; publisher and view are started and stopped by whoever made them.

    Args:    now_ms: ms since the epoch.
             ack_s: how long an append may wait for its ack.
    """

    backend = "kafka"

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        codec: Codec,
        view: TurnView,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        ack_s: float = _ACK_S,
    ) -> None:
        self._settings = settings
        self._retention_ms = settings.agent_job_retention_ms
        self._publisher = publisher
        self._codec = codec
        self._view = view
        self.now_ms = now_ms
        self._ack_s = ack_s
        self._backlog: KafkaBacklog | None = None
        # New records that may be in the log although no ack came: their failure must follow them.
        self._unsure: dict[str, Mapping[str, Any]] = {}
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def open_session(self, session: Session, /, *, tenant: str) -> None:
        """Make a session durable that is not there yet; see `TurnLedger.open_session`."""
        key = session_record_key(session.session_id)
        known = self.known("agent_session", key)
        if known is not None:
            await self._keep_session(key, known)
            return
        value = new_session(
            session.session_id,
            tenant=tenant,
            domain=session.domain,
            background=session.background,
            metadata_json=json.dumps(dict(session.metadata), separators=(",", ":")),
            now_ms=self.now_ms(),
        )
        await self.write(_SESSIONS, "agent_session", key, value)

    async def _keep_session(self, key: str, known: Mapping[str, Any]) -> None:
        """Write a session anew that its owner may forget any moment; others are the owner's."""
        now_ms = self.now_ms()
        idle = known["status"] != "running" and now_ms - known["updated_at_ms"]
        if idle > self._retention_ms / 2 > 0:
            value = {**known, "status": "queued", "updated_at_ms": now_ms}
            await self.write(_SESSIONS, "agent_session", key, value)

    async def create(self, record: TurnRecord, /, *, tenant: str) -> None:
        """Make a new record durable; see `TurnLedger.create`."""
        kind, key_of = _RECORDS[record.kind]
        key, now_ms = key_of(record.record_id), self.now_ms()
        if self.known(kind, key) is not None:
            raise ValueError(f"there is a record {record.record_id!r} already")
        if record.kind == _GOAL:
            spec = {name: each for name, each in record.spec.items() if name != "agent_name"}
            value: Mapping[str, Any] = new_goal(
                record.record_id,
                record.session_id,
                cast("GoalSpec", spec),
                agent_name=record.spec.get("agent_name", ""),
                tenant=tenant,
                now_ms=now_ms,
            )
        else:
            value = new_job(
                record.record_id,
                record.session_id,
                record.spec["description"],
                agent_name=record.spec["agent_name"],
                tenant=tenant,
                now_ms=now_ms,
            )
        owner = "owner_host" if record.kind == _GOAL else "claimed_by"
        await self.write(_JOBS, kind, key, {**value, owner: record.claimed_by})

    async def put(self, envelope: AgentTurnEnvelope, /) -> None:
        """Append a turn; see `TurnLedger.put`."""
        await self.append(
            TURNS,
            "agent_turn",
            session_key(envelope.session_id),
            encode_turn(self._codec, envelope),
            session_id=envelope.session_id,
            tenant=envelope.tenant,
        )

    async def move(
        self, record: TurnRecord, /, *, to: Status, error: str | None = None
    ) -> TurnRecord | None:
        """Change the status of a record that nobody runs; see `TurnLedger.move`."""
        kind, key_of = _RECORDS[record.kind]
        key = key_of(record.record_id)
        found = self.known(kind, key)
        if found is None or found["status"] != record.status:
            return None
        changes = {"status": to.value, "error": error or found["error"]}
        moved = {**found, **changes, "updated_at_ms": self.now_ms()}
        await self.write(_JOBS, kind, key, moved, failing=to is Status.FAILED)
        return turn_record(record.kind, moved)

    async def fail_session(self, session_id: str, /) -> None:
        """Say that what a session waited for never comes; see `TurnLedger.fail_session`."""
        key = session_record_key(session_id)
        found = self.known("agent_session", key)
        if found is not None and found["status"] == "queued":
            failed = {**found, "status": "failed", "updated_at_ms": self.now_ms()}
            await self.write(_SESSIONS, "agent_session", key, failed, failing=True)

    async def ask(
        self, session_id: str, /, *, pause: bool | None = None, kill: bool | None = None
    ) -> bool:
        """Ask for a session's pause or end; see `TurnLedger.ask`."""
        if self.known("agent_session", session_record_key(session_id)) is None:
            return False
        asking = self._asking.setdefault(session_id, asyncio.Lock())
        async with asking:  # or of a pause and a kill at once one would undo the other
            before = cast("AgentSessionDesired | None", self.known(WISH, desired_key(session_id)))

            async def write(value: AgentSessionDesired) -> int:
                return await self.write(_SESSIONS, WISH, desired_key(session_id), value)

            with self._view.watches.watching(desired_key(session_id)) as watch:
                asking_for = Wish(session_id, pause, kill, self.now_ms)
                await write_wish(asking_for, before, write, watch, self._codec, self._ack_s)
        return True

    async def record(self, record_id: str, kind: str, /) -> TurnRecord | None:
        """Return a goal or task; see `TurnLedger.record`."""
        schema, key_of = _RECORDS[kind]
        found = self.known(schema, key_of(record_id))
        return None if found is None else turn_record(kind, found)

    async def records(
        self,
        *,
        kind: str,
        session_id: str | None = None,
        status: Status | None = None,
        limit: int,
        offset: int = 0,
    ) -> Sequence[TurnRecord]:
        """Return goals or tasks; see `TurnLedger.records`."""
        self.require_view()
        found = await asyncio.to_thread(
            self._view.newest,
            _RECORDS[kind][0],
            session_id=session_id,
            status=None if status is None else status.value,
            limit=limit,
            offset=offset,
        )
        return [turn_record(kind, each) for each in found]

    async def session(self, session_id: str, /) -> Session | None:
        """Return a session; see `TurnLedger.session`."""
        found = self.known("agent_session", session_record_key(session_id))
        return None if found is None else self._session(found)

    async def sessions(
        self, *, status: str | None = None, limit: int, offset: int = 0
    ) -> Sequence[Session]:
        """Return sessions; see `TurnLedger.sessions`."""
        self.require_view()
        found = await asyncio.to_thread(
            self._view.newest, "agent_session", status=status, limit=limit, offset=offset
        )
        return [self._session(each) for each in found]

    async def workers(self) -> Sequence[FleetWorker]:
        """Return the workers heard of of late; see `TurnLedger.workers`."""
        self.require_view()
        since_ms = self.now_ms() - WORKER_TTL_MS
        return [
            FleetWorker(
                worker_id=each["worker_id"],
                host=each["host"],
                capacity=each["capacity"],
                active_sessions=tuple(each["active_sessions"]),
                queue_backend=each["queue_backend"],
                started_at_ms=each["started_at_ms"],
                last_heartbeat_ms=each["last_heartbeat_ms"],
            )
            for each in self._view.newest("fleet_worker", limit=10_000)
            if each["last_heartbeat_ms"] >= since_ms
        ]

    async def depth(self) -> int:
        """Count the turns that are enqueued and not done: the lag of the workers' group."""
        if self._backlog is None:
            partitions = self._settings.agent_turns_partitions
            group = TURN_WORKER.group
            self._backlog = KafkaBacklog(self._settings, partitions, topic=TURNS, group=group)
        try:
            sample = await asyncio.to_thread(self._backlog.measure)
        except BrokerError as error:
            raise TaskQueueUnavailable(
                self._endpoint, str(error), retryable=error.retryable, remedy=error.remedy
            ) from error
        return sum(max(0, end - sample.committed[at]) for at, end in sample.ends.items())

    def _session(self, found: Mapping[str, Any]) -> Session:
        session_id = found["session_id"]
        desired = self.known("agent_session_desired", desired_key(session_id)) or {}
        return Session(
            session_id=session_id,
            domain=found["domain"],
            status=found["status"],
            background=found["background"],
            needs_input=found["needs_input"],
            metadata=_metadata(found["metadata_json"]),
            pause_requested=desired.get("pause_requested", False),
            kill_requested=desired.get("kill_requested", False),
            created_at_ms=found["created_at_ms"],
            updated_at_ms=found["updated_at_ms"],
        )

    async def write_fleet(self, worker_id: str, worker: FleetWorkerRecord | None, /) -> None:
        """Append a heartbeat, or that a worker is no more.  Raises TaskQueueUnavailable."""
        await self.append(
            _FLEET,
            "fleet_worker",
            worker_id,
            None if worker is None else self._codec.encode("fleet_worker", worker),
        )

    def known(self, kind: str, key: str) -> Mapping[str, Any] | None:
        """Return the last record of a key.  Raises TaskQueueUnavailable: it is not known yet."""
        self.require_view()
        return self._view.get(kind, key) or self._unsure.get(key)

    def require_view(self) -> None:
        """Raise TaskQueueUnavailable while it is not known what stands in the topics."""
        if self._view.trouble is not None:
            raise self._view.trouble
        if self._view.unread:
            reason = f"{', '.join(sorted(self._view.unread))} not read to the end yet"
            raise TaskQueueUnavailable(self._endpoint, reason, retryable=True)
        if self._view.misfit is not None:
            # What is written would stand where nobody looks for it.
            raise TaskQueueUnavailable(
                self._endpoint,
                self._view.misfit,
                retryable=False,
                remedy="start this program anew with AGENT_TURNS_PARTITIONS as the topics have it, "
                "once `harn topology grow-turns` is done",
            )

    def _partition_of(self, session_id: str) -> int:
        return partition_of_session(session_id, self._settings.agent_turns_partitions)

    @property
    def _endpoint(self) -> str:
        return f"Kafka at {self._settings.bootstrap}"

    async def write(
        self, topic: str, kind: str, key: str, value: Mapping[str, Any], *, failing: bool = False
    ) -> int:
        """Append a record and know it at once; return its offset.

        `failing` is the last word on what went wrong.
        """
        encoded = self._codec.encode(kind, value)
        within_s = min(_FAILURE_ACK_S, self._ack_s) if failing else self._ack_s
        session_id, tenant = value["session_id"], value.get("tenant", "")
        try:
            offset = await self.append(
                topic, kind, key, encoded, session_id=session_id, tenant=tenant, within_s=within_s
            )
        except TaskQueueUnavailable:
            if not failing and self._view.get(kind, key) is None:
                self._unsure[key] = value
            while len(self._unsure) > _UNSURE_MAX:
                del self._unsure[next(iter(self._unsure))]
            raise
        self._unsure.pop(key, None)
        self._view.note(topic, kind, key, offset, encoded)
        return offset

    async def append(
        self,
        topic: str,
        kind: str,
        key: str,
        value: bytes | None,
        *,
        session_id: str = "",
        tenant: str = "",
        headers: Sequence[tuple[str, bytes]] = (),
        within_s: float | None = None,
    ) -> int:
        """Append a record where its session lives; return its offset, once the broker has it.

        Raises: TaskQueueUnavailable.
        """
        within_s = self._ack_s if within_s is None else within_s
        headers = [*([("tenant_id", tenant.encode())] if tenant else []), *headers]
        partition = self._partition_of(session_id) if session_id else 0
        try:
            async with asyncio.timeout(within_s):
                at = await self._publisher.append(
                    topic,
                    kind=kind,
                    value=value,
                    key=key.encode(),
                    headers=headers,
                    partition=partition,
                )
        except TimeoutError:
            reason = f"{topic} got no ack within {within_s:g} s; it may have taken effect"
            raise TaskQueueUnavailable(self._endpoint, reason, retryable=True) from None
        except BrokerError as error:
            raise TaskQueueUnavailable(
                self._endpoint, str(error), retryable=error.retryable, remedy=error.remedy
            ) from error
        return at.offset


def _metadata(text: str) -> dict[str, Any]:
    """Return a session's metadata; none where somebody else wrote what is no JSON object."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
