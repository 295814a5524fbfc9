"""The record of a gate's decision, on the gate's topic of the binding.

Source: SEMANTICS 3; DESIGN "Topics": one topic per binding that declares the gate.
"""

from __future__ import annotations

import re
from functools import lru_cache

from streams.core.gate.slots import GateKey
from streams.core.record import Output
from streams.core.wire import GateDecision, RowDispatch

_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")


@lru_cache(maxsize=1_024)
def topic_of(gate: str, trigger_id: str, /) -> str:
    """The topic of a gate's decisions for a trigger."""
    return f"trigger.{gate}.{_ILLEGAL.sub('_', trigger_id)}"


def decision(
    row: RowDispatch,
    key: GateKey,
    kind: str,
    *,
    size: int | None = None,
    count: int | None = None,
    max_: int | None = None,
    delay_ms: int | None = None,
) -> Output:
    """A decision about a dispatch; `kind` as SEMANTICS spells it, for example `throttle_wait`."""
    gate, binding_key, value = key
    record: GateDecision = {
        "gate": f"{binding_key}:{value}",
        "dispatch_id": row["dispatch_id"],
        "event_id": row["event_id"],
        "token": row["arrival"],
        "size": size,
        "count": count,
        "max": max_,
        "delay_ms": delay_ms,
    }
    # Of all its fields at once: a constructor's arguments take twice as long.
    return Output._make((topic_of(gate, row["trigger_id"]), kind, value, record, 0, ()))
