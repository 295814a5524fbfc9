"""The turn API as a service: what it tells metrics of the carrier it has."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry

from streams.codec import Codec
from streams.edge.publisher import Publisher
from streams.edge.turns.sql_turns import open_sqlite_turns
from streams.edge.turns.turn_store import FleetWorker
from streams.edge.turns.turns_service import TurnsService
from streams.observe.turn_metrics import TurnMetrics
from streams.settings import Settings
from tests.support.eventually import eventually

_DEPTH = "agent_utilities_dispatch_queue_depth"
_WORKERS = "agent_utilities_dispatch_workers"


async def test_depth_and_workers_are_measured_and_unknown_while_they_cannot_be(
    tmp_path: Path,
) -> None:
    turns = open_sqlite_turns(tmp_path, consumer="test")
    turns.queue.put({"session_id": "sess-1"})
    worker = FleetWorker(
        worker_id="w1", host="h", capacity=1, active_sessions=(), queue_backend="sqlite"
    )
    turns.store.beat(worker)
    settings = Settings(bootstrap="localhost:1", state_dir=tmp_path, task_queue_backend="sqlite")
    registry = CollectorRegistry()
    service = TurnsService(
        settings,
        Publisher(settings, name="test"),
        Codec(),
        metrics=TurnMetrics(registry),
        measure_every_s=0.02,
    )
    await service.start()

    def told() -> tuple[float | None, float | None]:
        depth = registry.get_sample_value(_DEPTH, {"backend": "sqlite"})
        return depth, registry.get_sample_value(_WORKERS)

    try:
        await eventually(lambda: told() == (1.0, 1.0), "both are told")
        turns.database.run(
            lambda transaction: transaction.change("DROP TABLE agent_dispatch_queue")
        )
        await eventually(lambda: str(told()) == "(nan, nan)", "neither is known")
        assert not service.failed.done()
    finally:
        await service.stop()
        turns.close()
