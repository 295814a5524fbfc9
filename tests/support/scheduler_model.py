"""The scheduler of one queue, written down as the rules say it: slow, and obviously so."""

from __future__ import annotations

from dataclasses import dataclass, field

PROMOTED_MS = 900_000
"""A normal job of this age counts as high."""

_RANKS = {"high": 0, "normal": 1, "low": 2}


Key = tuple[str, str]
"""Dimension, and the key in it: what is counted of a key stays when the dimension changes."""


@dataclass
class Job:
    """A job that is not done."""

    number: int
    tenant: str
    binding: str
    priority: str
    enqueued_ms: int
    fence: int = 0
    held: bool = False
    open: bool = False
    """Whether its last claim has merely run out."""

    def place(self, now_ms: int) -> tuple[int, int, int]:
        """Where it stands among the jobs of its key, and of all under fifo."""
        rank = _RANKS[self.priority]
        if rank == 1 and now_ms - self.enqueued_ms >= PROMOTED_MS:
            rank = 0
        return rank, self.enqueued_ms, self.number

    @property
    def claim_id(self) -> str:
        return f"{self.number}.{self.fence}"


@dataclass
class Model:
    """Jobs, credits and counts; every question is answered by looking at everything."""

    strategy: str
    weights: dict[str, int]
    quantum: int
    cap: int
    starvation_ms: int
    dimension: str = "tenant"
    jobs: dict[int, Job] = field(default_factory=dict)
    credit: dict[Key, int] = field(default_factory=dict)
    selected: dict[Key, int] = field(default_factory=dict)
    deferred: dict[Key, int] = field(default_factory=dict)
    promotions: int = 0
    rounds: int = 0
    last: str = ""
    slots: int = 0

    @property
    def held(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.held]

    @property
    def open(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.open]

    def revive(self, job: Job) -> bool:
        """A claim that has run out is renewed, if its key is below the cap; whether it is."""
        if 0 < self.cap <= self._in_flight(self.key(job)):
            return False
        job.held, job.open = True, False
        return True

    def _in_flight(self, key: Key) -> int:
        return sum(1 for other in self.held if self.key(other) == key)

    def key(self, job: Job) -> Key:
        """The fairness key of a job."""
        return self.dimension, job.tenant if self.dimension == "tenant" else job.binding

    def grant(self, now_ms: int) -> list[str]:
        """Give jobs to the worker until it or the queue has no more; return the claims."""
        claims: list[str] = []
        while len(self.held) < self.slots:
            job = self._select(now_ms)
            if job is None:
                break
            job.held, job.open, job.fence = True, False, job.fence + 1
            claims.append(job.claim_id)
        return claims

    def _eligible(self) -> dict[Key, list[Job]]:
        """Ready jobs by key, of those below the cap; each other one is passed over once more."""
        ready: dict[Key, list[Job]] = {}
        for job in self.jobs.values():
            if not job.held:
                ready.setdefault(self.key(job), []).append(job)
        for key in [*ready]:
            if 0 < self.cap <= self._in_flight(key):
                self.deferred[key] = self.deferred.get(key, 0) + 1
                del ready[key]
        return ready

    def _select(self, now_ms: int) -> Job | None:
        ready = self._eligible()
        if not ready:
            return None
        if self.strategy == "fifo":
            every = [job for jobs in ready.values() for job in jobs]
            chosen = min(every, key=lambda job: job.place(now_ms))
            return self._serve(chosen)
        old = [
            job
            for jobs in ready.values()
            for job in jobs
            if self.starvation_ms and now_ms - job.enqueued_ms >= self.starvation_ms
        ]
        if old:
            self.promotions += 1
            return self._serve(
                min(old, key=lambda job: (job.enqueued_ms, self.key(job), job.number))
            )
        while True:
            after = [key for key in sorted(ready) if key[1] > self.last]
            before = [key for key in sorted(ready) if key[1] <= self.last]
            for key in (*after, *before):
                if self.credit.get(key, 0) >= 1:
                    self.credit[key] -= 1
                    return self._serve(min(ready[key], key=lambda job: job.place(now_ms)))
            self.rounds += 1
            for key in ready:
                gain = self.weights.get(key[1], 1) * self.quantum
                self.credit[key] = self.credit.get(key, 0) + gain

    def _serve(self, job: Job) -> Job:
        key = self.key(job)
        self.last = key[1]
        self.selected[key] = self.selected.get(key, 0) + 1
        return job
