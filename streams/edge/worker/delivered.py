"""What a worker reads out of a record that was delivered to it.

Source: DESIGN "A job".
"""

from __future__ import annotations

from typing import Any, Final

from streams.codec import Codec, DecodeError
from streams.edge.worker.deliveries import Delivered
from streams.observe import logs

__all__ = ["value_of"]

_LOG = logs.logger(__name__)

_KINDS: Final = frozenset(
    {"jobs_granted", "gates_answered", "nothing_ready", "jobs_waiting", "worker_replaced"}
)


def value_of(codec: Codec, delivered: Delivered, /) -> Any:  # noqa: ANN401 - a record of the codec's
    """Return a record's value; None, and a word in the log, where it is of no use."""
    if delivered.kind not in _KINDS:
        return None
    try:
        schema, value = codec.decode(delivered.value)
    except DecodeError as error:
        reason = str(error)
    else:
        if schema == delivered.kind:
            return value
        reason = f"schema {schema!r}, expected {delivered.kind!r}"
    # Its claims are listed by no heartbeat, and so released.
    extra = {"offset": delivered.offset, "reason": reason}
    _LOG.error("worker_unusable_delivery", extra=extra)
    return None
