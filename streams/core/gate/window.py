"""Sliding windows: when the last `max` events of a gate key started, packed into one row.

A window is full at `now` when its `max`th last start lies less than `period_ms` back.  Starts are
kept as 6 bytes each, oldest first, never more than `max` of them; they are never unpacked, so that
a start costs the same in a window of ten and in one of ten thousand, but for copying its bytes.

Source: SEMANTICS 3.4, 3.5.
"""

from __future__ import annotations

from typing import Final

from streams.core.flow import Window
from streams.core.gate.slots import GateKey
from streams.core.state import State
from streams.core.wire import RowWindow

_BYTES: Final = 6
_LATEST_MS: Final = (1 << 8 * _BYTES) - 1

Starts = bytes
"""Times in ms since epoch, 6 bytes each, big-endian, oldest first."""

NONE: Final[Starts] = b""
_AS_STARTED: Final = b"="
"""What a row says of planned starts that are those that happened: a throttle's usual case."""


def row_key(key: GateKey, prefix: str = "w", /) -> str:
    """Row key of a gate key's window; `prefix` is what the stage's table calls such rows."""
    gate, binding_key, value = key
    return f"{prefix}:{gate}:{binding_key}:{value}"


def starts_of(state: State, key: GateKey, prefix: str = "w", /) -> tuple[Starts, Starts]:
    """Starts that happened and starts that are planned, oldest first."""
    row: RowWindow | None = state.rows.get(row_key(key, prefix))
    if row is None:
        return NONE, NONE
    starts, planned = row["starts"], row["planned"]
    return starts, starts if planned == _AS_STARTED else planned


def with_start(starts: Starts, at_ms: int, /) -> Starts:
    """Return the starts and one after them; beyond the year 10,889 all times are one."""
    return starts + min(at_ms, _LATEST_MS).to_bytes(_BYTES)


def keep(
    state: State,
    key: GateKey,
    window: Window,
    happened: Starts,
    planned: Starts,
    prefix: str = "w",
    /,
) -> None:
    """Store a window; it is forgotten once its last start lies a period back."""
    kept = window.max * _BYTES
    over_ms = state.now_ms - window.period_ms
    starts, last_ms = _after(over_ms, happened[-kept:]), _last(happened)
    if not planned:
        due = NONE
    elif planned == happened:
        due = _AS_STARTED if starts else NONE
    else:
        due, last_ms = _after(over_ms, planned[-kept:]), max(last_ms, _last(planned))
        if due and due == starts:
            due = _AS_STARTED
    row: RowWindow = {
        "starts": starts,
        "planned": due,
        "expires_at_ms": last_ms + window.period_ms,
    }
    state.rows.put(row_key(key, prefix), row)


def unplan(state: State, key: GateKey, prefix: str = "w", /) -> None:
    """Forget the starts that are planned and have not happened."""
    row: RowWindow | None = state.rows.get(row_key(key, prefix))
    if row is not None and row["planned"] not in (NONE, _AS_STARTED):
        planned = _AS_STARTED if row["starts"] else NONE
        state.rows.put(row_key(key, prefix), {**row, "planned": planned})


def free_at(starts: Starts, window: Window, /) -> int:
    """When the window lets another start in; 0 when it never was full."""
    at = len(starts) - window.max * _BYTES
    return int.from_bytes(starts[at : at + _BYTES]) + window.period_ms if at >= 0 else 0


def nth_free_at(starts: Starts, window: Window, ahead: int, now_ms: int, /) -> int:
    """When the window lets a start in before which `ahead` others start, each as soon as it may."""
    periods, at = divmod(ahead, window.max)
    at += len(starts) // _BYTES - window.max
    first_ms = now_ms
    if at >= 0:
        first_ms = int.from_bytes(starts[at * _BYTES : (at + 1) * _BYTES]) + window.period_ms
    return max(first_ms, now_ms) + periods * window.period_ms


def _last(starts: Starts) -> int:
    return int.from_bytes(starts[-_BYTES:])


def _after(over_ms: int, starts: Starts, /) -> Starts:
    """Drop the starts at or before `over_ms`: they count in no window any more."""
    if int.from_bytes(starts[:_BYTES]) > over_ms:
        return starts
    low, high = 1, len(starts) // _BYTES
    while low < high:
        middle = (low + high) // 2
        if int.from_bytes(starts[middle * _BYTES : (middle + 1) * _BYTES]) > over_ms:
            high = middle
        else:
            low = middle + 1
    return starts[low * _BYTES :]
