"""Whether goals and tasks stand as the words about their turns say, by key, in bounded memory.

| last word about it | its record, as it stands |
|---|---|
| claimed | `running`, under the fence of the claim |
| released | `pending` |
| finished: `completed`, `failed` or `cancelled` | the same, or forgotten |
| finished: `paused` | `paused`, what the API made of it, or forgotten |

A record that runs under an owner's fence must have been claimed, where all words are there.  A
claim after an end, and an end after another one, break a rule as well: an end is never left.  Of
something that was paused and resumed by two at once the record may be `pending` under a claim.

The API fails a record whose turn got no ack in time, or pauses it again when it was to be resumed.
The broker may have had that turn all the same, so that its worker has begun or even ended it before
the API's word comes: such a record stands as the API left it whatever the words say.  That is
lawful, since whoever asked was told so, and is counted.

Source: DESIGN "Proof"; `streams.core.turn.record`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

from streams.audit.keyed import Keyed
from streams.closable import Closable
from streams.core.record import Position
from streams.core.turn.claim import ENDED
from streams.core.turn.record import NOT_ENQUEUED
from streams.core.wire import AgentJobStatus

__all__ = ["FORGOTTEN", "TurnRecords"]

FORGOTTEN = "forgotten"
"""Stands for the status of a key whose last record says that there is nothing any more."""

_GIVEN_UP = "given up"
"""Stands for what the API wrote of a turn that got no ack."""

_STATUSES: tuple[str, ...] = (*get_args(AgentJobStatus), FORGOTTEN, _GIVEN_UP, "")
_CODES = {status: code for code, status in enumerate(_STATUSES)}
_KINDS = ("turn_claimed", "turn_claim_released", "turn_finished", "record")
_AFTER_PAUSE = frozenset({"paused", "pending", "cancelled", "failed", FORGOTTEN})
"""Resumed, killed, resumed though its turn could not be enqueued."""


class _Said(NamedTuple):
    """A word or record; `status` is empty where it says none, `ran` whether an attempt ended."""

    offset: int
    fence: int
    kind: str
    status: str
    ran: bool = False


class TurnRecords(Closable):
    """Words and records of one partition; its `with` block closes and removes the files.

    Words come in the order of `claims`, records in that of `records`: topics and a partition.
    `whole` says that no word was removed.
    """

    def __init__(
        self, folder: Path, claims: tuple[str, int], records: tuple[str, int], *, whole: bool
    ) -> None:
        self._claims, self._records = claims, records
        self._keys = Keyed(folder, f"turns-{claims[1]}", said="qqBB?", stands="qqB")
        self._whole = whole
        self.given_up = 0
        """Records that stand as the API left them, whose turns got no ack and were begun."""

    def close(self) -> None:
        """Close and remove the files."""
        self._keys.close()

    def word(self, key: str, offset: int, kind: str, value: dict[str, Any]) -> None:
        """Take the next word that counts about the goal or task of `key`."""
        status = _code(value.get("record_status") or "")
        ran = value.get("outcome") == "completed"
        self._keys.say(key, offset, value["fence"], _KINDS.index(kind), status, ran)

    def record(
        self, key: str, offset: int, value: dict[str, Any] | None, *, by_owner: bool = True
    ) -> None:
        """Take the next record of `key`; None forgets it, `by_owner` says who wrote it."""
        status, fence = (FORGOTTEN, 0) if value is None else (value["status"], value["fence"])
        if value is not None and not by_owner and _is_given_up(value):
            status = _GIVEN_UP
        self._keys.stand(key, offset, fence, _code(status))

    def moves(self, key: str) -> None:
        """Note that more is said of `key` than was taken: how it stands is not judged."""
        self._keys.moves(key)

    def judge(self) -> Iterator[tuple[Position, str]]:
        """Yield what is wrong, key by key."""
        moving = self._keys.moving
        for words, stands in self._keys.parts():
            by_key = {key: [_said(*fields) for fields in said] for key, said in words.items()}
            last = {key: _stands(*fields) for key, fields in stands.items()}
            for key, said in by_key.items():
                yield from self._ends(said)
                if key not in moving:
                    yield from self._standing(said, last.get(key))
            for key in last.keys() - by_key.keys() - moving if self._whole else ():
                if last[key].status == "running" and last[key].fence > 0:
                    at = Position(*self._records, last[key].offset)
                    yield at, f"its record is running under fence {last[key].fence}, unclaimed"

    def _ends(self, said: list[_Said]) -> Iterator[tuple[Position, str]]:
        """Judge that an end is never left."""
        end: _Said | None = None
        for each in said:
            if end is not None and each.kind == "turn_claimed":
                yield self._word(each), f"it claims what had ended as {self._told(end)}"
            elif end is not None and each.status not in ("", end.status):
                what = f"it says that its record is {each.status}, which had ended as"
                yield self._word(each), f"{what} {self._told(end)}"
            elif end is None and each.status in ENDED:
                end = each

    def _standing(self, said: list[_Said], last: _Said | None) -> Iterator[tuple[Position, str]]:
        """Judge the record as it stands by the last word that says how it should."""
        telling = [each for each in said if each.kind != "turn_finished" or each.status]
        if not telling:
            return
        word = telling[-1]
        status = FORGOTTEN if last is None else last.status
        if status == _GIVEN_UP:
            self.given_up += word.status not in {"failed", "paused"}
            return
        expected = _expected(telling)
        at = self._word(word) if last is None else Position(*self._records, last.offset)
        if expected and status not in expected:
            named = " or ".join(sorted(expected))
            yield at, f"its record is {status}, expected {named} after {self._told(word)}"
        elif last is not None and _of_other_fence(word, last):
            what = f"its record has fence {last.fence}, expected {word.fence}"
            yield at, f"{what} after {self._told(word)}"

    def _word(self, said: _Said) -> Position:
        return Position(*self._claims, said.offset)

    def _told(self, said: _Said) -> str:
        return f"{said.status or said.kind} ({self._word(said)})"


def _expected(said: list[_Said]) -> frozenset[str]:
    """Return the statuses that a record may have after these words; none where any will do."""
    word = said[-1]
    if word.kind == "turn_claimed":
        resumed = any(each.status == "paused" for each in said)
        return frozenset({"running", "pending"} if resumed else {"running"})
    if word.kind == "turn_claim_released":
        return frozenset({"pending"})
    if word.status == "paused":
        return _AFTER_PAUSE
    return frozenset({word.status, FORGOTTEN} if word.status in ENDED else ())


def _of_other_fence(word: _Said, last: _Said) -> bool:
    """Whether a record that the owner of the last word wrote has the fence of another."""
    written = (last.status == "running") if word.kind == "turn_claimed" else word.ran
    return written and last.status in ENDED | {"running"} and last.fence != word.fence


def _said(offset: int, fence: int, kind: int, status: int, ran: bool) -> _Said:  # noqa: FBT001
    return _Said(offset, fence, _KINDS[kind], _STATUSES[status], ran)


def _stands(offset: int, fence: int, status: int) -> _Said:
    return _Said(offset, fence, "record", _STATUSES[status])


def _is_given_up(value: dict[str, Any]) -> bool:
    """Whether the API wrote it since a turn got no ack: nothing else makes it pause a goal."""
    if value["status"] == "paused":
        return True
    return value["status"] == "failed" and (value["error"] or "").startswith(NOT_ENQUEUED)


def _code(status: str) -> int:
    return _CODES.get(status, _CODES["unknown"])
