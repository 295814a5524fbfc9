"""Sliding windows: when the last `max` events of a gate key started, packed into one row.

A window is full at `now` when its `max`th last start lies less than `period_ms` back.  Starts are
kept as 8 bytes each, oldest first, never more than `max` of them.

Source: SEMANTICS 3.4, 3.5.
"""

from __future__ import annotations

import struct

from streams.core.flow import Window
from streams.core.gate.slots import GateKey
from streams.core.state import State
from streams.core.wire import RowWindow

Starts = tuple[int, ...]


def row_key(key: GateKey, /) -> str:
    """Row key of a gate key's window."""
    gate, binding_key, value = key
    return f"w:{gate}:{binding_key}:{value}"


def starts_of(state: State, key: GateKey, /) -> tuple[Starts, Starts]:
    """Starts that happened and starts that are planned, oldest first."""
    row: RowWindow | None = state.rows.get(row_key(key))
    if row is None:
        return (), ()
    return _unpack(row["starts"]), _unpack(row["planned"])


def keep(state: State, key: GateKey, window: Window, happened: Starts, planned: Starts, /) -> None:
    """Store a window; it is forgotten once its last start lies a period back."""
    last = max((*happened[-1:], *planned[-1:]))
    gate, binding_key, value = key
    row: RowWindow = {
        "gate": gate,
        "binding_key": binding_key,
        "key": value,
        "starts": _pack(happened[-window.max :]),
        "planned": _pack(planned[-window.max :]),
        "expires_at_ms": last + window.period_ms,
    }
    state.rows.put(row_key(key), row)


def free_at(starts: Starts, window: Window, /) -> int:
    """When the window lets another start in; 0 when it never was full."""
    return starts[-window.max] + window.period_ms if len(starts) >= window.max else 0


def _pack(starts: Starts) -> bytes:
    return struct.pack(f">{len(starts)}q", *starts)


def _unpack(packed: bytes) -> Starts:
    return struct.unpack(f">{len(packed) // 8}q", packed)
