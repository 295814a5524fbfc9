"""A circuit as the rows and partitions of tests have it."""

from __future__ import annotations

from typing import Any

from tests.support.gate_log import gated
from tests.support.revisions import revision
from tests.support.stage_log import StageLog

DESTINATION = "local:on_event"


def row(log: StageLog) -> dict[str, Any] | None:
    return log.rows.get(f"o:{DESTINATION}")


def partition_of(number: int, partitions: int = 3, *, circuit: str = "park") -> StageLog:
    log = StageLog("dispatch", partition=number, partitions=partitions)
    log.add(
        "revision_published",
        revision(1, added=[gated({"circuit": circuit}, backoff="svix", max_attempts=7)]),
    )
    return log
