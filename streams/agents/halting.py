"""Halts a partition whose fold raised, says so, and gets it going again on an operator's word.

The other partitions of the stage go on.  What was said is kept until the record is behind: a word
about one timer must still hold when the next one at the same record fails.

Source: DESIGN "Failure".
"""

from __future__ import annotations

import asyncio
import shlex
from functools import partial

from faust.types import TP

from streams.agents.halt_notices import HaltNotices
from streams.agents.halted import Halt, Word, operators_word
from streams.agents.owned import Owned
from streams.agents.stage_view import StageView
from streams.core.record import Position
from streams.engine import FoldFailed
from streams.observe import logs

_log = logs.logger(__name__)


class Halting:
    """The halted partitions of one live stage."""

    def __init__(self, live: StageView) -> None:
        self._live = live
        self._waiting: set[asyncio.Task[None]] = set()
        self._notices = HaltNotices(live.settings, live.bound.codec, live.pool)

    def stop(self, entry: Owned, failure: FoldFailed) -> None:
        """Halt a partition before the record that its fold raised on."""
        live = self._live
        position = Position(live.source, entry.partition, failure.offset)
        entry.halted_at = position
        live.metrics.halted(entry.partition, halted=True)
        reason = repr(failure.__cause__)
        timer = "" if failure.timer is None else f" --timer {shlex.quote(failure.timer)}"
        _log.error(
            "stage_partition_halted",
            exc_info=failure.__cause__,
            extra={
                "stage": live.name,
                "position": str(position),
                "timer": failure.timer,
                "reason": reason,
                "remedy": f"fix the fold, then `harn stage resume {live.name} {entry.partition}`; "
                f"or `harn stage skip {position}{timer}`",
            },
        )
        live.app.consumer.pause_partitions({TP(*position[:2])})
        fold = live.bound.declaration.fold_id
        self._notices.tell(live.name, fold, position, failure.timer, reason)
        halt = Halt(live.name, position, failure.timer, entry.heard)
        task = asyncio.get_running_loop().create_task(self._await_word(entry, halt))
        self._waiting.add(task)
        task.add_done_callback(partial(self._ended, entry))

    def forget(self) -> None:
        """Wait for no word any more: whoever takes the partitions tries them again."""
        for task in self._waiting:
            task.cancel()
        self._waiting.clear()
        self._notices.forget()

    async def _await_word(self, entry: Owned, halt: Halt) -> None:
        live = self._live
        word = await operators_word(live.settings, live.bound.codec, halt, live.pool)
        self._obey(entry, halt, word)
        position = halt.position
        _log.warning(
            "stage_partition_resumed",
            extra={"stage": live.name, "position": str(position), "skipped": word.skip},
        )
        tp = TP(*position[:2])
        await live.app.consumer.seek_to({tp: position.offset})
        live.app.consumer.resume_partitions({tp})

    def _obey(self, entry: Owned, halt: Halt, word: Word) -> None:
        if not word.skip:
            entry.heard = word.offset
        elif halt.timer is None:
            entry.skips.add(halt.position.offset)
        else:
            entry.timer_skips.add(halt.timer)
        entry.halted_at = None
        self._live.metrics.halted(entry.partition, halted=False)

    def _ended(self, entry: Owned, task: asyncio.Task[None]) -> None:
        self._waiting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Nobody would ever get the partition going: the process ends, and is started again.
            _log.error(
                "stage_word_unheard",
                extra={
                    "stage": self._live.name,
                    "partition": entry.partition,
                    "reason": repr(error),
                },
            )
            self._live.crash(error)
