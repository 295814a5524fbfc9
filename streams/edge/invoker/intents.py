"""Intents as they were fetched, read.

Whatever is told of an invocation goes by what its intent says: to its home partition, under its
ids.  What could not be told of is no intent: the broker would refuse the outcome, for ever.
"""

from __future__ import annotations

from typing import Any

from streams.codec import Codec, DecodeError
from streams.core import bounds
from streams.core.record import Position
from streams.core.wire import Invoke
from streams.edge.invoker.intake import TOPIC, FetchedIntent
from streams.observe import logs

__all__ = ["IntentReader"]

_LOG = logs.logger(__name__)


class IntentReader:
    """Reads intents; `partitions` is how many the mailbox has that outcomes go to."""

    def __init__(self, codec: Codec, partitions: int) -> None:
        self._codec = codec
        self._partitions = partitions

    def read(self, fetched: FetchedIntent) -> Invoke | None:
        """Return the intent; None, and a line in the log, for what is none."""
        try:
            schema, value = self._codec.decode(fetched.value)
        except DecodeError as error:
            reason = str(error)
        else:
            intent: Any = value
            reason = f"schema {schema!r}, expected 'invoke'"
            if schema == "invoke":
                reason = self._problem(intent)
                if reason is None:
                    return intent
        position = Position(TOPIC, fetched.partition, fetched.offset)
        _LOG.error("invoker_unusable_intent", extra={"position": str(position), "reason": reason})
        return None

    def _problem(self, intent: Invoke) -> str | None:
        """Return why nobody could be told what an invocation came to, or None."""
        home, timeout_ms = intent["home_partition"], intent["timeout_ms"]
        if not 0 <= home < self._partitions:
            return f"home_partition is {home}, expected 0 to {self._partitions - 1}"
        if timeout_ms is not None and timeout_ms <= 0:
            return f"timeout_ms is {timeout_ms}, expected at least 1"
        return bounds.text_problem(
            (
                ("dispatch_id", intent["dispatch_id"], bounds.ID_CHARS_MAX),
                ("trigger_id", intent["trigger_id"], bounds.ID_CHARS_MAX),
            )
        )
