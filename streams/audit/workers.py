"""An audit by several processes: recomputing keeps a processor busy, and one process has one.

Each process has a reader and stages of its own.  What the first half of an audit notes lies in
files, so that the second half can be handed it by name.

Source: STYLE 2.8 ("may be dropped and rebuilt by the auditor's reader at any time").
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streams.audit.judge import judge
from streams.audit.log import LogReader, Place
from streams.audit.output_index import Lanes, Noted
from streams.audit.plan import Plan
from streams.audit.verdict import Report, Verdict
from streams.audit.verify import Progress, lanes_of, note_place, report_of
from streams.engine import BoundStage
from streams.errors import BrokerError

__all__ = ["Opener", "collect_rarely", "verify_in_processes"]

Opened = tuple[LogReader, Mapping[str, BoundStage]]
Opener = Callable[[], AbstractContextManager[Opened]]
"""Opens the log and binds the stages; it must be possible to pickle it."""

_GC_THRESHOLD = 200_000


@dataclass(frozen=True, slots=True)
class _Outage:
    """A BrokerError on its way out of a process."""

    message: str
    retryable: bool
    remedy: str | None


@dataclass(slots=True)
class _Process:
    """What one of the processes keeps between tasks; the log is opened by the first of them."""

    opener: Opener
    plan: Plan
    folder: Path
    opened: Opened | None = None

    def open(self) -> Opened:
        if self.opened is None:
            closing = ExitStack()
            self.opened = closing.enter_context(self.opener())
            atexit.register(closing.close)
        return self.opened


_own: list[_Process] = []  # of a process that `_start` made, one; else none


def collect_rarely() -> None:
    """Let this process, which is an audit's own, look for garbage rarely.

    Records come and go by the hundred thousand, and hardly any lies in a cycle: looking for cycles
    would be a sixth of the work.
    """
    gc.set_threshold(_GC_THRESHOLD)


def verify_in_processes(
    opener: Opener, plan: Plan, processes: int, progress: Progress, started_s: float
) -> Report:
    """Carry out a plan in `processes` processes.

    Raises: BrokerError when the log is out of reach, or a process was killed.
    """
    with tempfile.TemporaryDirectory(prefix="harn-audit-") as folder:
        pool = ProcessPoolExecutor(
            max_workers=processes,
            # A forked process would inherit the threads' locks of the clients.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(opener, plan, Path(folder)),
        )
        with pool:
            try:
                noted, verdicts = _run(pool, plan, progress)
            except BrokenProcessPool as error:
                raise BrokerError("a process of the audit was killed", retryable=True) from error
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        return report_of(verdicts, noted, time.monotonic() - started_s)


def _run(
    pool: ProcessPoolExecutor, plan: Plan, progress: Progress
) -> tuple[list[Noted], list[Verdict]]:
    sizes = {place: plan.spans[place].end - plan.spans[place].start for place in plan.outputs}
    places = sorted(plan.outputs, key=lambda place: -sizes[place])
    tasks = {pool.submit(_note, place): f"{place[0]}/{place[1]}" for place in places}
    noted: list[Noted] = list(_ended(tasks, "outputs read in", progress))
    noted.sort(key=lambda each: each.place)
    judged = {
        pool.submit(
            _judge, name, partition, lanes_of(noted, name, partition)
        ): f"{name}/{partition}"
        for name, partition in _largest_first(plan)
    }
    verdicts: list[Verdict] = list(_ended(judged, "recomputed", progress))
    order = {writer: at for at, writer in enumerate(plan.partitions)}
    verdicts.sort(key=lambda each: order[each.stage, each.partition])
    return noted, verdicts


def _largest_first(plan: Plan) -> list[tuple[str, int]]:
    """Order the stage partitions so that no process is left alone with a long one."""

    def size(writer: tuple[str, int]) -> int:
        span = plan.spans[plan.writers.declared[writer[0]].source, writer[1]]
        return span.end - span.start

    return sorted(plan.partitions, key=size, reverse=True)


def _ended(tasks: Mapping[Future[Any], str], what: str, progress: Progress) -> Iterator[Any]:
    for done, future in enumerate(as_completed(tasks), start=1):
        result = future.result()
        if isinstance(result, _Outage):
            raise BrokerError(result.message, retryable=result.retryable, remedy=result.remedy)
        progress(f"{what} {tasks[future]} ({done} of {len(tasks)})")
        yield result


# ---------------------------------------------------------------------- in each process
def _start(opener: Opener, plan: Plan, folder: Path) -> None:
    collect_rarely()
    _own.append(_Process(opener, plan, folder))


def _note(place: Place) -> Noted | _Outage:
    own = _own[0]
    try:
        return note_place(own.open()[0], own.plan, place, own.folder)
    except BrokerError as error:
        return _Outage(str(error), error.retryable, error.remedy)


def _judge(name: str, partition: int, lanes: Lanes) -> Verdict | _Outage:
    own = _own[0]
    try:
        reader, stages = own.open()
        return judge(reader, own.plan, stages[name], partition, lanes)
    except BrokerError as error:
        return _Outage(str(error), error.retryable, error.remedy)
