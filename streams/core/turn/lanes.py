"""The turns of one partition in one worker: which may start, and how far the offset has come.

    taken ──start──▸ running ──finish──▸ finished
      ▴                 │
      └────give_back────┘        at once, or not before a moment

Each session is a lane: its turns run strictly one after another, in the order of the log.  Sessions
are independent, and those that could run are ordered by the priority of the turn that is next in
them, then by its arrival.  The worker's slots are shared by its partitions, so `best` only says
which turn is next here; the worker compares, and starts.

A turn that is not to run any more leaves its lane when it is set aside: it may start at once, out
of the order of its session, so that its end can be written without waiting for those before it.
Those after it wait for its end all the same.

The offset moves over the finished prefix alone.  Turns may finish past one that has not: at most
`max_beyond_prefix` of them, running ones counted, so that the next owner has as few to look up.
The first unfinished turn may always start, so whatever its priority it is passed over at most that
often.

Invariants: of a session at most one turn in its lane runs, and none there starts before all earlier
ones of the session have finished; nothing at or beyond `next_offset` is taken, nothing below
`committable` is unfinished; at most `max_beyond_prefix` turns are finished past the first
unfinished one.

Source: DESIGN "A turn", decision A33; seed queue-driven-agent-dispatch, "Ordering".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

__all__ = ["MAX_BEYOND_PREFIX", "MAX_TAKEN", "Lanes", "Turn"]

MAX_BEYOND_PREFIX = 1_000
"""Turns finished past an unfinished one, unless a setting says otherwise."""

MAX_TAKEN = 1_000
"""Unfinished turns that are held, running ones included."""

_STALE = 64  # entries beyond what can be ready: few enough to hold, enough to pay for a sweep


class Turn(NamedTuple):
    """A turn as far as its order is concerned: smaller is earlier, within a partition.

    `bucket` is its priority, 0 the most urgent.
    """

    bucket: int
    offset: int
    session_id: str


@dataclass(slots=True)
class _Lane:
    """One session's unfinished turns, the next or running one first."""

    turns: deque[Turn] = field(default_factory=deque[Turn])
    running: bool = False
    deferred: bool = False


