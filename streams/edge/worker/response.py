"""What is said of a job once it has its outcome: its response.

Source: SEMANTICS 5.1.
"""

from __future__ import annotations

from streams.core.wire import JobResponse
from streams.edge.worker.held import HeldJob
from streams.edge.worker.run import Answer

__all__ = ["response_of"]


def response_of(
    held: HeldJob, answer: Answer, *, consumer_id: str, handled_at_ms: int, claim_lost: bool
) -> JobResponse:
    """Make the response of a job; `claim_lost` says that the worker does not hold it any more."""
    return {
        "queue": held.queue,
        "job_event_id": held.job_event_id,
        "claim_id": held.claim_id,
        "consumer_id": consumer_id,
        "trigger_id": held.trigger_id,
        "event_id": held.event_id,
        "dispatch_id": held.dispatch_id,
        "handled_at_ms": handled_at_ms,
        "outcome": answer.outcome,
        "result": answer.result,
        "error": answer.error,
        "claim_lost": claim_lost,
        "skipped_by": None,
    }
