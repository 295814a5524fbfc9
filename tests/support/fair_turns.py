"""What the auditor says of the turns on a log of the scheduler."""

from __future__ import annotations

import tempfile
from pathlib import Path

from streams.audit.log import LogRecord
from streams.audit.memory_log import MemoryLog
from streams.audit.queue_turns import QueueTurns
from streams.core.record import Position
from tests.support.scheduler_log import QUEUE, SchedulerLog
from tests.support.stage_log import CODEC
from topology import TOPOLOGY

REQUESTS = ("worker.requests", 0)
CLAIMS = (f"worker.{QUEUE}.claims", 0)
STAGE = TOPOLOGY.stage("scheduler")


def memory_log(log: SchedulerLog) -> MemoryLog:
    """The mailbox, the claims and the rows, as they lie in a cluster."""
    kafka = MemoryLog({CLAIMS[0]: [[]]})
    kafka.topics[REQUESTS[0]] = [list(log.records)]
    published = [each for each in log.records if ("kind", b"revision_published") in each.headers]
    by_revision = {CODEC.decode(each.value or b"")[1]["revision"]: each for each in published}
    kafka.topics["triggers.registry"] = [
        [
            each._replace(offset=offset)
            for offset, (_, each) in enumerate(sorted(by_revision.items()))
        ]
    ]
    rows = enumerate(log.memory.rows.store.items())
    kafka.topics[STAGE.changelog] = [[LogRecord(at, 0, key, row, []) for at, (key, row) in rows]]
    for step in log.steps:
        for output in step.outputs:
            if output.topic == CLAIMS[0]:
                headers = list(output.headers)
                kafka.append(CLAIMS, log.now_ms, output.key, output.value, headers)
    return kafka


def unfair(kafka: MemoryLog) -> tuple[list[str], list[str]]:
    """What is wrong with the turns of the queue, each with its position; and what is noted."""
    with tempfile.TemporaryDirectory() as folder:
        turns = QueueTurns(kafka, CODEC, STAGE, Path(folder)).of(
            QUEUE, whole=not kafka.starts.get(CLAIMS)
        )
        found: list[str] = []
        for record in kafka.topics[CLAIMS[0]][0]:
            position = Position(*CLAIMS, record.offset)
            kind, value = CODEC.decode(record.value or b"")
            found += [f"{position}: {what}" for what in turns.add(position, record, kind, value)]
        return found, turns.notes


def assert_fair(log: SchedulerLog) -> None:
    """Nothing is wrong with the turns, and all of them are judged."""
    assert unfair(memory_log(log)) == ([], [])
