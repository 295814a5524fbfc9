"""The claims of one worker, from the grant until another has the job, or nobody needs it.

| state | in the worker | what ends it |
|---|---|---|
| waiting | granted, not begun | it begins; released; its claim is lost: dropped |
| running | its predicate or handler runs | an outcome; its gates are asked |
| asking | its gates were asked | admitted: waiting, before the others; else dropped |
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from streams.core.wire import ClaimedJob, ClaimRef, GrantedJob
from streams.edge.executors.call import Call
from streams.edge.worker.line import FairLine

__all__ = ["HeldJob", "HeldJobs"]

State = Literal["waiting", "running", "asking", "answering", "failed"]


@dataclass(eq=False, slots=True)
class HeldJob:
    """A claim, and where its job is.  Compared by identity."""

    queue_key: str
    """Queue, or `queue#shard`."""
    queue: str = field(init=False)
    """The queue, without a shard."""
    job_event_id: str
    claim_id: str
    delivery: int
    traceparent: str | None
    body: bytes | None
    """Until it begins."""
    expires_s: float
    """Until when it is claimed, by the event loop's clock."""
    fairness_key: str = ""
    state: State = "waiting"
    started_s: float = 0.0
    ended_s: float = 0.0
    call: Call | None = None
    lost: bool = False
    admitted: bool = False
    """Whether its gates let it start, or it was granted as one that they have let pass."""
    resume: Callable[[], None] | None = None
    """What goes on once it is admitted."""
    gate_keys: dict[str, str] | None = None
    asked_s: float = 0.0
    trigger_id: str | None = None
    event_id: str | None = None
    dispatch_id: str | None = None

    def __post_init__(self) -> None:
        self.queue = self.queue_key.partition("#")[0]

    @property
    def line(self) -> tuple[str, str]:
        """Return what it waits in a line with: jobs of the same begin in their order."""
        return self.queue_key, self.fairness_key

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
    """All claims that a worker has; of those that wait, each fairness key's in their order."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], HeldJob] = {}
        self._waiting: FairLine[HeldJob] = FairLine()
        self._admitted: deque[HeldJob] = deque()
        self._asking: dict[tuple[str, str], HeldJob] = {}
        self.running = 0
        self.failed = 0

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[HeldJob]:
        return iter(tuple(self._held.values()))

    @property
    def waiting(self) -> int:
        """Return how many wait for their turn."""
        return len(self._waiting) + len(self._admitted)

    @property
    def asking(self) -> list[HeldJob]:
        """Return those that wait for the word of their gates."""
        return list(self._asking.values())

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
            job["fairness_key"],
            admitted=job["admitted"],
        )
        self._held[key] = held
        self._waiting.append(held.line, held)
        return held

    def next(self) -> HeldJob | None:
        """Begin with what its gates have admitted, then with the key whose turn it is."""
        line = self._admitted or self._waiting
        if not line:
            return None
        held = line.popleft()
        held.state = "running"
        self.running += 1
        return held

    def ask(self, held: HeldJob) -> None:
        """Note that a job waits for the word of its gates."""
        assert held.state == "running", f"{held.claim_id} begins before it asks"
        held.state = "asking"
        held.call = None
        self.running -= 1
        self._asking[held.queue_key, held.claim_id] = held

    def admit(self, queue_key: str, claim_id: str) -> None:
        """Note that a job may start, if it still asks."""
        held = self._asking.pop((queue_key, claim_id), None)
        if held is not None:
            held.state, held.admitted = "waiting", True
            self._admitted.append(held)

    def withdraw(self, queue_key: str, claim_id: str) -> HeldJob | None:
        """Forget a job that its gates keep from starting, if it still asks; return it."""
        held = self._asking.pop((queue_key, claim_id), None)
        if held is not None:
            del self._held[queue_key, claim_id]
            held.lost = True
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
        """Forget all whose handlers have not begun, and return them."""
        taken = [*self._admitted, *self._waiting, *self._asking.values()]
        self._admitted.clear()
        self._waiting.clear()
        self._asking.clear()
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
                    if held in self._admitted:
                        self._admitted.remove(held)
                    else:
                        self._waiting.remove(held.line, held)
                    del self._held[held.queue_key, held.claim_id]
                case "asking":
                    self.withdraw(held.queue_key, held.claim_id)
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
