"""What the owner of a partition forgets: records that were done with long enough ago.

    all that was folded ─▸ what is due is looked up ─▸ forget ─▸ a word without a value, by key
            └─ what is learned meanwhile keeps its session          └─ seen in the log: settled

Of a goal or task that is forgotten no turn runs any more: without a record it is skipped.  So what
an end must prevent, its absence does as well.

The API may write a key while the word that forgets it is on its way, so that the word stands behind
what the API wrote, and would undo it.  What is learned of such a key before the word itself is seen
in the log is written once more.

Invariants: nothing is forgotten that has not ended, that belongs to a turn that has not ended, or
that was changed since the moment that is given; what the API writes is never lost.

Source: DESIGN law 9, "A turn"; ADR 25.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from streams.core.record import Output, Position
from streams.core.turn.gathering import Gathering
from streams.core.turn.memory import Memory
from streams.core.turn.words import JOBS, SESSIONS

__all__ = ["CHANGED_AT", "RETENTION", "Due", "Parting"]

RETENTION = "retention_ms"
CHANGED_AT = "changed_at_ms"
"""Headers of a word that forgets: how long the record was kept, from when on, ms."""

_OF_JOBS = frozenset({"agent_goal", "agent_job"})


class Due(NamedTuple):
    """A record that may have had its time, as it was found; `changed_at_ms` is its last change."""

    kind: str
    key: str
    session_id: str
    changed_at_ms: int


class Parting:
    """Of one partition; it writes into the owner's next transaction."""

    def __init__(self, partition: int, gathering: Gathering, memory: Memory) -> None:
        self._partition = partition
        self._gathering = gathering
        self._memory = memory
        self._heard: set[str] | None = None
        self._unseen: set[str] = set()

    @property
    def unseen(self) -> int:
        """How many words that forget were not seen in the log yet."""
        return len(self._unseen)

    def listen(self) -> None:
        """Begin to look for what is due: what is learned from now on stays."""
        self._heard = set()

    def forget(
        self, found: Iterable[Due], cause: Position, /, *, before_ms: int, retention_ms: int
    ) -> int:
        """Forget what is due of what was found since `listen`; return how much that is.

        Args: cause: where the owner stands in the turns.
              before_ms: what was changed later is not due.
        """
        heard, self._heard = self._heard, None
        assert heard is not None, "what was learned meanwhile must be known"
        count = 0
        for each in found:
            free = self._memory.may_forget(each.key, before_ms)
            if not free or each.session_id in heard or each.changed_at_ms > before_ms:
                continue
            told = ((CHANGED_AT, str(each.changed_at_ms)), (RETENTION, str(retention_ms)))
            self._say(each.kind, each.key, None, told, cause)
            self._memory.fold("", each.key, None)
            self._unseen.add(each.key)
            count += 1
        return count

    def learn(
        self, kind: str, key: str, value: Mapping[str, Any] | None, cause: Position, /
    ) -> None:
        """Take a record of the API."""
        self._memory.fold(kind, key, value)
        if value is None:
            return
        if self._heard is not None:
            self._heard.add(value.get("session_id", ""))
        if key in self._unseen:
            self._unseen.discard(key)
            self._say(kind, key, value, (), cause)

    def seen(self, key: str) -> None:
        """Note that the word that forgets a key was met in the log, with all before it folded."""
        self._unseen.discard(key)

    def _say(
        self,
        kind: str,
        key: str,
        value: Mapping[str, Any] | None,
        headers: tuple[tuple[str, str], ...],
        cause: Position,
    ) -> None:
        topic = JOBS if kind in _OF_JOBS else SESSIONS
        self._gathering.say(Output(topic, kind, key, value, self._partition, headers), cause)
