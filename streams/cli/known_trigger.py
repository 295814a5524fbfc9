"""Triggers that an operator names: a misspelt one is refused before anything is sent to it.

An event that is sent to a trigger without a version in force matches nothing, and is not kept for
one that comes later; a cancel request for a version that there is not waits for nothing.

Source: SEMANTICS 2.1, 2.4, 2.5.
"""

from __future__ import annotations

from collections.abc import Sequence

from streams.core.suggestion import listed, suggestion
from streams.core.wire import RowRegisteredBinding
from streams.errors import ConfigError

__all__ = ["in_force", "require_in_force", "require_known", "require_version"]


def in_force(rows: Sequence[RowRegisteredBinding]) -> set[str]:
    """Return the ids of the triggers that take events."""
    return {row["binding"]["trigger_id"] for row in rows if row["state"] == "active"}


def require_in_force(rows: Sequence[RowRegisteredBinding], trigger_id: str, option: str) -> None:
    """Raise ConfigError, which names those that do, unless a trigger takes events.

    Args:    rows: what the registry knows.  option: how the trigger was named, for the message.
    """
    taking = sorted(in_force(rows))
    if trigger_id in taking:
        return
    states = [
        f"{row['binding']['binding_key']} is {row['state']}"
        for row in rows
        if row["binding"]["trigger_id"] == trigger_id
    ]
    if states:
        problem = f"trigger {trigger_id!r} has no version in force ({', '.join(states[-3:])})"
    else:
        problem = f"trigger {trigger_id!r} is unknown{suggestion(trigger_id, taking)}"
    remedy = "apply the manifest that brings it first"
    if taking:
        remedy = f"name one of those in force ({listed(taking)}), or {remedy}"
    raise ConfigError(f"{option}: {problem}", remedy=remedy)


def require_known(rows: Sequence[RowRegisteredBinding], trigger_id: str) -> None:
    """Raise ConfigError, which suggests a trigger, unless this one is or was registered."""
    known = sorted({row["binding"]["trigger_id"] for row in rows})
    if trigger_id not in known:
        raise ConfigError(f"trigger {trigger_id!r} is unknown{suggestion(trigger_id, known)}")


def require_version(rows: Sequence[RowRegisteredBinding], binding_key: str, option: str) -> None:
    """Raise ConfigError, which names those that there are, unless a binding version is known."""
    known = [row["binding"]["binding_key"] for row in rows]
    if binding_key in known:
        return
    trigger_id = binding_key.rpartition("@v")[0]
    versions = [key for key in known if key.rpartition("@v")[0] == trigger_id]
    if versions:
        problem = f"{binding_key} is unknown; there is {listed(versions)}"
    else:
        triggers = sorted({row["binding"]["trigger_id"] for row in rows})
        problem = f"trigger {trigger_id!r} is unknown{suggestion(trigger_id, triggers)}"
    raise ConfigError(
        f"{option}: {problem}", remedy="see with `harn trigger list` which versions there are"
    )
