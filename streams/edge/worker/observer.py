"""What a worker tells whoever counts, and whoever prints what became of the jobs."""

from __future__ import annotations

from typing import Protocol

from streams.core.wire import JobResponse

__all__ = ["Unobserved", "WorkerObserver"]


class WorkerObserver(Protocol):
    """Told on the event loop, in the path of every job: must be quick and must not raise."""

    def finished(self, queue: str, outcome: str, seconds: float) -> None:
        """A job ended with an outcome of the schema, `seconds` after it began."""
        ...

    def answered(self, response: JobResponse) -> None:
        """This is appended as its response."""
        ...

    def settled(self, queue: str, count: int, *, acked: bool) -> None:
        """So many responses are in the log, and their acks if they were acked."""
        ...

    def claims_lost(self, count: int) -> None:
        """So many claims ran out while their handlers ran."""
        ...

    def strays(self, count: int) -> None:
        """So many handlers were given up and run on all the same."""
        ...

    def loop_blocked(self) -> None:
        """A handler has held up the event loop for too long; told from another thread."""
        ...


class Unobserved:
    """Counts nothing."""

    def finished(self, queue: str, outcome: str, seconds: float) -> None:
        """Ignore it."""

    def answered(self, response: JobResponse) -> None:
        """Ignore it."""

    def settled(self, queue: str, count: int, *, acked: bool) -> None:
        """Ignore it."""

    def claims_lost(self, count: int) -> None:
        """Ignore it."""

    def strays(self, count: int) -> None:
        """Ignore it."""

    def loop_blocked(self) -> None:
        """Ignore it."""
