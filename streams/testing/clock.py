"""The driver's clock: it stands still until it is moved."""

from __future__ import annotations

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z, when every run begins."""


class VirtualClock:
    """Milliseconds since the epoch; the broker's clock and every member's."""

    __slots__ = ("now_ms",)

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def move(self, milliseconds: int) -> None:
        """Let time pass.  Raises ValueError when it would go back."""
        if milliseconds < 0:
            raise ValueError(f"time moves forward, not by {milliseconds} ms")
        self.now_ms += milliseconds
