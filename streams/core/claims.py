"""Deduplication by a trigger's own key: the first gate of a dispatch.

| the value of `dedupe_key` | answer |
|---|---|
| is claimed by an earlier event | skipped: a duplicate |
| is not | claimed for `retention_days`, and on `trigger.inbox.claims` |
| has expired | free again; its key is removed from the topic |

A claim belongs to the trigger, not to one version of it.  It is made when the event comes, whatever
becomes of its dispatch.

Invariant: at most `dedupe_rows_max` claims in a partition; the one that expires first goes first.

Source: SEMANTICS 2.12; DESIGN "Dedupe".
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.core import dedupe_counts, revision
from streams.core.record import Output
from streams.core.state import State
from streams.core.wire import DedupeClaim, RowClaim, RowDispatch

CLAIMS = "trigger.inbox.claims"

KEY = "dedupe"
"""Name among a match's keys of the value of `dedupe_key`."""

_EVICTIONS_MAX = 100


def row_key(trigger_id: str, value: str, /) -> str:
    """Key of a claim's row; the length of the trigger's id tells where it ends."""
    return f"k:{len(trigger_id)}:{trigger_id}:{value}"


def holder(state: State, row: RowDispatch, value: str, /) -> RowClaim | None:
    """Return the claim that makes a dispatch a duplicate, or None."""
    claim: RowClaim | None = state.rows.get(row_key(row["trigger_id"], value))
    return claim if claim is not None and claim["expires_at_ms"] > state.now_ms else None


def claim(state: State, row: RowDispatch, value: str, retention_ms: int, /) -> Iterable[Output]:
    """Claim a value that nobody holds; makes room for it where there is none."""
    key = row_key(row["trigger_id"], value)
    known = state.rows.count("k")
    state.rows.delete(key)  # an expired one
    forgotten = known - state.rows.count("k")
    excess = state.rows.count("k") + 1 - revision.policy_in_force(state)["dedupe_rows_max"]
    outputs: list[Output] = []
    for _ in range(min(excess, _EVICTIONS_MAX)):
        oldest = state.rows.oldest("k")
        assert oldest is not None, "a counted row has a timer"
        outputs += expired(state, oldest, state.rows.get(oldest))
    made: RowClaim = {
        "trigger_id": row["trigger_id"],
        "dedupe_key": value,
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "expires_at_ms": state.now_ms + retention_ms,
    }
    state.rows.put(key, made)
    dedupe_counts.count(state, "k", forgotten=forgotten)
    said: DedupeClaim = {
        "binding_id": row["trigger_id"],
        "dedupe_key": value,
        "event_id": row["event_id"],
        "dispatch_id": row["dispatch_id"],
        "expires_at_ms": made["expires_at_ms"],
    }
    return (*outputs, Output(CLAIMS, "dedupe_claim", _topic_key(made), said))


def refused(state: State, /) -> None:
    """An event was dropped, since an earlier one holds its value."""
    dedupe_counts.count(state, "k", duplicates=1)


def expired(state: State, key: str, row: RowClaim, /) -> Iterable[Output]:
    """Forget a claim, here and on the topic."""
    state.rows.delete(key)
    dedupe_counts.count(state, "k", forgotten=1)
    return (Output(CLAIMS, "dedupe_claim", _topic_key(row), None),)


def _topic_key(row: RowClaim) -> str:
    return f"{row['trigger_id']}:{row['dedupe_key']}"
