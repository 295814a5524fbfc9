"""Whatever the batches were, folding a mailbox anew gives what was written, byte for byte."""

import pytest

from streams.audit.log import LogRecord
from streams.engine import EncodedOutput, Memory, fold_batch, settle
from streams.testing import PipelineDriver, StageOwner
from streams.testing.chance import Chance
from tests.support.weather import storm

ALL = 1_000_000


def written_by(driver: PipelineDriver, owner: StageOwner) -> dict[bytes, LogRecord]:
    """What the log holds of a stage partition, by cause."""
    declared = owner.stage.declaration
    prefix = f"{declared.source}/{owner.partition}/".encode()
    found: dict[bytes, LogRecord] = {}
    for topic in {*declared.sinks, declared.quarantine}:
        for _, record in driver.kafka.history(topic):
            headers = dict(record.headers)
            if headers.get("fold") == declared.fold_id.encode():
                cause = headers["cause"]
                if cause.startswith(prefix):
                    assert cause not in found
                    found[cause] = record
    return found


def recomputed(
    driver: PipelineDriver, owner: StageOwner, chance: Chance
) -> tuple[Memory, list[EncodedOutput]]:
    """Fold the whole mailbox again, cut by chance."""
    memory = Memory(owner.stage, owner.partition)
    source = owner.stage.declaration.source
    outputs: list[EncodedOutput] = []
    while records := driver.kafka.fetch(
        source, owner.partition, memory.position.next_offset, 1 + chance.below(40)
    ):
        step = fold_batch(memory, records)
        settle(memory, step)
        outputs += step.outputs
    return memory, outputs


@pytest.mark.parametrize("seed", range(12))
def test_other_cuts_write_the_same(seed: int) -> None:
    driver, chance = storm(seed), Chance(seed)
    for owner in driver.members.owners():
        memory, outputs = recomputed(driver, owner, chance)
        found = written_by(driver, owner)
        assert {dict(output.headers)["cause"] for output in outputs} == set(found)
        for output in outputs:
            record = found[dict(output.headers)["cause"]]
            assert (output.key, output.value) == (record.key, record.value)
            assert output.headers == record.headers
        ours, theirs = owner.memory, memory
        assert dict(ours.rows.store.items()) == dict(theirs.rows.store.items())
        assert ours.position.state_hash == theirs.position.state_hash
        assert ours.position.now_ms == theirs.position.now_ms
