"""What a turn does to others of its session, or they to it, when the session is busy.

    when_busy   earlier turns of its session have not ended
    enqueue     it waits for them
    reject      it is overruled: it ends as `rejected` and its record as failed, without running
    interrupt   they are overruled: each ends as `interrupted` and its record as cancelled, what
                waits at once, what runs when its body has ended; then it runs

It is decided by the owner of the partition, who alone knows the order: over a `reject` when the
turn is taken from the log, over an `interrupt` once its record is known to be runnable.  A turn
that would be skipped or has expired interrupts nobody.

A turn of the same goal or task as another one is not in its way: the later of the two has nothing
left to do when it is its turn, and is skipped.  A second turn of a job neither overrules nor is
overruled while the first one has not ended, or the first would be taken for ended with it.  What
was overruled is in nobody's way either.

A rejection is given to the owner no later than the end of the turn in its way, unless its own
record is not read yet.  Who takes the partition over decides anew what is not durable: nobody has
heard of it.

Source: DESIGN "A turn".  LangGraph's `reject`, `enqueue` and `interrupt` of one thread's runs are
the model; its `rollback` would need what a body did to be undone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from streams.core.turn.envelope import AgentTurnEnvelope
from streams.core.turn.lanes import Lanes, Turn

__all__ = ["Overruled", "Policies", "interrupted_by", "is_in_the_way", "rejected_for"]

_STATUS: Final[dict[str, Literal["failed", "cancelled"]]] = {
    "rejected": "failed",
    "interrupted": "cancelled",
}


class Overruled(NamedTuple):
    """Why a turn is not to run, or to run no more: the job of the other turn as well."""

    outcome: Literal["rejected", "interrupted"]
    job_id: str

    @property
    def status(self) -> Literal["failed", "cancelled"]:
        """What its goal or task ends as."""
        return _STATUS[self.outcome]

    @property
    def error(self) -> str:
        """What is written into the record and the turn's end."""
        if self.outcome == "interrupted":
            return interrupted_by(self.job_id)
        return rejected_for(self.job_id)


def rejected_for(job_id: str, /) -> str:
    """Return the error of a turn that was rejected, by the job of the turn in its way."""
    return f"rejected: turn {job_id} of its session had not ended"


def interrupted_by(job_id: str, /) -> str:
    """Return the error of a turn that was interrupted, by the job of the turn that did it."""
    return f"interrupted by {job_id}"


def is_in_the_way(earlier: AgentTurnEnvelope, envelope: AgentTurnEnvelope, /) -> bool:
    """Whether an earlier unfinished turn of its session, of another job, is in a turn's way."""
    return (earlier.kind, earlier.payload_ref) != (envelope.kind, envelope.payload_ref)


class Policies:
    """Which of the turns in `lanes` are overruled.

    Args: envelope_of: the envelope of an unfinished turn, by its offset.
    """

    def __init__(self, lanes: Lanes, envelope_of: Callable[[int], AgentTurnEnvelope]) -> None:
        self._lanes = lanes
        self._envelope_of = envelope_of
        self._overruled: dict[int, Overruled] = {}
        self._interrupting: dict[int, Turn] = {}

    @property
    def interrupting(self) -> tuple[Turn, ...]:
        """Turns that are to interrupt others once their records are known to be runnable."""
        return tuple(self._interrupting.values())

    def overruled(self, offset: int) -> Overruled | None:
        """Return why a turn is not to run, or to run no more; None when it may."""
        return self._overruled.get(offset)

    def took(self, turn: Turn) -> None:
        """Apply the policy of a turn that `lanes` has just taken, and that is no duplicate."""
        envelope = self._envelope_of(turn.offset)
        if envelope.when_busy == "enqueue" or not (ahead := self._in_the_way_of(turn)):
            return
        if envelope.when_busy == "interrupt":
            self._interrupting[turn.offset] = turn
            return
        first = self._envelope_of(ahead[0].offset)
        self._overruled[turn.offset] = Overruled("rejected", first.job_id)
        self._lanes.set_aside(turn)

    def interrupt(self, turn: Turn) -> tuple[Turn, ...]:
        """Let a turn of `interrupting` overrule those before it; return which of them run."""
        del self._interrupting[turn.offset]
        word = Overruled("interrupted", self._envelope_of(turn.offset).job_id)
        running: list[Turn] = []
        for each in self._in_the_way_of(turn):
            self._overruled[each.offset] = word
            self._interrupting.pop(each.offset, None)
            if self._lanes.is_running(each):
                running.append(each)
            else:
                self._lanes.set_aside(each)
        return tuple(running)

    def given_back(self, turn: Turn) -> None:
        """Note that a turn that ran waits again: when it was overruled, its end is all it needs."""
        if turn.offset in self._overruled and turn in self._lanes.in_line(turn.session_id):
            self._lanes.set_aside(turn)

    def relent(self, turn: Turn) -> None:
        """Note that a turn of `interrupting` is not runnable, so that it interrupts nobody."""
        self._interrupting.pop(turn.offset, None)

    def ended(self, turn: Turn) -> None:
        """Forget a turn."""
        self._overruled.pop(turn.offset, None)
        self._interrupting.pop(turn.offset, None)

    def is_record_shared(self, turn: Turn) -> bool:
        """Whether the record of an overruled turn is another one's to end.

        That one runs; or it may run, and this one was rejected.  A further turn of the same job
        never does: it is skipped once this one has ended.
        """
        envelope, word = self._envelope_of(turn.offset), self._overruled[turn.offset]
        record = (envelope.kind, envelope.payload_ref)
        for each in self._lanes.in_line(turn.session_id):
            other = self._envelope_of(each.offset)
            if each.offset != turn.offset and (other.kind, other.payload_ref) == record:
                is_free = each.offset not in self._overruled and other.job_id != envelope.job_id
                may_run = word.outcome == "rejected" and is_free
                if may_run or self._lanes.is_running(each):
                    return True
        return False

    def _in_the_way_of(self, turn: Turn) -> list[Turn]:
        """Return the unfinished turns of its session before it that are in its way."""
        envelope = self._envelope_of(turn.offset)
        jobs: set[str] = set()
        found: list[Turn] = []
        for each in self._lanes.in_line(turn.session_id):
            if each.offset == turn.offset:
                break
            earlier = self._envelope_of(each.offset)
            if earlier.job_id == envelope.job_id:
                return []
            is_first = earlier.job_id not in jobs and each.offset not in self._overruled
            if is_first and is_in_the_way(earlier, envelope):
                found.append(each)
            jobs.add(earlier.job_id)
        return found
