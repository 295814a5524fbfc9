"""What environments propose: the scheduler's policy, once for each change of what they say.

| `scheduler_policy_proposed` | answer |
|---|---|
| breaks a rule | `apply_answered` invalid |
| the same as an environment proposed last | `apply_answered` unchanged |
| another, which is in force already | `apply_answered` unchanged; it is remembered |
| another | `revision_published` |

So members with the same environment come and go without a word, and a policy that a manifest has
set stays until an environment changes.

Source: SEMANTICS 6.1; DESIGN law 3.
"""

from __future__ import annotations

from streams.core import bounds, revision, scheduler_policy
from streams.core.record import Record, Rejection
from streams.core.registry_moves import Request, answer, publish
from streams.core.state import Answer, State
from streams.core.wire import RowProposal, SchedulerPolicy, SchedulerPolicyProposed

PROPOSAL_ROW = "environment"


def last_proposal(state: State, /) -> SchedulerPolicy:
    """Return what an environment proposed last; the default when none did."""
    row: RowProposal | None = state.rows.get(PROPOSAL_ROW)
    return scheduler_policy.DEFAULT if row is None else row["policy"]


def on_scheduler_policy_proposed(state: State, record: Record, /) -> Answer:
    """Take what an environment proposes."""
    asked: SchedulerPolicyProposed = record.value
    problem = bounds.text_problem([("request_id", asked["request_id"], bounds.ID_CHARS_MAX)])
    if problem is not None:
        return Rejection("REG-002", problem)
    request, proposed = Request(asked["request_id"], ""), asked["policy"]
    problem = scheduler_policy.problem_of(proposed)
    if problem is not None:
        return (answer(state, request, "invalid", problem),)
    if proposed == last_proposal(state):
        return (answer(state, request, "unchanged", "an environment proposed it before"),)
    row: RowProposal = {"policy": proposed}
    state.rows.put(PROPOSAL_ROW, row)
    present = revision.policy_in_force(state)
    if proposed == scheduler_policy.in_force(present):
        return (answer(state, request, "unchanged", "it is in force already"),)
    return publish(
        state, request, [], [], source="manifest", policy={**present, "scheduler": proposed}
    )
