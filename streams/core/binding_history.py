"""Which version of a trigger was in force at a time, from what the registry said of its versions.

Source: SEMANTICS 1.8 "As-of resolution", vectors 1-08 and 1-09.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from streams.core.wire import LifecycleStateTransition

_OVER = frozenset({"draining", "terminated"})


class Told(NamedTuple):
    """A change of a version's state, and when it was told, ms since epoch."""

    at_ms: int
    transition: LifecycleStateTransition


def version_as_of(told: Iterable[Told], trigger_id: str, at_ms: int, /) -> int | None:
    """Return the version of a trigger that was active at a time; None when none was.

    Args: told: changes in any order; those of one revision are told together, old versions first.
    """
    changes = [each for each in told if each.transition["id"] == trigger_id]
    changes.sort(key=lambda each: (each.at_ms, each.transition["revision"]))
    active: int | None = None
    for when_ms, transition in changes:
        if when_ms > at_ms:
            break
        version = transition["version"]
        if transition["to_state"] == "active":
            active = version
        elif transition["to_state"] in _OVER and version == active:
            active = None
    return active
