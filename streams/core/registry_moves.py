"""What every change of the registry comes to: a revision, moved rows, and an answer.

Invariants: revisions grow by one; a version number means one definition for as long as any of the
two newest versions of the id is remembered.

Source: SEMANTICS 1.8; DESIGN law 3, "Registry".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from streams.core import revision
from streams.core.record import Output
from streams.core.state import State
from streams.core.wire import (
    ApplyAnswer,
    ApplyAnswered,
    BindingDefinition,
    BindingSource,
    BindingState,
    LifecycleStateTransition,
    Policy,
    RevisionPublished,
    RowRegisteredBinding,
    RowRevision,
)

REGISTRY = "triggers.registry"
LIFECYCLE = "triggers.lifecycle"

VERSIONS_KEPT = 2
"""Newest versions of a trigger id that stay known after they terminated."""


class Request(NamedTuple):
    """Who asked: the id that the answer carries, and the namespace that changes."""

    request_id: str
    namespace: str


def binding_row_key(binding: BindingDefinition, /) -> str:
    """Return the row key of a binding version."""
    return f"b:{binding['binding_key']}"


def registered(state: State, /) -> list[RowRegisteredBinding]:
    """Return every known binding version, by trigger id, then version."""
    rows: list[RowRegisteredBinding] = [row for _, row in state.rows.scan("b:")]
    return sorted(rows, key=lambda row: (row["binding"]["trigger_id"], row["binding"]["version"]))


def answer(state: State, request: Request, said: ApplyAnswer, reason: str, /) -> Output:
    """Answer a request that changes nothing."""
    value: ApplyAnswered = {
        "apply_id": request.request_id,
        "answer": said,
        "revision": revision.last_revision(state),
        "reason": reason,
    }
    return Output(REGISTRY, "apply_answered", request.namespace, value, partition=0)


def versioned(
    binding: BindingDefinition, namespace: str, history: list[RowRegisteredBinding], /
) -> BindingDefinition:
    """Return a binding with the version that had this definition before, else the next number."""
    same = [
        row["binding"]["version"]
        for row in history
        if row["binding"]["fingerprint"] == binding["fingerprint"]
    ]
    newest = max((row["binding"]["version"] for row in history), default=0)
    version = max(same) if same else newest + 1
    return {
        **binding,
        "namespace": namespace,
        "version": version,
        "binding_key": f"{binding['trigger_id']}@v{version}",
    }


def publish(
    state: State,
    request: Request,
    added: list[BindingDefinition],
    drained: list[RowRegisteredBinding],
    *,
    source: BindingSource,
    policy: Policy | None = None,
) -> Iterable[Output]:
    """Put a revision in force: these versions enter it, those drain.

    Args: source: who holds what is added.  policy: to put in force; None keeps the present one.
    """
    number = revision.last_revision(state) + 1
    policy = policy or revision.policy_in_force(state)
    row: RowRevision = {"revision": number, "policy": policy}
    state.rows.put(revision.REVISION_ROW, row)
    published: RevisionPublished = {
        "revision": number,
        "namespace": request.namespace,
        "added": added,
        "drained": sorted(found["binding"]["binding_key"] for found in drained),
        "policy": policy,
        "apply_id": request.request_id,
    }
    outputs = [Output(REGISTRY, "revision_published", request.namespace, published, partition=0)]
    outputs += [move(state, found, "draining", number) for found in drained]
    for binding in added:
        before: RowRegisteredBinding | None = state.rows.get(binding_row_key(binding))
        fresh: RowRegisteredBinding = {
            "binding": binding,
            "state": "registering" if before is None else before["state"],
            "source": source,
            "revision": number,
            "ended": [],
        }
        if before is None:
            outputs.append(_transition(fresh, None, "registering", number))
        outputs.append(move(state, fresh, "active", number))
    for trigger_id in sorted({binding["trigger_id"] for binding in added}):
        forget_old(state, trigger_id)
    return outputs


def move(state: State, row: RowRegisteredBinding, to_state: BindingState, number: int, /) -> Output:
    """Bring a binding version into a state, by a revision."""
    moved: RowRegisteredBinding = {**row, "state": to_state, "revision": number, "ended": []}
    state.rows.put(binding_row_key(row["binding"]), moved)
    return _transition(moved, row["state"], to_state, number)


def _transition(
    row: RowRegisteredBinding, from_state: str | None, to_state: str, number: int
) -> Output:
    binding = row["binding"]
    value: LifecycleStateTransition = {
        "id": binding["trigger_id"],
        "binding_key": binding["binding_key"],
        "version": binding["version"],
        "provider": binding["provider"],
        "kind": binding["kind"],
        "source": row["source"],
        "handler_kind": binding["handler_kind"],
        "definition_fingerprint": binding["fingerprint"],
        "from_state": from_state,
        "to_state": to_state,
        "namespace": binding["namespace"],
        "revision": number,
    }
    return Output(LIFECYCLE, "state_transition", binding["binding_key"], value)


def forget_old(state: State, trigger_id: str, /) -> None:
    """Drop terminated versions except those among the newest two of the id."""
    versions = [row for row in registered(state) if row["binding"]["trigger_id"] == trigger_id]
    for row in versions[:-VERSIONS_KEPT]:
        if row["state"] == "terminated":
            state.rows.delete(binding_row_key(row["binding"]))
