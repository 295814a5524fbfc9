"""A destination's circuit in one partition, said in the plainest words: an oracle.

One object per live dispatch, one list of what is parked, and a loop over everything that is due.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FAILURES_MAX = 5
OPEN_MS = 60_000


@dataclass(slots=True)
class ModelDispatch:
    """One live dispatch."""

    arrival: int
    attempt: int = 1
    fence: int = 1
    status: str = "invoked"
    due_ms: int | None = None
    since_ms: int = 0
    cancelled: bool = False


@dataclass(slots=True)
class CircuitModel:
    """Live dispatches of one binding, its circuit, and how those that ended did."""

    attempts_max: int
    delay_ms: int
    park_ms: int
    parked_max: int
    now_ms: int = 0
    live: dict[str, ModelDispatch] = field(default_factory=dict[str, ModelDispatch])
    ended: dict[str, str] = field(default_factory=dict[str, str])
    failures: int = 0
    open_until_ms: int | None = None
    probe: str | None = None
    due_ms: int | None = None

    @property
    def parked(self) -> list[str]:
        """Parked dispatches, first parked first."""
        found = [name for name, each in self.live.items() if each.status == "parked"]
        return sorted(found, key=lambda name: (self.live[name].since_ms, self.live[name].arrival))

    # ------------------------------------------------------------------ time
    def moves_time(self, now_ms: int) -> None:
        """Whatever is due happens, by due time, dispatches before the circuit."""
        self.now_ms = now_ms
        while True:
            due = [
                (each.due_ms, f"d:{name}")
                for name, each in self.live.items()
                if each.due_ms is not None and each.due_ms <= now_ms
            ]
            if self.due_ms is not None and self.due_ms <= now_ms:
                due.append((self.due_ms, "o:"))
            if not due:
                return
            _, key = min(due)
            if key == "o:":
                self._circuit_due()
            else:
                self._dispatch_due(key[2:])

    def _circuit_due(self) -> None:
        self.due_ms = None
        if self.open_until_ms is None:
            for name in self.parked:
                self._start(name)
        elif not self.parked:
            self.open_until_ms, self.failures = None, FAILURES_MAX - 1
        else:
            self.probe = self.parked[0]
            self._invoke(self.probe)

    def _dispatch_due(self, name: str) -> None:
        if self.live[name].status == "parked":
            self._end(name, "circuit_open")
        else:
            self._start(name)

    # ------------------------------------------------------------------ what comes
    def match(self, name: str, arrival: int) -> None:
        """An event is matched."""
        self.live[name] = ModelDispatch(arrival)
        self._start(name)

    def completed(self, name: str, outcome: str) -> None:
        """An attempt ends."""
        each = self.live[name]
        if each.cancelled:
            self._end(name, "cancelled")
        elif outcome == "success":
            self._works()
            self._end(name, "succeeded")
        elif outcome == "denied":
            if self.probe == name:
                self._works()
            self._end(name, "denied")
        else:
            self._count(name)
            if each.attempt == self.attempts_max:
                self._end(name, "retry_exhausted")
                return
            each.attempt, each.fence = each.attempt + 1, each.fence + 1
            if self.delay_ms:
                each.status, each.due_ms = "waiting", self.now_ms + self.delay_ms
            else:
                self._start(name)

    def cancel(self, name: str) -> None:
        """An operator cancels it."""
        each = self.live[name]
        if each.status == "invoked":
            each.cancelled = True
        else:
            self._end(name, "cancelled")

    # ------------------------------------------------------------------ the circuit
    def _count(self, name: str) -> None:
        if self.open_until_ms is not None:
            if self.probe == name or self.open_until_ms <= self.now_ms:
                self.failures += 1
                self._open()
            return
        self.failures += 1
        if self.failures >= FAILURES_MAX:
            self._open()

    def _open(self) -> None:
        self.open_until_ms = self.due_ms = self.now_ms + OPEN_MS
        self.probe = None

    def _works(self) -> None:
        self.failures = 0
        if self.open_until_ms is not None:
            self.open_until_ms = self.probe = None
            self.due_ms = self.now_ms + 1 if self.parked else None

    def _start(self, name: str) -> None:
        each = self.live[name]
        if self.open_until_ms is None:
            self._invoke(name)
        elif len([other for other in self.parked if other != name]) >= self.parked_max:
            self._end(name, "circuit_open")
        else:
            each.status, each.due_ms = "parked", self.now_ms + self.park_ms
            each.since_ms = self.now_ms

    def _invoke(self, name: str) -> None:
        each = self.live[name]
        each.status, each.due_ms = "invoked", None

    def _end(self, name: str, how: str) -> None:
        del self.live[name]
        self.ended[name] = how
        if self.probe == name:
            self.probe, self.due_ms = None, self.now_ms + 1
