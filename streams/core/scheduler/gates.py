"""Gates after selection: a job that a worker was granted passes its gates, or is taken back.

| gate | free | on excess |
|---|---|---|
| debounce | waits for its period | the earlier job of the burst is skipped |
| rate_limit | passes | skipped |
| throttle | passes | comes back at its planned start |
| singleton | holds the slot while its claim lasts | skipped; one that had it before waits |
| concurrency | holds a slot while its claim lasts | waits, by priority, then order of asking |

A job that waits has no claim, so that its worker's slot is free.  When its time has come it is
selected like any other, and meets its gate again before it is granted; who is given a slot that
came free is ready at once, and keeps the slot until then.  What its worker found in its event is
remembered: nobody asks for it again.

Invariants: at every position no more than `max` jobs hold a slot of a gate key; in any window of a
period no more than `max` pass rate_limit or throttle; a slot is held by a job with a claim, or by
one that is next to have one.

Source: SEMANTICS 3, 5; decision 18.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from streams.core.bounds import DURATION_MS_MAX
from streams.core.flow import GATES, Flow, Window
from streams.core.gate import window
from streams.core.gate.slots import SLOT_GATES, GateKey
from streams.core.record import Output
from streams.core.scheduler.book import Book, Claim, Queue
from streams.core.scheduler.endings import dead, headers_of, row_of, skipped
from streams.core.scheduler.gate_book import key_of
from streams.core.scheduler.job_id import claim_id, id_at, place_by_id
from streams.core.scheduler.returned import is_delayed
from streams.core.scheduler.selection import Chosen
from streams.core.scheduler.unclaimed import (
    forget_returned,
    make_ready,
    store_returned,
    take_returned,
)
from streams.core.state import State
from streams.core.wire import GatePass, JobAdmitted, RowGated, RowJob, RowReturned

WINDOWS: Final = "s"
"""Prefix of the rows that remember when jobs passed rate_limit and throttle."""


class Met(NamedTuple):
    """How a job fared: it passed (`waits`, `skip` and `full` are false), or what keeps it.

    `due_ms` is when a job that waits comes back, None when it waits for a slot.  `outputs` are
    about other jobs, which it has superseded.
    """

    row: RowGated
    waits: bool = False
    due_ms: int | None = None
    skip: bool = False
    full: bool = False
    outputs: tuple[Output, ...] = ()


class _At(NamedTuple):
    """A job before a gate; `called` when it waited there and its turn has come."""

    state: State
    book: Book
    queue: Queue
    flow: Flow
    job: str
    row: RowGated
    key: GateKey
    called: bool

    @property
    def window(self) -> GateKey:
        """The gate key among those of all queues."""
        return _window_key(self.queue, self.key)


def _window_key(queue: Queue, key: GateKey) -> GateKey:
    gate, trigger_id, value = key
    return gate, f"{queue.home}/{trigger_id}", value


def meet(state: State, book: Book, queue: Queue, job: str, row: RowGated, /) -> Met:
    """Put a job before the gates that it has not passed, in their order; its row is stored."""
    return _meet(state, book, queue, job, row, called=False)


def _meet(state: State, book: Book, queue: Queue, job: str, row: RowGated, *, called: bool) -> Met:
    before, slots = row["gate"], queue.gates.slots
    if before is not None:
        slots.leave(key_of(row, before), job)
    outputs: list[Output] = []
    for gate in GATES[0 if before is None else GATES.index(before) :]:
        flow = queue.gates.flow(row)
        if gate not in flow.declared:
            continue
        key = key_of(row, gate)
        at = _At(state, book, queue, flow, job, row, key, called and gate == before)
        met = _MEET[gate](at)
        outputs += met.outputs
        row = met.row
        if met.waits:
            row = {**row, "gate": gate}
            slots.wait(key, job, row["rank"], row["arrival"])
        if met.waits or met.skip or met.full:  # the last two are not stored for long
            _store(state, queue, job, row)
            return met._replace(row=row, outputs=tuple(outputs))
    row = {**row, "gate": None}
    _store(state, queue, job, row)
    return Met(row, outputs=tuple(outputs))


def _store(state: State, queue: Queue, job: str, row: RowGated) -> None:
    queue.gates.jobs[job] = row
    state.rows.put(f"a:{queue.home}:{job}", row)


# ---------------------------------------------------------------------- what becomes of a claim
def at_grant(state: State, book: Book, queue: Queue, chosen: Chosen, /) -> list[Output] | None:
    """Put a selected job before the gate that it came back for; None when it may be granted."""
    job = id_at(chosen.place)
    row = queue.gates.jobs[job]
    gate = row["gate"]
    if gate is None:
        return None
    met = _meet(state, book, queue, job, row, called=gate not in SLOT_GATES)
    if not (met.waits or met.skip or met.full):
        return None
    queue.selection.claimed(chosen.key, -1)
    queue.selection.dirty.add(chosen.key.name)
    if met.waits:
        store_returned(state, queue, job, waiting(queue.returned[job], met))
        return []
    before = forget_returned(state, queue, job)
    assert before is not None, "a job that met gates was claimed before"
    last = (before["fence"], before["deliveries"], state.now_ms, before["consumer_id"])
    claim = Claim(job, chosen.place, chosen.rank, chosen.key, *last)
    return end(state, book, queue, claim, met)


def waiting(returned: RowReturned, met: Met, /) -> RowReturned:
    """Return what is remembered of a job while it waits."""
    return {**returned, "gated": met.due_ms is None, "not_before_ms": met.due_ms}


def end(state: State, book: Book, queue: Queue, claim: Claim, met: Met, /) -> list[Output]:
    """End a job that a gate skips, or whose gate has too many that wait."""
    row, gated = row_of(state, queue, claim.job), met.row
    forget(state, book, queue, claim.job)
    book.dirty[queue.home] = queue
    if met.full:
        return [dead(state, queue, claim.job, row, "gate_full", claim.delivery)]
    return skipped(state, queue, claim, row, gated, _gate_of(met))


def _gate_of(met: Met) -> str:
    gate = met.row["gate"]
    assert gate is not None, "who is skipped is before a gate"
    return gate


def admitted(state: State, queue: Queue, claim: Claim, job: RowJob, /) -> Output:
    """Say that a claimed job has passed its gates."""
    row = queue.gates.jobs[claim.job]
    value: JobAdmitted = {
        "queue": queue.queue,
        "job_event_id": claim.job,
        "claim_id": claim_id(claim.job, claim.fence),
        "consumer_id": claim.consumer_id,
        "trigger_id": row["trigger_id"],
        "passed": row["passed"],
        "admitted_at_ms": state.now_ms,
    }
    return Output(queue.claims_topic, "job_admitted", claim.job, value, headers=headers_of(job))


def let_go(state: State, book: Book, queue: Queue, job: str, /) -> None:
    """Give back the slots of a job whose claim has ended undone: it takes them anew later.

    What it passed besides stays passed, and it keeps its place among those that wait.
    """
    row = queue.gates.jobs.get(job)
    if row is None:
        return
    held = [each for each in row["passed"] if each["period_ms"] is None]
    kept: list[GatePass] = [each for each in row["passed"] if each["period_ms"] is not None]
    first = held[0]["gate"] if held else None
    _store(state, queue, job, {**row, "gate": first, "again": True, "passed": kept})
    _free(state, book, queue, [(job, row)])


def forget(state: State, book: Book, queue: Queue, /, *jobs: str) -> None:
    """Forget jobs that leave the queue, whether they wait at a gate or hold slots."""
    known = queue.gates.jobs
    if not known:
        return
    gone = [(job, known.pop(job)) for job in jobs if job in known]
    left: set[GateKey] = set()
    for job, row in gone:
        state.rows.delete(f"a:{queue.home}:{job}")
        if row["gate"] is not None:
            key = key_of(row, row["gate"])
            queue.gates.slots.leave(key, job)
            left.add(key)
    for key in sorted(left):
        if key[0] == "throttle" and not queue.gates.slots.waiters(key):
            _unplan(state, queue, key)
    _free(state, book, queue, gone)


def _unplan(state: State, queue: Queue, key: GateKey) -> None:
    """Give up the starts that a throttle has planned: those they were planned for are gone."""
    window.unplan(state, _window_key(queue, key), WINDOWS)


def _free(state: State, book: Book, queue: Queue, holders: Iterable[tuple[str, RowGated]]) -> None:
    """Take the slots of these jobs, then give what is free to those that wait for it."""
    freed: dict[GateKey, None] = {}
    for job, row in holders:
        for each in row["passed"]:
            key = key_of(row, each["gate"])
            if each["period_ms"] is None and queue.gates.slots.release(key, job):
                freed[key] = None
    for key in freed:
        _hand_out(state, book, queue, key)


def registered(state: State, book: Book, queue: Queue, /) -> None:
    """Go on under other limits: there may be more slots than before, or a gate less."""
    slots = queue.gates.slots
    for key in sorted(slots.waiting):
        gate, trigger_id, _ = key
        if gate in SLOT_GATES:
            _hand_out(state, book, queue, key)
        elif gate not in queue.gates.flow_of(trigger_id).declared:
            for job in slots.in_order(key):
                if is_delayed(queue.returned[job]):  # else it meets the gate when it is granted
                    _go_on(state, book, queue, job)
            _unplan(state, queue, key)


def _hand_out(state: State, book: Book, queue: Queue, key: GateKey) -> None:
    """Give the free slots of a gate key to those that wait, in their order."""
    slots = queue.gates.slots
    while (job := slots.first(key)) is not None:
        most = _slots_of(queue.gates.flow(queue.gates.jobs[job]), key[0])
        if most is not None and slots.held(key) >= most:
            return
        _go_on(state, book, queue, job)


def _go_on(state: State, book: Book, queue: Queue, job: str) -> None:
    """Let a job that waits pass its gate: it is ready, or waits at the next one."""
    met = _meet(state, book, queue, job, queue.gates.jobs[job], called=True)
    if met.waits:
        store_returned(state, queue, job, waiting(queue.returned[job], met))
    else:
        make_ready(state, book, queue, job)


def _slots_of(flow: Flow, gate: str) -> int | None:
    """Return how many may hold a slot of a gate key at once; None when the gate is not declared."""
    if gate == "singleton":
        return None if flow.singleton is None else 1
    return None if flow.concurrency is None else flow.concurrency.max


# ---------------------------------------------------------------------- the gates
def _debounce(at: _At) -> Met:
    debounce = at.flow.debounce
    assert debounce is not None, "the gate is declared"
    if at.called:
        return Met(at.row)
    state, queue = at.state, at.queue
    others = queue.gates.slots.in_order(at.key)
    place = _place(at, at.job)
    if any(_place(at, other) > place for other in others):
        return Met({**at.row, "gate": "debounce"}, skip=True)
    since_ms = min([state.now_ms, *(queue.gates.jobs[other]["since_ms"] for other in others)])
    due_ms = state.now_ms + debounce.period_ms
    if debounce.max_wait_ms is not None:
        due_ms = min(due_ms, since_ms + debounce.max_wait_ms)
    outputs: list[Output] = []
    for other in others:
        row, claim = take_returned(state, at.book, queue, other)
        gated = queue.gates.jobs[other]
        forget(state, at.book, queue, other)
        outputs += skipped(state, queue, claim, row, gated, "debounce")
    return _wait(at, {**at.row, "since_ms": since_ms}, due_ms, tuple(outputs))


def _place(at: _At, job: str) -> int:
    return place_by_id(row_of(at.state, at.queue, job)["occurred_at_ms"], job)


def _rate_limit(at: _At) -> Met:
    limit = at.flow.rate_limit
    assert limit is not None, "the gate is declared"
    happened, _ = window.starts_of(at.state, at.window, WINDOWS)
    if window.free_at(happened, limit) > at.state.now_ms:
        return Met({**at.row, "gate": "rate_limit"}, skip=True)
    now_ms = at.state.now_ms
    _keep(at, limit, window.with_start(happened, now_ms), window.NONE)
    return Met(_with_pass(at, limit.max, limit.period_ms))


def _throttle(at: _At) -> Met:
    """Pass if the window lets it now, as planned or not; else plan when it shall."""
    limit = at.flow.throttle
    assert limit is not None, "the gate is declared"
    now_ms = at.state.now_ms
    happened, planned = window.starts_of(at.state, at.window, WINDOWS)
    free_ms = window.free_at(happened, limit)
    planned_ms = max(now_ms, window.free_at(planned, limit))
    if free_ms <= now_ms and (at.called or planned_ms <= now_ms):
        if not at.called:
            planned = window.with_start(planned, now_ms)
        _keep(at, limit, window.with_start(happened, now_ms), planned)
        return Met(_with_pass(at, limit.max, limit.period_ms))
    # Whoever came late, since no worker had room, is planned anew behind those that are: all of
    # them at once would come back at the same time, and be too many again.
    start_ms = max(planned_ms, free_ms)
    if start_ms - now_ms > DURATION_MS_MAX:
        return Met({**at.row, "gate": "throttle"}, full=True)
    met = _wait(at, at.row, start_ms)
    if met.waits:
        _keep(at, limit, happened, window.with_start(planned, start_ms))
    return met


def _keep(at: _At, limit: Window, happened: window.Starts, planned: window.Starts) -> None:
    window.keep(at.state, at.window, limit, happened, planned, WINDOWS)


def _singleton(at: _At) -> Met:
    slots = at.queue.gates.slots
    busy = slots.held(at.key) > 0 or (slots.waiters(at.key) > 0 and not at.called)
    if not busy:
        return _hold(at, 1)
    if at.row["again"]:
        return _wait(at, at.row)
    return Met({**at.row, "gate": "singleton"}, skip=True)


def _concurrency(at: _At) -> Met:
    limit = at.flow.concurrency
    assert limit is not None, "the gate is declared"
    slots = at.queue.gates.slots
    if slots.held(at.key) < limit.max and (at.called or not slots.waiters(at.key)):
        return _hold(at, limit.max)
    return _wait(at, at.row)


def _wait(
    at: _At, row: RowGated, due_ms: int | None = None, outputs: tuple[Output, ...] = ()
) -> Met:
    """Let a job wait, if there is room; one that was admitted before has room."""
    full = at.queue.gates.slots.waiters(at.key) >= at.flow.waiting_max
    if full and not (at.row["again"] or at.called):
        return Met({**row, "gate": at.key[0]}, full=True, outputs=outputs)
    return Met(row, waits=True, due_ms=due_ms, outputs=outputs)


def _hold(at: _At, most: int) -> Met:
    at.queue.gates.slots.hold(at.key, at.job)
    return Met(_with_pass(at, most, None))


def _with_pass(at: _At, most: int, period_ms: int | None) -> RowGated:
    passed: GatePass = {
        "gate": at.key[0],
        "key": at.key[2],
        "max": most,
        "period_ms": period_ms,
        "at_ms": at.state.now_ms,
    }
    return {**at.row, "passed": [*at.row["passed"], passed]}


_MEET: Final[dict[str, Callable[[_At], Met]]] = {
    "debounce": _debounce,
    "rate_limit": _rate_limit,
    "throttle": _throttle,
    "singleton": _singleton,
    "concurrency": _concurrency,
}
