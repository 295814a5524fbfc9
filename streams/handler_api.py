"""What a handler sees and what it may raise: the whole interface between our code and the user's.

    def on_issue(event):                      # or: async def on_issue(event, context):
        if event.payload["action"] == "opened":
            return {"labels": ["triage"]}     # any JSON value; it becomes the dispatch's result

A handler runs at least once for each attempt, and exactly one outcome of it counts:
`context.attempt_id` is the key with which it makes its own effects idempotent.

| handler | outcome of the attempt |
|---|---|
| returns | success |
| raises `Terminal` | failed for good: no retry, dead letter |
| raises `Denied`, a `Terminal` | denied: the same, and the dead letter says so |
| raises `Retryable` | failed, and the next attempt waits at least as long as asked |
| raises `Unavailable`, a `Retryable` | the same, and the record says that the other side failed |
| raises anything else | failed, retried by the binding's policy |

`context.cancelled` says when it shall end early, and `context.usage` takes what it has spent.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from streams.cancel_token import Cancelled, CancelToken
from streams.core.wire import Usage
from streams.handler_emissions import Emissions, Scope

__all__ = [
    "CancelToken",
    "Cancelled",
    "Context",
    "Denied",
    "Event",
    "Executor",
    "Handler",
    "Place",
    "Retryable",
    "Spent",
    "Terminal",
    "Unavailable",
]

_LOG = logging.getLogger("harn.handler")

_USAGE_MAX = 2**62
_NOTHING_SAID = {
    **dict.fromkeys(("occurred_at", "dedupe_key", "tenant_id", "raw_body", "signature_reason")),
    "headers": {},
}

# One lock for all runs: it is held for two steps, and only by who spends.
_SPENDING = threading.Lock()


class Terminal(Exception):  # noqa: N818 - it says what happens next, as handlers read
    """Raised by a handler: another attempt would fail in the same way, so make none."""


class Denied(Terminal):
    """Raised by a handler: the other side knows us, and refuses (401, 403).

    Its dead letter has the reason `denied` and the class `auth_failed`: once we may, it is found
    and replayed by them.
    """


class Retryable(Exception):  # noqa: N818 - as Terminal
    """Raised by a handler: it failed now and may succeed later.

    `after_ms` is the least delay before the next attempt; the binding's own delay counts when it is
    longer, and a day is the most.  Without it the handler might as well raise anything.

    Raises ValueError when `after_ms` is negative, TypeError when it is no int.
    """

    # A subclass that does not call __init__ asks for no delay.
    _after_ms = 0

    def __init__(self, *args: object, after_ms: int = 0) -> None:
        super().__init__(*args)
        if not isinstance(after_ms, int) or isinstance(after_ms, bool):
            raise TypeError(f"after_ms is {type(after_ms).__name__}, expected int milliseconds")
        if after_ms < 0:
            raise ValueError(f"after_ms is {after_ms}, expected milliseconds >= 0")
        self._after_ms = after_ms

    @property
    def after_ms(self) -> int:
        """Return the least delay before the next attempt, milliseconds."""
        return self._after_ms


class Unavailable(Retryable):
    """Raised by a handler: the other side failed (500, 503), and nothing is wrong with the event.

    Its class is `provider_5xx`, by which dead letters of an outage are found and replayed.
    """


class Event:
    """A normalized event, read-only.  Built from the fields of a `TriggerEvent` record."""

    def __init__(self, fields: Mapping[str, Any], /) -> None:
        self._fields = fields

    @property
    def id(self) -> str:
        """Return the id, `trigger_evt_<uuid>` unless the sender chose one."""
        return self._fields["id"]

    @property
    def provider(self) -> str:
        """Return who sent it, for example `github`."""
        return self._fields["provider"]

    @property
    def kind(self) -> str:
        """Return the provider's own kind, for example `issues.opened`."""
        return self._fields["kind"]

    @property
    def received_at(self) -> str:
        """Return when it was accepted: RFC 3339, UTC."""
        return self._fields["received_at"]

    @property
    def occurred_at(self) -> str | None:
        """Return when it happened by the provider's word: RFC 3339."""
        return self._fields["occurred_at"]

    @property
    def dedupe_key(self) -> str | None:
        """Return the provider's delivery id or the sender's idempotency key."""
        return self._fields["dedupe_key"]

    @property
    def trace_id(self) -> str:
        """Return the id that joins what belongs to one trace."""
        return self._fields["trace_id"]

    @property
    def tenant_id(self) -> str | None:
        """Return the tenant that it belongs to."""
        return self._fields["tenant_id"]

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the delivery's headers, lower case, secrets redacted."""
        return MappingProxyType(self._fields["headers"])

    @cached_property
    def payload(self) -> Any:  # noqa: ANN401 - whatever JSON the provider sends
        """Return the provider's payload, parsed on first use.  It is the handler's own copy."""
        return msgspec.json.decode(self._fields["provider_payload"])

    @property
    def raw_body(self) -> bytes | None:
        """Return the body exactly as received, when it was not the JSON of `payload`."""
        return self._fields["raw_body"]

    @property
    def signature_state(self) -> str:
        """Return `unsigned`, `verified` or `failed`."""
        return self._fields["signature_state"]

    @property
    def signature_reason(self) -> str | None:
        """Return why a signature failed."""
        return self._fields["signature_reason"]

    @cached_property
    def batch(self) -> tuple[Event, ...] | None:
        """Return all events that a `batch` gate has put together, this one among them.

        They are in the order in which they came, without their raw bodies.  None where the trigger
        has no such gate.
        """
        texts: Sequence[str] | None = self._fields.get("batch")
        return None if texts is None else tuple(_member(text) for text in texts)

    def __repr__(self) -> str:
        return f"Event(id={self.id!r}, provider={self.provider!r}, kind={self.kind!r})"