class Lanes:
    """The turns of a partition that were taken from `next_offset` on.

    `take` belongs to whoever reads the log, and asks `wants_more` before each turn; `start`,
    `finish` and `give_back` to whoever runs turns.  All take O(log n) of the turns that are held.
    """

    def __init__(
        self,
        next_offset: int,
        *,
        max_beyond_prefix: int = MAX_BEYOND_PREFIX,
        max_taken: int = MAX_TAKEN,
    ) -> None:
        assert max_beyond_prefix >= 1, "or nothing could finish past a running turn"
        assert max_taken >= 1, "or nothing could be taken"
        self._next_offset = next_offset
        self._max_beyond_prefix = max_beyond_prefix
        self._max_taken = max_taken
        self._lanes: dict[str, _Lane] = {}
        self._taken: dict[int, Turn] = {}  # unfinished, in the order of the log
        self._order: deque[int] = deque()  # from the first unfinished one on
        self._finished: set[int] = set()  # past the first unfinished one
        self._running: dict[int, Turn] = {}
        self._ready: list[Turn] = []  # heap; what is no more ready is dropped when it is met
        self._in_ready: set[int] = set()
        self._deferred: list[tuple[int, Turn]] = []  # heap by the moment
        self._aside: dict[int, Turn] = {}  # those that have not started
        self._aside_running: set[int] = set()
        self._aside_in: dict[str, set[int]] = {}  # by session, unfinished
        self._stopped = False

    @property
    def next_offset(self) -> int:
        """Where reading goes on."""
        return self._next_offset

    @property
    def committable(self) -> int:
        """The offset to commit: everything below it has finished."""
        return self._order[0] if self._order else self._next_offset

    @property
    def beyond_prefix(self) -> int:
        """How many turns have finished past the first one that has not."""
        return len(self._finished)

    @property
    def held(self) -> int:
        """How many turns were taken and have not finished."""
        return len(self._taken)

    @property
    def wants_more(self) -> bool:
        """Whether another turn may be taken; when not, reading of the partition is paused."""
        return (
            not self._stopped
            and len(self._taken) < self._max_taken
            and self._past_prefix() < self._max_beyond_prefix
        )

    @property
    def running(self) -> tuple[Turn, ...]:
        """What runs, in the order of starting."""
        return tuple(self._running.values())

    @property
    def stopped(self) -> bool:
        """Whether the partition is about to be handed over, so that nothing starts any more."""
        return self._stopped

    def waits_in(self, session_id: str) -> bool:
        """Whether a session has turns that were taken and have not finished."""
        return session_id in self._lanes

    def take(self, offset: int, session_id: str, bucket: int, *, finished: bool = False) -> None:
        """Take the next turn of the log; offsets may leave gaps, where other records stand.

        `finished` is one whose end was written before, or is written with the next commit, as of
        what is no turn at all: nothing of it is left to do.
        """
        assert offset >= self._next_offset, "the log is read in its order"
        assert self.wants_more, "paused, or about to be handed over"
        self._next_offset = offset + 1
        self._order.append(offset)
        if finished:
            self._finished.add(offset)
            self._move_prefix()
            return
        turn = Turn(bucket, offset, session_id)
        self._taken[offset] = turn
        lane = self._lanes.setdefault(session_id, _Lane())
        lane.turns.append(turn)
        if len(lane.turns) == 1:
            self._make_ready(turn)

    def pass_over(self, next_offset: int) -> None:
        """Note that nothing to be taken stands before `next_offset`."""
        self._next_offset = max(self._next_offset, next_offset)

    def best(self, now_ms: int) -> Turn | None:
        """Return the turn that may start next; None when none may.  Changes nothing else."""
        if self._stopped:
            return None
        while self._deferred and self._deferred[0][0] <= now_ms:
            _, turn = heappop(self._deferred)
            lane = self._lanes.get(turn.session_id)
            if lane is not None and lane.deferred and lane.turns[0] == turn:
                lane.deferred = False
                self._make_ready(turn)
        if self._past_prefix() >= self._max_beyond_prefix:
            # The first unfinished turn takes none of the room that there is past it.
            first = self._taken[self._order[0]]
            return first if self._is_ready(first) else None
        while self._ready and not self._is_ready(self._ready[0]):
            self._in_ready.remove(heappop(self._ready).offset)
        return self._ready[0] if self._ready else None

    def best_aside(self) -> Turn | None:
        """Return the turn that was set aside and may start next; None when none may."""
        if self._stopped or not self._aside:
            return None
        if self._past_prefix() >= self._max_beyond_prefix:
            return self._aside.get(self._order[0])
        return next(iter(self._aside.values()))

    def in_line(self, session_id: str) -> tuple[Turn, ...]:
        """Return a session's unfinished turns, the next or running one first."""
        lane = self._lanes.get(session_id)
        return () if lane is None else tuple(lane.turns)

    def is_running(self, turn: Turn) -> bool:
        """Whether a turn was started and has neither finished nor been given back."""
        return turn.offset in self._running

    def set_aside(self, turn: Turn) -> None:
        """Take a turn that does not run out of its lane: it is to end, and not to run any more."""
        assert turn.offset not in self._running, "what runs keeps its session"
        lane = self._lanes[turn.session_id]
        self._aside[turn.offset] = turn
        self._aside_in.setdefault(turn.session_id, set()).add(turn.offset)
        if lane.turns[-1] == turn:  # as of one that has just come
            lane.turns.pop()
        elif lane.turns[0] == turn:
            lane.turns.popleft()
            lane.deferred = False
            self._make_ready(lane.turns[0])
        else:
            lane.turns.remove(turn)
        if not lane.turns:
            del self._lanes[turn.session_id]

    def due_ms(self) -> int | None:
        """When `best` may answer otherwise though nothing has happened; None for never."""
        return self._deferred[0][0] if self._deferred else None

    def start(self, turn: Turn) -> None:
        """Begin the turn that `best` or `best_aside` named."""
        assert not self._stopped, "about to be handed over"
        if turn.offset in self._aside:
            del self._aside[turn.offset]
            self._aside_running.add(turn.offset)
        else:
            assert self._is_ready(turn), "not the next one of its session"
            self._lanes[turn.session_id].running = True
        self._running[turn.offset] = turn

    def finish(self, turn: Turn) -> None:
        """Note that the end of a running turn is durable, or that no claim can be so without it.

        What starts after it may be written with the end, in one transaction.
        """
        lane = self._end(turn)
        del self._taken[turn.offset]
        self._finished.add(turn.offset)
        self._move_prefix()
        if lane is None:
            self._end_aside(turn)
            return
        lane.turns.popleft()
        if lane.turns:
            self._make_ready(lane.turns[0])
        else:
            del self._lanes[turn.session_id]

    def give_back(self, turn: Turn, *, not_before_ms: int | None = None) -> None:
        """Note that a running turn did not end: it is the next one of its session again.

        It may start at once, or from `not_before_ms` on, while its session waits with it.  What was
        set aside stays so, and may start at once.
        """
        lane = self._end(turn)
        if lane is None:
            self._aside[turn.offset] = turn
        elif not_before_ms is None:
            self._make_ready(turn)
        else:
            lane.deferred = True
            heappush(self._deferred, (not_before_ms, turn))

    def stop(self) -> None:
        """Take and start nothing more: the partition is about to be handed over.

        It may be given up once `running` is empty; what still runs then is cancelled, its claim
        released in the last transaction, and `give_back` called.  What only waits was never begun.
        """
        self._stopped = True

    def _is_ready(self, turn: Turn) -> bool:
        lane = self._lanes.get(turn.session_id)
        if lane is None or lane.running or lane.deferred or lane.turns[0] != turn:
            return False
        aside = self._aside_in.get(turn.session_id)
        return aside is None or min(aside) > turn.offset

    def _end(self, turn: Turn) -> _Lane | None:
        """Note that a turn runs no more; return its lane, None when it was set aside."""
        if turn.offset in self._aside_running:
            self._aside_running.remove(turn.offset)
            del self._running[turn.offset]
            return None
        lane = self._lanes[turn.session_id]
        assert lane.running, "only what runs can end"
        assert lane.turns[0] == turn, "the running turn of a session is its first"
        del self._running[turn.offset]
        lane.running = False
        return lane

    def _end_aside(self, turn: Turn) -> None:
        """Let those that waited for the end of a turn that was set aside start."""
        aside = self._aside_in[turn.session_id]
        aside.remove(turn.offset)
        if not aside:
            del self._aside_in[turn.session_id]
        lane = self._lanes.get(turn.session_id)
        if lane is not None and not lane.running and not lane.deferred:
            self._make_ready(lane.turns[0])

    def _move_prefix(self) -> None:
        while self._order and self._order[0] in self._finished:
            self._finished.remove(self._order.popleft())

    def _past_prefix(self) -> int:
        """Count what has finished or runs past the first unfinished turn."""
        first_runs = bool(self._order) and self._order[0] in self._running
        return len(self._finished) + len(self._running) - first_runs

    def _make_ready(self, turn: Turn) -> None:
        if turn.offset in self._in_ready:
            return
        self._in_ready.add(turn.offset)
        heappush(self._ready, turn)
        if len(self._ready) > 2 * len(self._lanes) + _STALE:
            # First turns that started out of their order are met late: they must not pile up.
            self._ready = [each for each in self._ready if self._is_ready(each)]
            self._in_ready = {each.offset for each in self._ready}
            heapify(self._ready)
