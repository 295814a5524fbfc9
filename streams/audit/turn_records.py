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

Keys are told apart by a hash of 64 bits.  Words and records go to files, in one of BUCKETS parts by
their hash; one part at a time is judged in memory.

Source: DESIGN "Proof"; `streams.core.turn.record`.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, get_args

from streams.audit.spool import Spool
from streams.core.record import Position
from streams.core.turn.claim import ENDED
from streams.core.wire import AgentJobStatus

__all__ = ["BUCKETS", "FORGOTTEN", "TurnRecords"]

BUCKETS = 64
"""Parts by hash: of each at most one block is in memory while all are written."""

FORGOTTEN = "forgotten"
"""Stands for the status of a key whose last record says that there is nothing any more."""

_ENTRY = struct.Struct("<QqqBB?")
_KEY_BYTES = 8
_STATUSES: tuple[str, ...] = (*get_args(AgentJobStatus), FORGOTTEN, "")
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


class TurnRecords:
    """Words and records of one partition; its `with` block closes and removes the files.

    Words come in the order of `claims`, records in that of `records`: topics and a partition.
    `whole` says that no word was removed.
    """

    def __init__(
        self, folder: Path, claims: tuple[str, int], records: tuple[str, int], *, whole: bool
    ) -> None:
        self._claims, self._records = claims, records
        self._files = ExitStack()
        name = f"turns-{claims[1]}"
        self._words_spool = self._files.enter_context(Spool(folder / f"{name}-words", _ENTRY))
        self._records_spool = self._files.enter_context(Spool(folder / f"{name}-records", _ENTRY))
        self._words = [self._words_spool.sequence() for _ in range(BUCKETS)]
        self._stands = [self._records_spool.sequence() for _ in range(BUCKETS)]
        self._whole = whole
        self._moving: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._files.close()
        for spool in (self._words_spool, self._records_spool):
            spool.path.unlink()

    def word(self, key: str, offset: int, kind: str, value: dict[str, Any]) -> None:
        """Take the next word that counts about the goal or task of `key`."""
        status = value.get("record_status") or ""
        ran = value.get("outcome") == "completed"
        self._add(self._words, key, _Said(offset, value["fence"], kind, status, ran))

    def record(self, key: str, offset: int, value: dict[str, Any] | None) -> None:
        """Take the next record of `key`."""
        status, fence = (FORGOTTEN, 0) if value is None else (value["status"], value["fence"])
        self._add(self._stands, key, _Said(offset, fence, "record", status))

    def moves(self, key: str) -> None:
        """Note that more is said of `key` than was taken: how it stands is not judged."""
        self._moving.add(_hash_of(key))

    def judge(self) -> Iterator[tuple[Position, str]]:
        """Yield what is wrong, key by key."""
        for words, stands in zip(self._words, self._stands, strict=True):
            by_key: defaultdict[int, list[_Said]] = defaultdict(list)
            for key, *fields in words.stored():
                by_key[key].append(_said(*fields))
            last = {key: _said(*fields) for key, *fields in stands.stored()}
            for key, said in by_key.items():
                yield from self._ends(said)
                if key not in self._moving:
                    yield from self._standing(said, last.get(key))
            for key in last.keys() - by_key.keys() - self._moving if self._whole else ():
                if last[key].status == "running" and last[key].fence > 0:
                    at = Position(*self._records, last[key].offset)
                    yield at, f"its record is running under fence {last[key].fence}, unclaimed"

    def _add(self, buckets: list[Any], key: str, said: _Said) -> None:
        hashed = _hash_of(key)
        kind, status = _KINDS.index(said.kind), _CODES.get(said.status, _CODES["unknown"])
        buckets[hashed % BUCKETS].add(hashed, said.offset, said.fence, kind, status, said.ran)

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


def _hash_of(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=_KEY_BYTES).digest(), "little")
