"""A stage writes its rows as a checkpoint when a boundary is crossed, whichever store it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broker import Kafka
from tests.support.eventually import eventually
from tests.support.live_toy import LiveToy
from tests.support.toy import command

pytestmark = [pytest.mark.broker]

CHECKPOINTS = "audit.checkpoints"


@pytest.mark.parametrize("store", ["memory", "rocksdb"])
async def test_a_boundary_of_offsets_is_a_checkpoint(
    kafka: Kafka, tmp_path: Path, store: str
) -> None:
    live = LiveToy(kafka.settings)

    def parts() -> list[dict[str, object]]:
        return [part for part in live.values(CHECKPOINTS) if part["stage"] == live.name]

    live.append(*(command("put", f"p:{n}", text="a row") for n in range(3)))
    async with live.member(store=store, state_dir=tmp_path, checkpoint_records=5):
        await live.everything_folded()
        assert parts() == []
        live.append(*(command("put", f"p:{n}", text="a row") for n in range(3, 7)))
        await eventually(lambda: len(parts()) == 1, "a checkpoint is written")
    [part] = parts()
    [entry] = [entry for entry in live.journal() if entry["seq"] == part["seq"]]
    assert part["state_hash"] == entry["state_hash"]
    rows = part["rows"]
    assert isinstance(rows, list)
    assert len(rows) == entry["next_offset"]
