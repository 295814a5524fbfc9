"""One Faust app per stage: its own consumer group, so it scales and rebalances by itself.

`faust_options` is the only place where Faust's settings appear.

Source: DESIGN "Roles"; FINDINGS 10, 13; STYLE 2.12.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import faust
from mode import CrashingSupervisor
from yarl import URL

from streams.agents.batch import Batch, BatchTopic, StageAgent
from streams.agents.live import LiveStage
from streams.agents.owned import Owned
from streams.agents.pump import Pump
from streams.agents.table import StageTable, StageTableManager
from streams.agents.transaction import Faults, no_faults
from streams.agents.transport import StageTransport
from streams.engine import BoundStage
from streams.kafka import aiokafka_options, broker_urls
from streams.observe.stage_metrics import StageMetrics
from streams.settings import Settings

_REQUEST_TIMEOUT_S = 120.0
"""Also bounds how long a partition may take to load: Faust's recovery waits for it this long."""


def group_of(role: str, /) -> str:
    """The consumer group of a role."""
    return f"harn.{role}"


def faust_options(settings: Settings, role: str) -> dict[str, Any]:
    """Faust's settings for the app of a role."""
    options: dict[str, Any] = {
        "broker": [URL(url) for url in broker_urls(settings)],
        "store": "memory://",
        "datadir": str(settings.state_dir / "faust" / role),
        "autodiscover": False,
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        "topic_partitions": settings.partitions,
        "table_standby_replicas": 0,
        "web_enabled": False,
        "consumer_auto_offset_reset": "earliest",
        "broker_session_timeout": settings.session_timeout_ms / 1000,
        "broker_heartbeat_interval": settings.heartbeat_interval_ms / 1000,
        "broker_request_timeout": _REQUEST_TIMEOUT_S,
        "broker_rebalance_timeout": 15.0,
        "stream_recovery_delay": 0.0,
    }
    if settings.instance_id is not None:
        options["consumer_group_instance_id"] = f"{settings.instance_id}-{role}"
    client = aiokafka_options(settings)
    if client["security_protocol"].startswith("SASL_"):
        options["broker_credentials"] = faust.SASLCredentials(
            username=client["sasl_plain_username"],
            password=client["sasl_plain_password"],
            mechanism=client["sasl_mechanism"],
            ssl_context=client.get("ssl_context"),
        )
    elif "ssl_context" in client:
        options["broker_credentials"] = faust.SSLCredentials(client["ssl_context"])
    return options


class StageApp(faust.App):
    """The Faust app of one stage."""

    live: LiveStage

    def __init__(
        self,
        bound: BoundStage,
        settings: Settings,
        *,
        journal_partitions: int,
        metrics: StageMetrics,
        faults: Faults = no_faults,
        pump: Pump | None = None,
    ) -> None:
        stage = bound.declaration
        super().__init__(
            group_of(stage.role),
            TableManager=StageTableManager,
            Agent=StageAgent,
            **faust_options(settings, stage.role),
        )
        self.live = LiveStage(
            self,
            bound,
            settings,
            journal_partitions=journal_partitions,
            metrics=metrics,
            faults=faults,
            pump=pump,
        )
        self._register(bound)
        on_assigned: Any = self._on_assigned  # Faust passes the assignment by position
        self._receivers: list[tuple[Any, Any]] = [
            (self.on_partitions_revoked, self._on_revoked),
            (self.on_partitions_assigned, on_assigned),
            (self.on_before_shutdown, self._on_before_shutdown),
        ]
        for signal, receiver in self._receivers:
            signal.connect(receiver)

    def _register(self, bound: BoundStage) -> None:
        stage = bound.declaration
        changelog = self.topic(
            stage.changelog, key_type=bytes, value_type=bytes, partitions=bound.partitions
        )
        self.rows = StageTable(
            self,
            name=stage.table.name,
            key_type=bytes,
            value_type=bytes,
            partitions=bound.partitions,
            changelog_topic=changelog,
        )
        self.tables.add(self.rows)
        topic = BatchTopic(
            self, topics=[stage.source], acks=False, value_type=bytes, value_serializer="raw"
        )
        topic.stage_settings = self.live.settings
        self.agent(
            topic,
            name=stage.name,
            isolated_partitions=True,
            supervisor_strategy=CrashingSupervisor,
        )(self._fold_batches)

    async def _fold_batches(self, batches: Any) -> None:
        """The agent of every stage: one event is one fetched record list of one partition."""
        batches.add_processor(self.live.begin)
        stream: AsyncIterator[Batch] = batches
        async for batch in stream:
            await self.live.process(batch)

    def publish_rows(self, owned: dict[int, Owned]) -> None:
        """Show the owned partitions' rows through the Faust table."""
        rows: Any = self.rows.data
        rows.data.stores = {
            partition: entry.memory.rows.store
            for partition, entry in owned.items()
            if entry.memory is not None
        }

    def _new_transport(self) -> Any:
        return StageTransport(self.conf.broker_consumer, self)

    async def on_shutdown(self) -> None:
        """Forget the receivers: signals belong to the class, and would keep the app alive."""
        await super().on_shutdown()
        for signal, receiver in self._receivers:
            signal.disconnect(receiver)

    async def _on_revoked(self, *_args: Any, **_kwargs: Any) -> None:
        await self.live.halt()

    async def _on_assigned(self, _sender: Any, assigned: Any, **_kwargs: Any) -> None:
        """A member that got nothing is ready, too; Faust seeks only where there is a partition."""
        if not any(tp.topic == self.live.source for tp in assigned):
            # Not here: the member sends no heartbeat until the rebalance has passed.
            self.live.take_soon(set(), self.consumer_generation_id)

    async def _on_before_shutdown(self, *_args: Any, **_kwargs: Any) -> None:
        await self.live.halt()
