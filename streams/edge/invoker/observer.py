"""What an invoker tells whoever counts; metrics are wired by the composition root."""

from __future__ import annotations

from typing import Protocol

__all__ = ["InvokerObserver", "Unobserved"]


class InvokerObserver(Protocol):
    """Told on the event loop, in the path of every invocation: must be quick and must not raise."""

    def started(self, trigger_id: str, waited_ms: int) -> None:
        """A handler starts, `waited_ms` after its event was accepted (by two clocks: >= 0)."""
        ...

    def finished(self, trigger_id: str, outcome: str, seconds: float | None) -> None:
        """An invocation ended with an outcome of the schema, `seconds` after its handler started.

        None when no handler had.
        """
        ...

    def outstanding(self, count: int) -> None:
        """So many handlers run now."""
        ...

    def unusable(self) -> None:
        """An intent could not be read and was passed over."""
        ...

    def leases_late(self, late_ms: int) -> None:
        """Renewals came so late that leases have run out (the process was stopped or starved)."""
        ...

    def strays(self, count: int) -> None:
        """So many handlers were given up and run on all the same."""
        ...

    def loop_blocked(self) -> None:
        """A handler holds up the event loop.  Said from another thread."""
        ...


class Unobserved:
    """Counts nothing."""

    def started(self, trigger_id: str, waited_ms: int) -> None:
        """Ignore it."""

    def finished(self, trigger_id: str, outcome: str, seconds: float | None) -> None:
        """Ignore it."""

    def outstanding(self, count: int) -> None:
        """Ignore it."""

    def unusable(self) -> None:
        """Ignore it."""

    def leases_late(self, late_ms: int) -> None:
        """Ignore it."""

    def strays(self, count: int) -> None:
        """Ignore it."""

    def loop_blocked(self) -> None:
        """Ignore it."""
