"""What a worker reads out of a record that was delivered to it.

A job is answered on its queue's topic, by its ids.  A grant of which the broker would refuse the
answers is no grant.

Source: DESIGN "A job".
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from streams.codec import Codec, DecodeError
from streams.core import bounds
from streams.core.wire import JobsGranted
from streams.edge.worker.deliveries import Delivered
from streams.observe import logs

__all__ = ["value_of"]

_LOG = logs.logger(__name__)

_KINDS: Final = frozenset(
    {"jobs_granted", "gates_answered", "nothing_ready", "jobs_waiting", "worker_replaced"}
)


def value_of(codec: Codec, delivered: Delivered, queue_keys: Collection[str], /) -> Any:  # noqa: ANN401 - a record of the codec's
    """Return a record's value; None, and a word in the log, where it is of no use.

    Args: queue_keys: those whose jobs the worker asks for.
    """
    if delivered.kind not in _KINDS:
        return None
    try:
        schema, value = codec.decode(delivered.value)
    except DecodeError as error:
        reason = str(error)
    else:
        reason = f"schema {schema!r}, expected {delivered.kind!r}"
        if schema == delivered.kind:
            grant: Any = value
            reason = _problem(grant, queue_keys) if schema == "jobs_granted" else None
            if reason is None:
                return value
    # Its claims are listed by no heartbeat, and so released.
    extra = {"offset": delivered.offset, "reason": reason}
    _LOG.error("worker_unusable_delivery", extra=extra)
    return None


def _problem(granted: JobsGranted, queue_keys: Collection[str]) -> str | None:
    """Return why the jobs of a grant could not be answered, or None."""
    if granted["queue"] not in queue_keys:
        return f"queue {granted['queue'][: bounds.ID_CHARS_MAX]!r} is none that it asks for"
    return bounds.text_problem(
        (name, text, bounds.ID_CHARS_MAX)
        for job in granted["jobs"]
        for name, text in (
            ("job_event_id", job["job_event_id"]),
            ("claim_id", job["claim_id"]),
            ("traceparent", job["traceparent"]),
        )
    )
