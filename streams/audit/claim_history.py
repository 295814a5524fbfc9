"""What the claims of one queue must be, read in their order: a machine of its own, not the fold's.

| record | allowed when | then |
|---|---|---|
| `job_claimed` | the job is not over, nobody holds it, the fence is above the last one | held |
| `job_admitted` | the claim is in force; its gates allow it | slots are held until it is free |
| `claim_renewed` | the claim is the job's last one | held, until later |
| `job_released` | the claim is the job's last one | free |
| `claim_expired` | the claim is in force, and its time is over | free |
| `job_acked` | the claim is the job's last one, or a gate skipped the job | over |
| `job_purged`, `job_dead` | the job is not over, and nobody holds it | over |
| `claim_refused` | always | as it was |

Invariants checked: leases of a job never overlap; fences grow; a job ends once; no more claims of
one fairness key are in force than the cap allows, and no more jobs admitted than the gates allow.

Of a job that is over a byte is kept, so that memory is that of the jobs that are not.

Source: DESIGN "Proof"; SEMANTICS 5.2; law 7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from streams.audit.gate_history import GateHistory
from streams.audit.job_marks import JobMarks
from streams.core.record import Position

__all__ = ["ClaimHistory", "Violation"]


class Violation(NamedTuple):
    """A record that breaks an invariant, or a job that is nowhere."""

    queue: str
    position: Position
    what: str


@dataclass(slots=True)
class _Job:
    """What is known of a job that is not over: its last claim, and whether that is in force."""

    job_id: str
    fence: int = 0
    claim_id: str = ""
    key: str = ""
    held: bool = False
    expires_at_ms: int = 0


class ClaimHistory:
    """The claims of one queue, as far as they were read.

    Args:  cap: claims that one fairness key may have in force; 0 sets no bound.
           whole: whether the topic still has its beginning, so that a job's first record is here.
    """

    def __init__(self, queue: str, *, cap: int = 0, whole: bool = True) -> None:
        self.queue = queue
        self.claims = 0
        self._cap = cap
        self._whole = whole
        self._jobs: dict[str, _Job] = {}
        self._over = JobMarks()
        self._in_flight: Counter[str] = Counter()
        self._gates = GateHistory()

    def ended(self, job_id: str) -> bool:
        """Whether a job is over."""
        return self._over.of(job_id) > 0

    def add(self, position: Position, kind: str, value: Mapping[str, Any]) -> Iterator[Violation]:
        """Take the next record; yield what is wrong with it."""
        check = _CHECKS.get(kind)
        if check is None:
            return
        job_id = value["job_event_id"]
        over = self._over.of(job_id)
        if over:
            what = f"{kind} of job {job_id}: the job was {_ENDS[over]} before"
            yield Violation(self.queue, position, what)
            return
        job = self._jobs.get(job_id)
        if job is None:
            job = self._jobs[job_id] = _Job(job_id)
            if not self._whole and kind != "job_claimed":
                # Its claim was removed with the topic's beginning: it is taken at its word.
                job.claim_id, job.held = value.get("claim_id", ""), kind in _NEED_HOLDER
        for what in check(self, job, value):
            yield Violation(self.queue, position, f"{kind} of job {job_id}: {what}")

    def _end(self, job: _Job, how: str) -> None:
        self._free(job)
        self._gates.ended(job.job_id)
        self._over.mark(job.job_id, _ENDS.index(how))
        del self._jobs[job.job_id]

    def _free(self, job: _Job) -> None:
        if job.held and job.key:
            self._in_flight[job.key] -= 1
        job.held = False
        self._gates.free(job.job_id)

    def _on_claimed(self, job: _Job, value: Mapping[str, Any]) -> Iterator[str]:
        self.claims += 1
        if job.held:
            yield f"claim {job.claim_id} is in force until {job.expires_at_ms}"
        if value["fence"] <= job.fence:
            yield f"its fence is {value['fence']}, expected more than {job.fence}"
        self._free(job)
        job.fence, job.claim_id, job.key = value["fence"], value["claim_id"], value["fairness_key"]
        job.held, job.expires_at_ms = True, value["expires_at_ms"]
        self._in_flight[job.key] += 1
        if self._cap and self._in_flight[job.key] > self._cap:
            yield (
                f"fairness key {job.key!r} has {self._in_flight[job.key]} claims, expected at most "
                f"{self._cap}"
            )

    def _on_admitted(self, job: _Job, value: Mapping[str, Any]) -> Iterator[str]:
        yield from self._of_last_claim(job, value)
        if not job.held:
            yield "the claim is not in force"
        yield from self._gates.admitted(job.job_id, value["trigger_id"], value["passed"])

    def _on_renewed(self, job: _Job, value: Mapping[str, Any]) -> Iterator[str]:
        yield from self._of_last_claim(job, value)
        if not job.held:
            self._in_flight[job.key] += 1
        job.held, job.expires_at_ms = True, value["expires_at_ms"]

    def _on_released(self, job: _Job, value: Mapping[str, Any]) -> Iterator[str]:
        yield from self._of_last_claim(job, value)
        self._free(job)

    def _on_expired(self, job: _Job, value: Mapping[str, Any]) -> Iterator[str]:
        yield from self._of_last_claim(job, value)
        if not job.held:
            yield "the claim is not in force"
        elif value["expired_at_ms"] < job.expires_at_ms:
            yield f"it was in force until {job.expires_at_ms}, at {value['expired_at_ms']}"
        self._free(job)

    def _on_acked(self, job: _Job, value: Mapping[str, Any]) -> Iterator[str]:
        if value["skipped_by"] is None:
            yield from self._of_last_claim(job, value)
        self._end(job, "acked")

    def _on_purged(self, job: _Job, _value: Mapping[str, Any]) -> Iterator[str]:
        yield from self._of_free_job(job)
        self._end(job, "purged")

    def _on_dead(self, job: _Job, _value: Mapping[str, Any]) -> Iterator[str]:
        yield from self._of_free_job(job)
        self._end(job, "dead")

    def _of_free_job(self, job: _Job) -> Iterator[str]:
        if job.held:
            yield f"claim {job.claim_id} is in force"

    def _of_last_claim(self, job: _Job, value: Mapping[str, Any]) -> Iterator[str]:
        if value["claim_id"] != job.claim_id:
            yield f"claim {value['claim_id']} is not the job's last one, {job.claim_id or 'none'}"


_Check = Callable[[ClaimHistory, _Job, Mapping[str, Any]], Iterator[str]]

_ENDS = ("", "acked", "purged", "dead")
"""How jobs end; a job's mark says which."""

_NEED_HOLDER = frozenset({"job_admitted", "claim_renewed", "job_released", "claim_expired"})

_CHECKS: Mapping[str, _Check] = {
    "job_claimed": ClaimHistory._on_claimed,  # noqa: SLF001 - the table of its own methods
    "job_admitted": ClaimHistory._on_admitted,  # noqa: SLF001
    "claim_renewed": ClaimHistory._on_renewed,  # noqa: SLF001
    "job_released": ClaimHistory._on_released,  # noqa: SLF001
    "claim_expired": ClaimHistory._on_expired,  # noqa: SLF001
    "job_acked": ClaimHistory._on_acked,  # noqa: SLF001
    "job_purged": ClaimHistory._on_purged,  # noqa: SLF001
    "job_dead": ClaimHistory._on_dead,  # noqa: SLF001
}
