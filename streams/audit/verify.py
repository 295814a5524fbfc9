"""`harn audit verify`: recompute every fold over its mailbox, and compare all that was written.

First every output partition is read once and its records are noted by writer; then every stage
partition is recomputed and compared with what was noted.  Both are many small tasks, done one after
the other here, and by several processes in `streams.audit.workers`.

Source: DESIGN "Proof"; law 6.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from streams.audit.judge import judge
from streams.audit.log import LogReader, Place
from streams.audit.output_index import ENTRY, Lanes, Noted, note_outputs
from streams.audit.plan import Plan, Scope, make_plan
from streams.audit.spool import Spool
from streams.audit.verdict import Report, Verdict
from streams.engine import BoundStage

__all__ = ["Progress", "lanes_of", "note_place", "report_of", "verify", "verify_plan"]

Progress = Callable[[str], None]
"""Is told what is being done."""


def silent(_text: str, /) -> None:
    """Tell nobody."""


def verify(
    reader: LogReader,
    stages: Mapping[str, BoundStage],
    scope: Scope | None = None,
    progress: Progress = silent,
) -> Report:
    """Judge stage partitions against the log.

    Args:    stages: the stages whose folds are known, by name.
    Returns: a verdict per stage partition; divergences are in them, not raised.
    Raises:  ConfigError for a stage or partition that does not exist; TopologyError when a topic is
             missing; BrokerError when the log is out of reach.
    Cost:    every record of the stages' topics is read once or twice; memory is bounded by the rows
             of the largest partition.
    """
    started_s = time.monotonic()
    progress("fixing the ends of all logs")
    plan = make_plan(reader, stages, scope or Scope())
    return verify_plan(reader, stages, plan, progress, started_s)


def verify_plan(
    reader: LogReader,
    stages: Mapping[str, BoundStage],
    plan: Plan,
    progress: Progress,
    started_s: float,
) -> Report:
    """Carry out a plan in this process."""
    with tempfile.TemporaryDirectory(prefix="harn-audit-") as folder:
        noted: list[Noted] = []
        for place in plan.outputs:
            progress(f"reading outputs in {place[0]}/{place[1]}")
            noted.append(note_place(reader, plan, place, Path(folder)))
        verdicts: list[Verdict] = []
        for name, partition in plan.partitions:
            progress(f"recomputing {name}/{partition}")
            lanes = lanes_of(noted, name, partition)
            verdicts.append(judge(reader, plan, stages[name], partition, lanes))
    return report_of(verdicts, noted, time.monotonic() - started_s)


def note_place(reader: LogReader, plan: Plan, place: Place, folder: Path) -> Noted:
    """Note the records of one output partition, in a file of its own in `folder`."""
    path = folder / f"{place[0]}-{place[1]}"
    with Spool(path, ENTRY) as spool:
        return note_outputs(plan.writers, place, reader.read(place, *plan.spans[place]), spool)


def lanes_of(noted: Iterable[Noted], stage: str, partition: int) -> Lanes:
    """Gather what one stage partition wrote."""
    writer = (stage, partition)
    return {each.place: each.lanes[writer] for each in noted if writer in each.lanes}


def report_of(verdicts: list[Verdict], noted: Iterable[Noted], seconds: float) -> Report:
    """Put together what was found."""
    strays = [stray for each in noted for stray in each.strays]
    count = sum(each.strays_count for each in noted)
    read = sum(each.records for each in noted)
    read += sum(each.records + each.rows + each.transactions for each in verdicts)
    return Report(verdicts, strays, count, read, seconds)
