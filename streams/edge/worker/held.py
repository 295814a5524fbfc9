"""The claims of one worker, from the grant until another has the job, or nobody needs it.

| state | in the worker | what ends it |
|---|---|---|
| waiting | granted, not begun | it begins; released; its claim is lost: dropped |
| running | its handler runs | an outcome |
| answering | response and ack are on their way | both are in the log |
| failed | answered, and left unacked | the claim runs out: another worker may have the job |

A claim that is lost while its handler runs leaves it running: what it comes to is recorded with
the claim's id, and never acked.

Time is the process's own: a claim counts from before its renewal was sent, so that this worker
gives it up no later than the scheduler does, as far as it was told in time.

Source: DESIGN "A job"; law 7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from streams.core.wire import ClaimedJob, ClaimRef, GrantedJob
from streams.edge.executors.call import Call

__all__ = ["HeldJob", "HeldJobs"]

State = Literal["waiting", "running", "answering", "failed"]


@dataclass(eq=False, slots=True)
class HeldJob:
    """A claim, and where its job is.  Compared by identity."""

    queue_key: str
    """Queue, or `queue#shard`."""
    job_event_id: str
    claim_id: str
    delivery: int
    traceparent: str | None
    body: bytes | None
    """Until it begins."""
    expires_s: float
    """Until when it is claimed, by the event loop's clock."""
    state: State = "waiting"
    started_s: float = 0.0
    ended_s: float = 0.0
    call: Call | None = None
    lost: bool = False
    trigger_id: str | None = None
    event_id: str | None = None
    dispatch_id: str | None = None

    @property
    def queue(self) -> str:
        """Return the queue, without a shard."""
        return self.queue_key.partition("#")[0]

    @property
    def ref(self) -> ClaimRef:
        """Return what names the claim among those of all queues."""
        return {
            "queue": self.queue_key,
            "job_event_id": self.job_event_id,
            "claim_id": self.claim_id,
        }

    @property
    def claimed(self) -> ClaimedJob:
        """Return what names the claim in its queue."""
        return {"job_event_id": self.job_event_id, "claim_id": self.claim_id}


class HeldJobs:
    """All claims that a worker has; those that wait, in the order in which they were granted."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], HeldJob] = {}
        self._waiting: deque[HeldJob] = deque()
        self.running = 0
        self.failed = 0

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[HeldJob]:
        return iter(tuple(self._held.values()))

    @property
    def waiting(self) -> int:
        """Return how many wait for their turn."""
        return len(self._waiting)

    @property
    def busy(self) -> int:
        """Return how many are not over: all but those that failed."""
        return len(self._held) - self.failed

    def grant(self, queue_key: str, job: GrantedJob, expires_s: float) -> HeldJob | None:
        """Take a claim; None when it is held already."""
        key = (queue_key, job["claim_id"])
        if key in self._held:
            return None
        held = HeldJob(
            queue_key,
            job["job_event_id"],
            job["claim_id"],
            job["delivery"],
            job["traceparent"],
            job["body"],
            expires_s,
        )
        self._held[key] = held
        self._waiting.append(held)
        return held

    def next(self) -> HeldJob | None:
        """Begin with what has waited longest, if anything waits."""
        if not self._waiting:
            return None
        held = self._waiting.popleft()
        held.state = "running"
        self.running += 1
        return held

    def answer(self, held: HeldJob) -> None:
        """Note that a job has its outcome."""
        assert held.state == "running", f"{held.claim_id} is answered once"
        held.state = "answering"
        held.call = None
        self.running -= 1

    def fail(self, held: HeldJob) -> None:
        """Keep a claim until it runs out: its job is answered, and not done."""
        assert held.state == "answering", f"{held.claim_id} is answered before it fails"
        held.state = "failed"
        self.failed += 1

    def drop(self, held: HeldJob) -> None:
        """Forget a claim that is over."""
        assert held.state not in ("waiting", "running"), f"{held.claim_id} is not over"
        if self._held.pop((held.queue_key, held.claim_id), None) is held and held.state == "failed":
            self.failed -= 1

    def take_waiting(self) -> list[HeldJob]:
        """Forget all that have not begun, and return them."""
        taken = list(self._waiting)
        self._waiting.clear()
        for held in taken:
            del self._held[held.queue_key, held.claim_id]
        return taken

    def expire(self, now_s: float) -> list[HeldJob]:
        """Give up the claims that have run out; return those whose handlers run."""
        running: list[HeldJob] = []
        for held in self:
            if held.lost or held.expires_s > now_s:
                continue
            match held.state:
                case "waiting":
                    self._waiting.remove(held)
                    del self._held[held.queue_key, held.claim_id]
                case "failed":
                    self.drop(held)
                case _:
                    held.lost = True
                    if held.state == "running":
                        running.append(held)
        return running

    def due(self, now_s: float, ttl_s: float) -> list[HeldJob]:
        """Return the claims that are half through, and needed for longer."""
        limit_s = now_s + ttl_s / 2
        return [
            held
            for held in self._held.values()
            if held.expires_s <= limit_s and held.state != "failed" and not held.lost
        ]
