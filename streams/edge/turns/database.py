"""What a database must do for agent turns, so that queue and store are written once.

Statements have `?` for parameters, and words in braces that databases spell differently: `{now}`
(the database's own clock, ms since the epoch, the same throughout a statement), `{serial}` (the
type of a key that counts up and never takes a number twice), `{for_update}` (rows stay as they are
read until the transaction ends) and `{skip_locked}` (the same, and rows of transactions under way
are passed over).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

__all__ = ["Database", "Row", "Transaction", "Value", "Work"]

Value = str | int | None
Row = tuple[Any, ...]
_Answer = TypeVar("_Answer")


class Transaction(Protocol):
    """Statements that take effect together or not at all."""

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> list[Row]:
        """Run a statement and return its rows."""
        ...

    def change(self, sql: str, parameters: Sequence[Value] = (), /) -> int:
        """Run a statement and return how many rows it touched."""
        ...

    def alone(self, name: str, /) -> None:
        """Wait until no other transaction that named the same is under way, until this one ends."""
        ...


Work = Callable[[Transaction], _Answer]


class Database(Protocol):
    """A place of tables; safe for threads, which take turns."""

    backend: str
    """`sqlite` or `postgres`, as in `TASK_QUEUE_BACKEND`."""
    endpoint: str
    """Where it is, for people; without a password."""

    def run(self, work: Work[_Answer], /) -> _Answer:
        """Return what `work` returns, once all that it did is durable.

        `work` may be called again when nothing of an earlier call took effect.

        Raises: TaskQueueUnavailable, when nothing took effect, or says that it may have.
        """
        ...

    def make(self, name: str, statements: Sequence[str], /) -> None:
        """Make the table `name` by `statements`, unless it is there; safe when many do so at once.

        Raises: TaskQueueUnavailable.
        """
        ...

    def close(self) -> None:
        """Let go of the connection; a later call makes a new one."""
        ...
