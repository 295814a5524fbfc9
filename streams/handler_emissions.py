"""What one run of a handler emits to channels, kept until its outcome is known.

Nothing is sent while the handler runs: what it emitted travels in its outcome and becomes events in
the transaction that takes the outcome.  So a handler that fails has emitted nothing, and one that
runs twice has emitted once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from streams.core.channel import TENANT_DEFAULT, channel_problem
from streams.core.emission import (
    DEDUPE_KEY_CHARS_MAX,
    DEPTH_MAX,
    EMISSIONS_BYTES_MAX,
    EMISSIONS_MAX,
    depth_of,
)
from streams.core.wire import Emission, InvokePurpose, TriggerEvent

__all__ = ["Emissions", "Scope"]

# One lock for all runs: it is held for a few steps, and only by who emits.
_LOCK = threading.Lock()

Scope = Literal["tenant", "session", "pipeline"]


class Emissions:
    """What was emitted so far; grows, from any thread.

    Args:    tenant_id: of the event, whose channel a bare name means.  depth: emissions in a row
             that led to the event.  refusal: why nothing may be emitted here, or None.
    """

    __slots__ = ("_bytes", "_depth", "_headers", "_kept", "_refusal", "_tenant_id")

    def __init__(
        self, *, tenant_id: str | None = None, depth: int = 0, refusal: str | None = None
    ) -> None:
        self._tenant_id = tenant_id
        self._depth = depth
        self._refusal = refusal
        self._kept: list[Emission] = []
        self._bytes = 0
        self._headers: Mapping[str, str] | None = None

    def __bool__(self) -> bool:
        """Whether anything was emitted."""
        return bool(self._kept)

    @classmethod
    def of(cls, event: TriggerEvent, purpose: InvokePurpose = "handler") -> Emissions:
        """Return the empty emissions of a run that is given this event."""
        refusal = None if purpose == "handler" else "a predicate decides, and emits nothing"
        emissions = cls(tenant_id=event["tenant_id"], refusal=refusal)
        emissions._headers = event["headers"]  # read when something is emitted, which is seldom
        return emissions

    def taken(self) -> tuple[Emission, ...]:
        """Return what was emitted until now."""
        with _LOCK:
            return tuple(self._kept)

    def add(
        self,
        channel: str,
        payload: Any,  # noqa: ANN401 - any JSON value
        *,
        scope: Scope,
        scope_id: str | None,
        dedupe_key: str | None,
    ) -> None:
        """Keep one emission; see `Context.emit`."""
        if self._refusal is not None:
            raise RuntimeError(self._refusal)
        if self._headers is not None:
            self._depth, self._headers = depth_of(dict(self._headers)), None
        if self._depth >= DEPTH_MAX:
            raise RuntimeError(
                f"{self._depth} emissions in a row led to this event, which is the most: "
                "does a trigger feed itself?"
            )
        if scope_id is None and scope == "tenant":
            scope_id = self._tenant_id or TENANT_DEFAULT
        if scope_id is None:
            raise ValueError(f"scope is {scope!r}, which needs a scope_id")
        problem = channel_problem(channel, scope, scope_id)
        if problem is not None:
            raise ValueError(problem)
        if dedupe_key is not None and not _is_key(dedupe_key):
            most = DEDUPE_KEY_CHARS_MAX
            raise ValueError(f"dedupe_key: expected 1 to {most} printable characters")
        text = msgspec.json.encode(payload)
        emission: Emission = {
            "channel": channel,
            "scope": scope,
            "scope_id": scope_id,
            "payload": text.decode(),
            "dedupe_key": dedupe_key,
        }
        with _LOCK:
            if len(self._kept) >= EMISSIONS_MAX:
                raise ValueError(f"{EMISSIONS_MAX} emissions are the most of one run")
            if self._bytes + len(text) > EMISSIONS_BYTES_MAX:
                raise ValueError(f"{EMISSIONS_BYTES_MAX} bytes of payloads are the most of one run")
            self._bytes += len(text)
            self._kept.append(emission)


def _is_key(text: str) -> bool:
    return 0 < len(text) <= DEDUPE_KEY_CHARS_MAX and text.isprintable()