def _member(text: str) -> Event:
    """Return an event of a batch from its JSON, which leaves out what says nothing."""
    found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    payload = bytes(found.pop("provider_payload")).decode()
    said = {name: msgspec.json.decode(each) for name, each in found.items()}
    return Event({**_NOTHING_SAID, **said, "provider_payload": payload})


class Spent:
    """What one run of a handler has spent by its own word; grows, from any thread."""

    __slots__ = ("cost_usd_micros", "tokens")

    def __init__(self) -> None:
        self.cost_usd_micros = 0
        self.tokens = 0

    def __bool__(self) -> bool:
        """Whether anything was spent."""
        return self.cost_usd_micros > 0 or self.tokens > 0

    def usage(self) -> Usage:
        """Return it as a record holds it."""
        return {"cost_usd_micros": self.cost_usd_micros, "tokens": self.tokens}

    def add(self, cost_usd_micros: int, tokens: int) -> None:
        """Add to both; a sum that a record cannot hold stays at the largest that it can."""
        with _SPENDING:
            self.cost_usd_micros = min(self.cost_usd_micros + cost_usd_micros, _USAGE_MAX)
            self.tokens = min(self.tokens + tokens, _USAGE_MAX)


@dataclass(frozen=True, kw_only=True)
class Context:
    """Around the event: which attempt of which dispatch this is."""

    attempt: int
    """Number of the attempt, from 1."""
    attempt_id: str
    """`<dispatch id>.<attempt>`: the handler's idempotency key, the same when it is run again."""
    dispatch_id: str
    """One delivery of one event to one binding."""
    trigger_id: str
    """The trigger as the manifest names it."""
    binding_key: str
    """`<trigger id>@v<version>`: the version of the trigger that the dispatch runs under."""
    event_id: str
    """The event's id, for logs."""
    replay_of_event_id: str | None = None
    """Id of the original event when this one replays it."""
    cancelled: CancelToken = field(default_factory=CancelToken, compare=False, repr=False)
    """Flips when the handler shall end: somebody cancelled it, its time is up, or the process
    stops."""
    spent: Spent = field(default_factory=Spent, compare=False, repr=False)
    """What `usage` was told."""
    emissions: Emissions = field(default_factory=Emissions, compare=False, repr=False)
    """What `emit` was told."""

    def emit(
        self,
        channel: str,
        payload: Any = None,  # noqa: ANN401 - any JSON value
        *,
        scope: Scope = "tenant",
        scope_id: str | None = None,
        dedupe_key: str | None = None,
    ) -> None:
        """Emit a payload to a channel: triggers of kind `channel.emit` take it as an event.

        It is sent if and when this attempt succeeds, in the same transaction, and once however
        often the attempt is run.

        Args:    scope_id: whose channel it is; by default the event's tenant, or `default`.
                 dedupe_key: repeats with the same key to the same channel are taken once.
        Raises:  ValueError or TypeError when a bound or a form is broken; RuntimeError where
                 nothing may be emitted: in a predicate, or after 32 emissions in a row.
        """
        self.emissions.add(channel, payload, scope=scope, scope_id=scope_id, dedupe_key=dedupe_key)

    def usage(self, *, cost_usd: float = 0, tokens: int = 0) -> None:
        """Report what was spent: it counts against the binding's budgets.  Calls add up.

        Args:    cost_usd: US dollars, rounded up to millionths.  tokens: of language models.
        Raises:  TypeError or ValueError when one is no number that can be spent.
        """
        for name, number, kinds in (("cost_usd", cost_usd, (int, float)), ("tokens", tokens, int)):
            if not isinstance(number, kinds) or isinstance(number, bool):
                raise TypeError(f"{name} is {type(number).__name__}, expected a number")
            if not 0 <= number < math.inf:
                raise ValueError(f"{name} is {number}, expected a number >= 0")
        # A sum of floats may lie a hair above the number that was meant: that hair is no millionth.
        self.spent.add(math.ceil(round(cost_usd * 1_000_000, 6)), tokens)

    @property
    def is_replay(self) -> bool:
        """Whether the event replays an earlier one."""
        return self.replay_of_event_id is not None

    @cached_property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """Return a logger whose lines carry the ids above."""
        ids = ("trigger_id", "event_id", "dispatch_id", "attempt")
        return logging.LoggerAdapter(_LOG, {name: getattr(self, name) for name in ids})


Executor = Literal["async", "thread", "process"]
"""Where a handler runs: on the event loop, on a thread, in a process of its own."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where another process finds a handler: an installed module, or a file, and a name in it."""

    base_dir: str
    """Folder of the manifest: what its files import each other from."""
    module: str
    """A dotted module, or the path of a Python file."""
    function: str
    """Its name in the module."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A resolved handler: what a manifest's reference names."""

    function: Callable[..., Any]
    """The user's function."""
    is_async: bool
    """Whether calling it returns an awaitable."""
    takes_context: bool = False
    """Whether it wants the context beside the event."""
    executor: Executor | None = None
    """Where the binding wants it to run; None leaves it to what the function is."""
    place: Place | None = None
    """Where another process finds it; None when it was given as a function."""

    @property
    def runs_in(self) -> Executor:
        """Return where it runs."""
        return self.executor or ("async" if self.is_async else "thread")

    def __call__(self, event: Event, context: Context) -> Any:  # noqa: ANN401 - the user's value
        """Call it: an awaitable when `is_async`, else the result.  Raises what it raises."""
        return self.function(event, context) if self.takes_context else self.function(event)
