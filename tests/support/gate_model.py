"""Gates of the jobs of one trigger, written down as the rules say it: slow, and obviously so.

The worker has room for everything: whatever may be claimed is claimed at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Job:
    """A job that is not done; `state` is one of held, admitted, waiting, slot, ready."""

    number: int
    state: str = "held"
    fence: int = 1
    key: str = ""
    rank: int = 0
    arrival: int = -1

    @property
    def claim_id(self) -> str:
        return f"{self.number}.{self.fence}"


@dataclass
class GateModel:
    """A rate limit, then concurrency; every question is answered by looking at every job."""

    most: int
    order: tuple[str, ...]
    rate_max: int
    period_ms: int
    jobs: dict[int, Job] = field(default_factory=dict)
    passes: list[int] = field(default_factory=list)
    asked: int = 0

    def claimed(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.state in ("held", "admitted")]

    def ask(self, jobs: list[Job], key: str, priority: str, now_ms: int) -> list[str]:
        """What the gates say of each of these."""
        return [self._meet(job, key, priority, now_ms) for job in jobs]

    def _meet(self, job: Job, key: str, priority: str, now_ms: int) -> str:
        if job.state == "admitted":
            return "admitted"
        if sum(1 for at_ms in self.passes if at_ms > now_ms - self.period_ms) >= self.rate_max:
            del self.jobs[job.number]
            return "skipped"
        self.passes.append(now_ms)
        job.key, job.arrival = key, self.asked
        job.rank = self.order.index(priority) if priority in self.order else len(self.order)
        self.asked += 1
        job.state = "admitted" if self._free(key) and not self._waiting(key) else "waiting"
        return "admitted" if job.state == "admitted" else "delayed"

    def done(self, jobs: list[Job]) -> None:
        """Claims end with their jobs."""
        for job in jobs:
            del self.jobs[job.number]
            self._next(job)

    def undone(self, jobs: list[Job]) -> None:
        """Claims end, and their jobs are there again."""
        for job in jobs:
            had_slot = job.state == "admitted"
            job.state = "ready"
            if had_slot:
                self._next(job)

    def limit(self, most: int) -> None:
        """Another limit is in force."""
        self.most = most
        for key in sorted({job.key for job in self.jobs.values()}):
            self._hand_out(key)

    def grant(self) -> dict[str, bool]:
        """Claim whatever may be; return the claims, and whether each may start at once."""
        granted: dict[str, bool] = {}
        for job in sorted(self.jobs.values(), key=lambda job: job.number):
            if job.state == "ready" and job.arrival < 0:
                job.state = "held"
            elif job.state == "slot" or (
                job.state == "ready" and self._free(job.key) and not self._waiting(job.key)
            ):
                job.state = "admitted"
            elif job.state == "ready":
                job.state = "waiting"
                continue
            else:
                continue
            job.fence += 1
            granted[job.claim_id] = job.state == "admitted"
        return granted

    def _next(self, job: Job) -> None:
        if job.arrival >= 0:
            self._hand_out(job.key)

    def _hand_out(self, key: str) -> None:
        while self._free(key) and self._waiting(key):
            min(self._waiting(key), key=lambda job: (job.rank, job.arrival)).state = "slot"

    def _free(self, key: str) -> bool:
        holders = [
            job
            for job in self.jobs.values()
            if job.key == key and job.state in ("admitted", "slot")
        ]
        return len(holders) < self.most

    def _waiting(self, key: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.key == key and job.state == "waiting"]
