"""Entry ids of dead letters, and the word by which a replay tells its entry's home how far it is.

Source: SEMANTICS 2.7; DESIGN "An event" (a DLQ entry's id names its home partition).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from streams.core.record import Output
from streams.core.wire import DlqReplayed, EventIngested

DISPATCHES = "trigger.dispatches"

_ENTRY_ID = re.compile(r"dlq_(0|[1-9]\d{0,5})_(.+)", re.DOTALL)


class Home(NamedTuple):
    """The partition of `trigger.dispatches` that keeps an entry, and its dispatch there."""

    partition: int
    dispatch_id: str


def entry_id_of(home_partition: int, dispatch_id: str, /) -> str:
    """Return the id of the entry of a dispatch that fails there."""
    return f"dlq_{home_partition}_{dispatch_id}"


def home_of(entry_id: str, /) -> Home | None:
    """Read an entry's id; None when it is none."""
    found = _ENTRY_ID.fullmatch(entry_id)
    return None if found is None else Home(int(found[1]), found[2])


def entry_problem(
    entry_id: str | None, replay_of_event_id: str | None, partitions: int, /
) -> str | None:
    """Return what is wrong with the entry that an envelope says it replays, or None."""
    if entry_id is None:
        return None
    home = home_of(entry_id)
    if home is None or home.partition >= partitions:
        return f"dlq_entry_id is {entry_id[:64]!r}, expected dlq_<partition>_<dispatch id>"
    if replay_of_event_id is None:
        return "dlq_entry_id is set, expected replay_of_event_id with it"
    return None


def word(value: DlqReplayed, /) -> Output:
    """Make the word for the entry's home partition."""
    home = home_of(value["entry_id"])
    assert home is not None, "the inbox and dispatch refuse other ids"
    return Output(DISPATCHES, "dlq_replayed", value["entry_id"], value, partition=home.partition)


_ERRORS = {"unmatched": "no binding takes it", "skipped": "its filter keeps it out"}


def word_of_inbox(
    envelope: EventIngested, outcome: str, binding_key: str = "", /
) -> tuple[Output, ...]:
    """Tell an entry's home what the inbox makes of its replay, if the envelope is one.

    Args: outcome: `started` when a binding takes it, `skipped` when its filter does not,
          `unmatched` when there is none.
    """
    entry_id = envelope["dlq_entry_id"]
    if entry_id is None:
        return ()
    event = envelope["event"]
    value: DlqReplayed = {
        "entry_id": entry_id,
        "event_id": event["id"],
        "replay_of_event_id": envelope["replay_of_event_id"] or "",
        "outcome": outcome,
        "trigger_id": envelope["trigger_id"] or "",
        "binding_key": binding_key,
        "provider": event["provider"],
        "event_kind": event["kind"],
        "attempts": 0,
        "reason": outcome,
        "error": _ERRORS.get(outcome, ""),
        "error_class": "none",
    }
    return (word(value),)
