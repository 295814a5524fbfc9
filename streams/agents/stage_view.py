"""A live stage as its parts see it: the stage makes them, and they know no more of it than this."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from streams.agents.changelog import StateReader
from streams.agents.owned import Owned
from streams.agents.pump import Pump
from streams.agents.stores import Stores
from streams.agents.transaction import PartitionProducer
from streams.engine import BoundStage
from streams.observe.stage_metrics import StageMetrics
from streams.settings import Settings

__all__ = ["StageView"]


class StageView(Protocol):
    """What `LiveStage` is to those who take, halt and measure its partitions.

    `owned` are its partitions by number; `app` is Faust's, with the parts that replace Faust's own;
    what blocks runs in `pool`.
    """

    app: Any
    bound: BoundStage
    settings: Settings
    metrics: StageMetrics
    pump: Pump | None
    source: str
    name: str
    owned: dict[int, Owned]
    pool: ThreadPoolExecutor
    reader: StateReader
    stores: Stores

    def new_producer(self, partition: int) -> PartitionProducer:
        """Make the transactional producer of a partition, not yet fenced."""
        ...

    def crash(self, error: BaseException) -> None:
        """End the role: a part of it that nothing waits for has failed."""
        ...
