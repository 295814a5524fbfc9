"""Configuration is data: how a stage partition takes a broadcast revision.

| revision seen | answer |
|---|---|
| last + 1 | fold it |
| at or below the last | a repeat by a new broadcaster: nothing happens |
| above last + 1 | `RevisionGap`: the stage would work under a configuration that it has not seen |
| the first one seen, by a stage that reads its policy only | fold it: the mailbox may be younger |

A policy stands in each revision as a whole; bindings are told as changes, so that who needs those
has to begin at revision 1.

Source: DESIGN law 3.
"""

from __future__ import annotations

from streams.core.state import State
from streams.core.wire import Policy, RevisionPublished, RowRevision

REVISION_ROW = "revision"

POLICY_DEFAULT: Policy = {
    "event_id_window_ms": 86_400_000,
    "dedupe_rows_max": 1_000_000,
    "lease_ms": 24_000,
    "cancel_ttl_ms": 86_400_000,
    "dlq_ttl_ms": 691_200_000,
    "action_graph": True,
    "pump_max_outstanding": 320,
    "scheduler": None,
}
"""In force until the first revision says otherwise."""


class RevisionGap(Exception):  # noqa: N818 - a bug's name, not an error for users
    """A revision is missing between the last one folded and this one."""


def last_revision(state: State, /) -> int:
    """Return the last revision that this partition has folded; 0 before the first."""
    row: RowRevision | None = state.rows.get(REVISION_ROW)
    return 0 if row is None else row["revision"]


def policy_in_force(state: State, /) -> Policy:
    """Return the policy of the last revision."""
    row: RowRevision | None = state.rows.get(REVISION_ROW)
    return POLICY_DEFAULT if row is None else row["policy"]


def advances(state: State, revision: RevisionPublished, /, *, policy_only: bool = False) -> bool:
    """Whether the revision is the next one; if so it is remembered.

    Args:   policy_only: the stage reads nothing of a revision but its policy.
    Raises: RevisionGap when one is missing.
    """
    last = last_revision(state)
    if revision["revision"] <= last:
        return False
    begins = policy_only and last == 0
    if revision["revision"] != last + 1 and not begins:
        message = f"revision {revision['revision']} follows {last}: {last + 1} is missing"
        raise RevisionGap(message)
    row: RowRevision = {"revision": revision["revision"], "policy": revision["policy"]}
    state.rows.put(REVISION_ROW, row)
    return True
