"""A binding's flow control, as its definition declares it.

Durations are milliseconds; a gate that is not declared is None.  `canonical` keys are those of the
manifest's definition, already normalised by the manifest's reader.

Source: SEMANTICS 3; seed trigger-dispatcher, "Dispatch shape" 4.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from streams.core.spend import Spend, spend_of
from streams.core.wire import BindingDefinition

GATES = ("batch", "debounce", "rate_limit", "throttle", "singleton", "concurrency")
"""Every gate, in the order in which a dispatch passes them."""

CEL_PREFIX = "cel:"
"""A predicate that is a CEL expression; others are functions."""

WAITING_MAX_DEFAULT = 10_000
"""Dispatches that may wait at one gate key; beyond it they go to the DLQ as `gate_full`."""

RETENTION_MS_DEFAULT = 7 * 86_400_000

CIRCUIT_MAX_PARK_MS_DEFAULT = 86_400_000
"""How long a dispatch waits for a destination that fails, before it ends undelivered."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Collect up to `size` events, or what came within `timeout_ms` of the first."""

    size: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Debounce:
    """Only the last event of a burst goes on, `period_ms` after it.

    With `max_wait_ms` no later than that after the burst's first event.
    """

    period_ms: int
    max_wait_ms: int | None


@dataclass(frozen=True, slots=True)
class Window:
    """At most `max` events in any `period_ms`."""

    period_ms: int
    max: int


@dataclass(frozen=True, slots=True)
class Singleton:
    """One dispatch at a time, others are skipped; kept through retries unless told otherwise."""

    release_on_retry: bool


@dataclass(frozen=True, slots=True)
class Concurrency:
    """At most `max` dispatches at a time, others wait; kept through retries or not."""

    max: int
    release_on_retry: bool


@dataclass(frozen=True, slots=True)
class Flow:
    """The predicate, the gates and the timeout of one binding version."""

    batch: Batch | None = None
    debounce: Debounce | None = None
    rate_limit: Window | None = None
    throttle: Window | None = None
    singleton: Singleton | None = None
    concurrency: Concurrency | None = None
    priority: tuple[str, ...] = ()
    waiting_max: int = WAITING_MAX_DEFAULT
    when: str | None = None
    timeout_ms: int | None = None
    function: str | None = None
    """A predicate that is a function; `when` is one that the inbox evaluates."""
    function_timeout_ms: int | None = None
    spend: Spend | None = None
    queue: str | None = None
    """Worker queue that takes the dispatches as jobs, in place of a handler."""
    queue_priority: str = "normal"
    retention_ms: int = RETENTION_MS_DEFAULT
    """How long a value of `dedupe_key` stays claimed."""
    circuit: str = "park"
    circuit_max_park_ms: int = CIRCUIT_MAX_PARK_MS_DEFAULT

    declared: tuple[str, ...] = field(init=False)
    """The gates that are declared, in order."""
    slots: tuple[str, ...] = field(init=False)
    """Those of them whose slot a dispatch holds, in order."""
    direct: bool = field(init=False)
    """Whether nothing stands between a match and its handler but a circuit."""

    def __post_init__(self) -> None:
        """Derive what is asked for at every event."""
        declared = tuple(gate for gate in GATES if getattr(self, gate) is not None)
        slots = tuple(gate for gate in declared if gate in ("singleton", "concurrency"))
        asks = self.function is not None or self.spend is not None
        object.__setattr__(self, "declared", declared)
        object.__setattr__(self, "slots", slots)
        object.__setattr__(self, "direct", not declared and not asks and self.queue is None)

    def rank(self, keys: Mapping[str, str]) -> int:
        """Place of a dispatch among the waiters of its concurrency gate: the lower goes first."""
        if not self.priority:
            return 0
        value = keys.get("priority", "")
        return self.priority.index(value) if value in self.priority else len(self.priority)


NO_FLOW = Flow()


def flow_of(binding: BindingDefinition, /) -> Flow:
    """Read the gates out of a binding's canonical definition."""
    queue = binding["handler"] if binding["handler_kind"] == "worker" else None
    return flow_of_table(json.loads(binding["definition"]), queue)


def flow_of_table(table: dict[str, Any], queue: str | None, /) -> Flow:
    """Read the gates out of a canonical definition; `queue` is that of a trigger that has one."""
    priority = cast("dict[str, Any] | str | None", table.get("priority"))
    when: str | None = table.get("when")
    is_cel = when is not None and when.startswith(CEL_PREFIX)
    return Flow(
        batch=_batch(table.get("batch")),
        debounce=_debounce(table.get("debounce")),
        rate_limit=_window(table.get("rate_limit")),
        throttle=_window(table.get("throttle")),
        singleton=_singleton(table.get("singleton")),
        concurrency=_concurrency(table.get("concurrency")),
        priority=tuple(priority["order"]) if isinstance(priority, dict) else (),
        waiting_max=int(table.get("max_waiting", WAITING_MAX_DEFAULT)),
        when=when if is_cel else None,
        function=None if is_cel else when,
        function_timeout_ms=table.get("when_budget", {}).get("timeout_ms"),
        spend=spend_of(table),
        timeout_ms=table.get("timeout_ms"),
        queue=queue,
        queue_priority=priority if isinstance(priority, str) else "normal",
        retention_ms=table.get("retry", {}).get("retention_days", 7) * 86_400_000,
        circuit=table.get("circuit", "park"),
        circuit_max_park_ms=table.get("circuit_max_park", CIRCUIT_MAX_PARK_MS_DEFAULT),
    )


def _batch(table: dict[str, Any] | None) -> Batch | None:
    return None if table is None else Batch(size=table["size"], timeout_ms=table["timeout_ms"])


def _debounce(table: dict[str, Any] | None) -> Debounce | None:
    if table is None:
        return None
    return Debounce(period_ms=table["period_ms"], max_wait_ms=table.get("max_wait_ms"))


def _window(table: dict[str, Any] | None) -> Window | None:
    return None if table is None else Window(period_ms=table["period_ms"], max=table["max"])


def _singleton(table: dict[str, Any] | None) -> Singleton | None:
    if table is None:
        return None
    return Singleton(release_on_retry=bool(table.get("release_on_retry", False)))


def _concurrency(table: dict[str, Any] | None) -> Concurrency | None:
    if table is None:
        return None
    return Concurrency(
        max=table["max"], release_on_retry=bool(table.get("release_on_retry", False))
    )
