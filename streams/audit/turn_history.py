"""What the words about a partition's turns must be, read in their order: a machine of its own.

| record of `agent.turns.claims` | allowed when | then |
|---|---|---|
| any | its fence is not below one before it, and that of no other worker | the owner of it speaks |
| any | it tells job, session, kind and reference as the turn at its offset does | |
| `turn_claimed` | the turn is not over, nor held; earlier ones of its session are over | held |
| `turn_claim_released` | its owner holds the turn | free |
| `turn_finished` | the turn is not over; as `completed`, its owner holds it | over |

An owner holds what it claimed until the turn is over or released, or until there is a word with a
higher fence: who wrote that had fenced it.  A turn that is over without having been claimed may be
so at any place: it did not run.

Invariants checked: turns of a session run one after another, in the order of the log; each ends
once, and is claimed no more then; attempts are counted; a fence is one worker's, and never falls.

What is kept: the turns that are not over, up to the last one that was read.

Source: DESIGN "Proof", "A turn"; SEMANTICS 8.5, 8.6; law 7.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streams.core.turn.envelope import AgentTurnEnvelope

__all__ = ["KINDS", "TurnHistory"]

_NAMES: Mapping[str, tuple[str, ...]] = {
    "turn_claimed": ("job_id", "session_id", "kind", "payload_ref"),
    "turn_claim_released": ("job_id", "session_id"),
    "turn_finished": ("job_id", "session_id", "kind", "payload_ref"),
}
KINDS = frozenset(_NAMES)
"""The words that are judged; one of a later release says nothing here."""


@dataclass(slots=True)
class _Turn:
    """A turn that is not over; `held_by` is the fence of its last claim, 0 when it is free."""

    offset: int
    envelope: AgentTurnEnvelope
    attempt: int = 0
    held_by: int = 0


class TurnHistory:
    """The turns of one partition and the words about them, as far as both were read.

    Args: first_turn: of words about turns before this offset the fence alone is judged, since what
          was said of them earlier is gone.
    """

    def __init__(self, first_turn: int = 0) -> None:
        self._first_turn = first_turn
        self._open: dict[int, _Turn] = {}
        self._lanes: defaultdict[str, deque[int]] = defaultdict(deque)
        self._fence = 1  # of the first owner
        self._worker: str | None = None

    def enqueued(self, offset: int, envelope: AgentTurnEnvelope) -> None:
        """Take the next turn of the log: each is there before the first word about it."""
        self._open[offset] = _Turn(offset, envelope)
        self._lanes[envelope.session_id].append(offset)

    def unfinished(self) -> list[int]:
        """Return the offsets of the turns that are not over, as far as they were read."""
        return list(self._open)

    def turn(self, offset: int) -> AgentTurnEnvelope | None:
        """Return the turn at an offset, unless it is over or was not read."""
        found = self._open.get(offset)
        return None if found is None else found.envelope

    def sessions(self) -> set[str]:
        """Return the sessions that have such a turn."""
        return {turn.envelope.session_id for turn in self._open.values()}

    def holds(self, value: Mapping[str, Any]) -> bool:
        """Whether the owner that says a word holds its turn before it."""
        turn = self._open.get(value["turn_offset"])
        return turn is not None and turn.held_by == value["fence"]

    def fits(self, value: Mapping[str, Any]) -> bool:
        """Whether a word counts: a lower fence is that of an owner that was fenced."""
        return int(value["fence"]) >= self._fence

    def add(self, kind: str, value: Mapping[str, Any]) -> Iterator[str]:
        """Take the next word, of one of KINDS; yield what is wrong with it."""
        if not self.fits(value):
            yield f"its fence is {value['fence']}, expected at least {self._fence}"
            return
        yield from self._spoken(kind, value)
        offset: int = value["turn_offset"]
        if 0 <= offset < self._first_turn:
            return
        turn = self._open.get(offset)
        if turn is None:
            yield f"its turn, at offset {offset}, is over, or is none"
            return
        strange = list(_strange(kind, value, turn))
        yield from strange or _CHECKS[kind](self, turn, value)

    def _spoken(self, kind: str, value: Mapping[str, Any]) -> Iterator[str]:
        """Note who speaks."""
        fence = value["fence"]
        worker = value["executed_by" if kind == "turn_finished" else "claimed_by"]
        if fence > self._fence or self._worker is None:
            self._fence, self._worker = fence, worker
        elif worker != self._worker:
            yield f"fence {fence} is that of worker {self._worker!r}, not of {worker!r}"

    def _on_claimed(self, turn: _Turn, value: Mapping[str, Any]) -> Iterator[str]:
        if turn.held_by == self._fence:
            yield f"its turn, at offset {turn.offset}, is held already"
        if value["attempt"] != turn.attempt + 1:
            yield f"it is attempt {value['attempt']}, expected {turn.attempt + 1}"
        lane = self._lanes[turn.envelope.session_id]
        if turn.offset in lane and lane[0] != turn.offset:
            yield (
                f"an earlier turn of session {turn.envelope.session_id!r}, at offset {lane[0]}, "
                "is not over"
            )
            while lane[0] != turn.offset:
                lane.popleft()  # told once, not with each later turn of its session
        turn.held_by, turn.attempt = self._fence, value["attempt"]

    def _on_released(self, turn: _Turn, _value: Mapping[str, Any]) -> Iterator[str]:
        yield from self._held(turn)
        turn.held_by = 0

    def _on_finished(self, turn: _Turn, value: Mapping[str, Any]) -> Iterator[str]:
        outcome, attempt = value["outcome"], value["attempt"]
        if outcome == "completed":
            yield from self._held(turn)
        held = turn.held_by == self._fence
        allowed = {turn.attempt} if held else {0, turn.attempt}
        if attempt not in allowed:
            expected = " or ".join(str(each) for each in sorted(allowed))
            yield f"it ended attempt {attempt}, expected {expected}"
        del self._open[turn.offset]
        lane = self._lanes[turn.envelope.session_id]
        if turn.offset in lane:
            lane.remove(turn.offset)
        if not lane:
            del self._lanes[turn.envelope.session_id]

    def _held(self, turn: _Turn) -> Iterator[str]:
        if turn.held_by != self._fence:
            yield f"its turn, at offset {turn.offset}, is not held under fence {self._fence}"


def _strange(kind: str, value: Mapping[str, Any], turn: _Turn) -> Iterator[str]:
    """Yield what a word says otherwise than the turn itself."""
    for name in _NAMES[kind]:
        said, expected = value[name], getattr(turn.envelope, name)
        if said != expected:
            yield f"its {name} is {said!r}, that of the turn at offset {turn.offset} {expected!r}"


_Check = Callable[[TurnHistory, _Turn, Mapping[str, Any]], Iterator[str]]

_CHECKS: Mapping[str, _Check] = {
    "turn_claimed": TurnHistory._on_claimed,  # noqa: SLF001 - the table of its own methods
    "turn_claim_released": TurnHistory._on_released,  # noqa: SLF001
    "turn_finished": TurnHistory._on_finished,  # noqa: SLF001
}
