"""Judges one stage partition of a plan: gathers where its evidence lies, and audits it."""

from __future__ import annotations

from streams.audit.checkpoint import Checkpoint, read_checkpoints
from streams.audit.divergence import Divergence
from streams.audit.journal import journal_key, read_journal
from streams.audit.log import LogReader, Span
from streams.audit.output_check import OutputCheck
from streams.audit.output_diagnosis import Diagnosis
from streams.audit.output_index import Lanes
from streams.audit.partition import Evidence, PartitionAudit
from streams.audit.plan import FIRST, LAST, Plan
from streams.audit.row_check import RowCheck
from streams.audit.verdict import Verdict
from streams.engine import BoundStage

__all__ = ["judge"]

_CLOCK_SLACK_MS = 3_600_000
"""A checkpoint bears its writer's time, a mailbox record the broker's: an hour is plenty."""


def judge(
    reader: LogReader, plan: Plan, stage: BoundStage, partition: int, lanes: Lanes
) -> Verdict:
    """Judge one stage partition.

    Args:   lanes: what the stage partition wrote, by output partition.
    Raises: BrokerError when the log is out of reach; a divergence is part of the verdict.
    """
    try:
        evidence = _evidence(reader, plan, stage, partition)
    except Divergence as divergence:  # a checkpoint that cannot be read
        return _unread(plan, stage, partition, divergence)
    changelog = (stage.declaration.changelog, partition)
    audit = PartitionAudit(
        reader,
        stage,
        {stage.declaration.fold_id: stage},
        evidence,
        OutputCheck(lanes, plan.counts, Diagnosis(reader, stage.codec, lanes)),
        RowCheck(reader, stage.codec, changelog, plan.spans[changelog]),
    )
    return audit.run()


def _unread(plan: Plan, stage: BoundStage, partition: int, divergence: Divergence) -> Verdict:
    name, source = stage.declaration.name, stage.declaration.source
    verdict = Verdict(name, source, partition, plan.spans[source, partition].end)
    verdict.divergence = divergence
    return verdict


def _evidence(reader: LogReader, plan: Plan, stage: BoundStage, partition: int) -> Evidence:
    name, source = stage.declaration.name, stage.declaration.source
    mailbox = (source, partition)
    journal = (plan.journal, partition % plan.counts[plan.journal])
    judged, witnessed = plan.judged[journal], plan.witnessed[journal]
    key = journal_key(name, partition)
    checkpoints = _read_checkpoints(reader, plan, stage, partition)
    entries = read_journal(reader, stage.codec, journal, Span(judged.start, witnessed.end), key)
    return Evidence(
        mailbox=mailbox,
        mailbox_span=plan.spans[mailbox],
        entries=entries,
        journal_start=judged.start,
        judged_end=judged.end,
        checkpoints=checkpoints,
        committed=plan.committed[name].get(partition),
        first_seq=_first_seq(plan.scope.from_checkpoint, checkpoints),
    )


def _read_checkpoints(
    reader: LogReader, plan: Plan, stage: BoundStage, partition: int
) -> list[Checkpoint]:
    place = (plan.checkpoints, partition % plan.counts[plan.checkpoints])
    start, end = plan.spans[place]
    mailbox = (stage.declaration.source, partition)
    mailbox_start, mailbox_end = plan.spans[mailbox]
    if mailbox_start > 0:
        # Checkpoints from before the mailbox's head went are of no use, and may be many.
        for records in reader.read(mailbox, mailbox_start, mailbox_end):
            useful_ms = records[0].timestamp - _CLOCK_SLACK_MS
            start = max(start, reader.offset_at(place, useful_ms))
            break
    key = journal_key(stage.declaration.name, partition)
    return list(read_checkpoints(reader, stage.codec, place, Span(start, end), key))


def _first_seq(choice: str | None, checkpoints: list[Checkpoint]) -> int:
    """Return the transaction with which judging may begin."""
    sound = [each.position.seq for each in checkpoints if each.problem is None]
    if choice is None or (choice in (FIRST, LAST) and not sound):
        return 1
    if choice.isdecimal():
        return int(choice) + 1
    return (sound[0] if choice == FIRST else sound[-1]) + 1
