"""Intents as they were fetched, read."""

from __future__ import annotations

from typing import Any

from streams.codec import Codec, DecodeError
from streams.core.record import Position
from streams.core.wire import Invoke
from streams.edge.invoker.intake import TOPIC, FetchedIntent
from streams.observe import logs

__all__ = ["IntentReader"]

_LOG = logs.logger(__name__)


class IntentReader:
    """Reads intents."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def read(self, fetched: FetchedIntent) -> Invoke | None:
        """Return the intent; None, and a line in the log, for what is none."""
        try:
            schema, value = self._codec.decode(fetched.value)
        except DecodeError as error:
            reason = str(error)
        else:
            if schema == "invoke":
                intent: Any = value
                return intent
            reason = f"schema {schema!r}, expected 'invoke'"
        position = Position(TOPIC, fetched.partition, fetched.offset)
        _LOG.error("invoker_unusable_intent", extra={"position": str(position), "reason": reason})
        return None
