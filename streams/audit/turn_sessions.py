"""Whether sessions stand as the words about their turns say, by session, in bounded memory.

| last word about a turn of it | what its owner last wrote of it |
|---|---|
| claimed | `running` |
| released | `queued` |
| finished, of a turn that ran | what its goal or task came to; `queued` while others have no end |
| finished, of a turn that did not run | the same, or as before |
| finished, of one that was overruled and did not run | as before |

What the API wrote last is not judged: it makes a session, and says that what it waited for never
came.  Nor is a session of which nothing is there: turns may be enqueued without one.

Source: DESIGN "Proof"; `streams.core.turn.session`, `streams.core.turn.pen`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

from streams.audit.keyed import Keyed
from streams.closable import Closable
from streams.core.record import Position
from streams.core.turn.session import status_after
from streams.core.wire import AgentJobStatus, AgentSessionStatus

__all__ = ["TurnSessions"]

_STATUSES: tuple[str, ...] = get_args(AgentSessionStatus)
_RECORDS: tuple[AgentJobStatus | None, ...] = (None, *get_args(AgentJobStatus))
_KINDS = ("turn_claimed", "turn_claim_released", "turn_finished")
_FORGOTTEN = len(_STATUSES)
_API = _FORGOTTEN + 1


class _Expected(NamedTuple):
    """What a session may be; with `others` it is `queued` only while other turns have no end."""

    statuses: frozenset[str]
    others: bool


class TurnSessions(Closable):
    """Words and sessions of one partition; its `with` block closes and removes the files.

    Words come in the order of `claims`, sessions in that of `sessions`: topics and a partition.
    """

    def __init__(self, folder: Path, claims: tuple[str, int], sessions: tuple[str, int]) -> None:
        self._claims, self._sessions = claims, sessions
        self._keys = Keyed(folder, f"sessions-{claims[1]}", said="qBB?", stands="qB")

    def close(self) -> None:
        """Close and remove the files."""
        self._keys.close()

    def word(self, offset: int, kind: str, value: dict[str, Any], *, is_held: bool) -> None:
        """Take the next word that counts; `is_held` says whether its turn is held before it."""
        if not is_held and value.get("outcome") in {"rejected", "interrupted"}:
            return  # it changes nothing of its session
        status: AgentJobStatus | None = value.get("record_status")
        record = _RECORDS.index(status if status in _RECORDS else "unknown")
        self._keys.say(value["session_id"], offset, _KINDS.index(kind), record, is_held)

    def session(
        self, session_id: str, offset: int, status: str | None, *, by_owner: bool = True
    ) -> None:
        """Take the next record of a session; without a status it is forgotten."""
        code = _FORGOTTEN
        if status is not None:
            code = _STATUSES.index(status if status in _STATUSES else "unknown")
        self._keys.stand(session_id, offset, code if by_owner or status is None else _API)

    def moves(self, session_id: str) -> None:
        """Note that more is said of a session than was taken: how it stands is not judged."""
        self._keys.moves(session_id)

    def judge(self, waits: Callable[[int], bool]) -> Iterator[tuple[Position, str]]:
        """Yield what is wrong.

        Args: waits: whether a session, by `hash_of` its id, may have a turn without an end.
        """
        for words, stands in self._keys.parts():
            for key, (offset, code) in stands.items():
                said = words.get(key)
                if said is None or key in self._keys.moving or code in {_FORGOTTEN, _API}:
                    continue
                allowed = _expected(said)
                statuses = allowed.statuses
                if allowed.others and not waits(key):
                    statuses -= {"queued"}
                if _STATUSES[code] not in statuses:
                    named = " or ".join(sorted(statuses))
                    last = said[-1]
                    word = f"{_KINDS[last[1]]} ({Position(*self._claims, last[0])})"
                    what = f"its session is {_STATUSES[code]}, expected {named} after {word}"
                    yield Position(*self._sessions, offset), what


def _expected(said: list[tuple[Any, ...]]) -> _Expected:
    """Return what a session may be after these words."""
    found = _Expected(frozenset(_STATUSES), others=False)  # before the first one that is there
    for _, kind, record, is_held in said:
        match _KINDS[kind]:
            case "turn_claimed":
                found = _Expected(frozenset({"running"}), others=False)
            case "turn_claim_released":
                found = _Expected(frozenset({"queued"}), others=False)
            case _:
                after = frozenset({status_after(_RECORDS[record]), "queued"})
                before = frozenset[str]() if is_held else found.statuses
                found = _Expected(before | after, others=is_held)
    return found
