"""How a trigger's failed attempts are repeated, as its table declares it.

    retry = { max = 5, backoff = "svix" }
    retry = { backoff = "linear", delay = "30s" }
    retry = { backoff = "exponential", base = "1s", cap = "10m" }

Source: SEMANTICS 1.4, 2.4; seed trigger-dispatcher, "Retry policy".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.core.manifest_durations import read_timing
from streams.core.manifest_place import Place
from streams.core.manifest_table import (
    Field,
    read_choice,
    read_integer,
    read_table,
    table_of,
)
from streams.core.retry import ATTEMPTS_DEFAULT, ATTEMPTS_MAX
from streams.core.wire import RetryPolicy

__all__ = ["RETRY_DEFAULT", "read_retry", "retry_policy_of"]

RETENTION_DAYS_DEFAULT = 7
"""Days for which a dedupe key stays claimed."""

RETRY_DEFAULT: Mapping[str, Any] = {
    "max": ATTEMPTS_DEFAULT,
    "backoff": "svix",
    "retention_days": RETENTION_DAYS_DEFAULT,
}
"""A trigger without `retry`: the svix schedule, seven attempts."""

_DELAY_MS_MAX = 86_400_000
_RETENTION_DAYS_MAX = 366

_DELAYS = {"linear": ("delay",), "exponential": ("base", "cap")}
"""The delays that a backoff needs; no other backoff takes them."""


def read_retry(value: object, place: Place) -> dict[str, Any]:
    """Take a retry table; delays are in the result only where they are given, in ms."""
    table = table_of(value, place)
    values = read_table({} if table is None else table, _RETRY, place)
    if table is not None and table.get("backoff", values["backoff"]) != values["backoff"]:
        return values  # it could not be read, so nobody knows which delays belong to it
    needed = _DELAYS.get(values["backoff"], ())
    for name in ("delay", "base", "cap"):
        if name in needed and values[name] is None:
            place.field(name).refuse(f"is missing: backoff {values['backoff']!r} needs it")
        elif name not in needed and values[name] is not None:
            owner = next(backoff for backoff, names in _DELAYS.items() if name in names)
            place.field(name).refuse(f"belongs to backoff {owner!r}, not {values['backoff']!r}")
    base, cap = values["base"], values["cap"]
    if base is not None and cap is not None and base > cap:
        place.field("cap").refuse(f"is {cap} ms, expected at least base, which is {base} ms")
    return {name: each for name, each in values.items() if each is not None}


def retry_policy_of(retry: Mapping[str, Any]) -> RetryPolicy:
    """Return the policy that the dispatch fold follows: what `read_retry` gave, by wire names."""
    return {
        "backoff": retry["backoff"],
        "max_attempts": retry["max"],
        "delay_ms": retry.get("delay") or retry.get("base") or 0,
        "cap_ms": retry.get("cap") or 0,
    }


def _read_attempts(value: object, place: Place) -> int:
    attempts: int = read_integer(0, ATTEMPTS_MAX)(value, place)
    return attempts or ATTEMPTS_DEFAULT


_read_delay = read_timing(_DELAY_MS_MAX, "a day")

_RETRY: tuple[Field, ...] = (
    Field(name="max", read=_read_attempts, default=ATTEMPTS_DEFAULT),
    Field(
        name="backoff",
        read=read_choice("svix", "immediate", "linear", "exponential"),
        default="svix",
    ),
    Field(name="delay", read=_read_delay),
    Field(name="base", read=_read_delay),
    Field(name="cap", read=_read_delay),
    Field(
        name="retention_days",
        read=read_integer(1, _RETENTION_DAYS_MAX),
        default=RETENTION_DAYS_DEFAULT,
    ),
)
