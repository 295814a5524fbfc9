"""The registry: which binding versions are in force.

Decided by compare-and-set, published as revisions.

| kind | answer |
|---|---|
| `manifest_applied`, another apply came first | `apply_answered` conflict |
| `manifest_applied`, breaks a rule | `apply_answered` invalid |
| `manifest_applied`, nothing changes | `apply_answered` unchanged |
| `manifest_applied` | `revision_published`, and a `state_transition` per binding that changed |
| `binding_ended` by every dispatch partition | `state_transition` to terminated |
| own words coming back | none |

Invariants: revisions grow by one; at most one active version per trigger id; the two newest
versions of an id are remembered, so that version numbers are never given twice.

Source: SEMANTICS 1.8; DESIGN law 3, "Registry".
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.core import bounds, revision
from streams.core.record import Output, Record, Rejection
from streams.core.state import Answer, Fold, State
from streams.core.webhook import route_problem
from streams.core.wire import (
    ApplyAnswer,
    ApplyAnswered,
    BindingDefinition,
    BindingEnded,
    BindingState,
    LifecycleStateTransition,
    ManifestApplied,
    RevisionPublished,
    RowRegisteredBinding,
    RowRevision,
)

REGISTRY = "triggers.registry"
LIFECYCLE = "triggers.lifecycle"

VERSIONS_KEPT = 2
"""Newest versions of a trigger id that stay known after they terminated."""


def binding_row_key(binding: BindingDefinition, /) -> str:
    """Return the row key of a binding version."""
    return f"b:{binding['binding_key']}"


def registered(state: State, /) -> list[RowRegisteredBinding]:
    """Return every known binding version, by trigger id, then version."""
    rows: list[RowRegisteredBinding] = [row for _, row in state.rows.scan("b:")]
    return sorted(rows, key=lambda row: (row["binding"]["trigger_id"], row["binding"]["version"]))


def _on_manifest_applied(state: State, record: Record) -> Answer:
    applied: ManifestApplied = record.value
    known = registered(state)
    if applied["expected_revision"] != revision.last_revision(state):
        reason = (
            f"revision {revision.last_revision(state)} is in force, the manifest was compared "
            f"with revision {applied['expected_revision']}: somebody else applied one meanwhile; "
            "look at it and apply again"
        )
        return (_answer(state, applied, "conflict", reason),)
    problem = _problem(applied, known)
    if problem is not None:
        return (_answer(state, applied, "invalid", problem),)
    added, drained = _reconcile(applied, known)
    problem = bounds.revision_problem(added, (row["binding"]["binding_key"] for row in drained))
    if problem is not None:
        return (_answer(state, applied, "invalid", problem),)
    present = revision.policy_in_force(state)
    changed = bool(added or drained) or (applied["policy"] or present) != present
    # The very first apply publishes even an empty manifest, so that every stage knows a revision.
    if not changed and revision.last_revision(state) > 0:
        return (_answer(state, applied, "unchanged", "the manifest is in force already"),)
    return _publish(state, applied, added, drained)


def _answer(state: State, applied: ManifestApplied, answer: ApplyAnswer, reason: str) -> Output:
    value: ApplyAnswered = {
        "apply_id": applied["apply_id"],
        "answer": answer,
        "revision": revision.last_revision(state),
        "reason": reason,
    }
    return Output(REGISTRY, "apply_answered", applied["namespace"], value, partition=0)


def _problem(applied: ManifestApplied, known: list[RowRegisteredBinding]) -> str | None:
    """Return what makes the manifest unusable as a whole, or None."""
    names = (
        ("apply_id", applied["apply_id"], bounds.ID_CHARS_MAX),
        ("namespace", applied["namespace"], bounds.ID_CHARS_MAX),
    )
    problem = bounds.text_problem(names)
    if problem is None and applied["policy"] is not None:
        problem = bounds.policy_problem(applied["policy"])
    if problem is not None:
        return problem
    if len(applied["bindings"]) > bounds.BINDINGS_MAX:
        found = len(applied["bindings"])
        return f"{found} bindings, expected at most {bounds.BINDINGS_MAX} in a manifest"
    owners = {
        row["binding"]["trigger_id"]: row["binding"]["namespace"]
        for row in known
        if row["state"] != "terminated"
    }
    seen: set[str] = set()
    for binding in applied["bindings"]:
        trigger_id = binding["trigger_id"]
        problem = bounds.binding_problem(binding)
        if problem is not None:
            return problem
        if trigger_id in seen:
            return f"trigger id {trigger_id!r} stands twice in the manifest"
        seen.add(trigger_id)
        owner = owners.get(trigger_id, applied["namespace"])
        if owner != applied["namespace"]:
            return f"trigger id {trigger_id!r} belongs to namespace {owner!r}"
    return route_problem(
        applied["bindings"],
        (
            row["binding"]
            for row in known
            if row["state"] == "active" and row["binding"]["namespace"] != applied["namespace"]
        ),
    )


def _reconcile(
    applied: ManifestApplied, known: list[RowRegisteredBinding]
) -> tuple[list[BindingDefinition], list[RowRegisteredBinding]]:
    """Return binding versions to add, in id order, and active rows to drain."""
    history: dict[str, list[RowRegisteredBinding]] = {}
    for row in known:
        history.setdefault(row["binding"]["trigger_id"], []).append(row)
    active = {
        row["binding"]["trigger_id"]: row
        for row in known
        if row["state"] == "active" and row["binding"]["namespace"] == applied["namespace"]
    }
    wanted = {binding["trigger_id"]: binding for binding in applied["bindings"]}
    added: list[BindingDefinition] = []
    drained = [row for trigger_id, row in sorted(active.items()) if trigger_id not in wanted]
    for trigger_id, binding in sorted(wanted.items()):
        current = active.get(trigger_id)
        if current is not None and current["binding"]["fingerprint"] == binding["fingerprint"]:
            continue
        if current is not None:
            drained.append(current)
        version = _version(binding, history.get(trigger_id, []))
        binding_key = f"{trigger_id}@v{version}"
        owned: BindingDefinition = {
            **binding,
            "namespace": applied["namespace"],
            "version": version,
            "binding_key": binding_key,
        }
        added.append(owned)
    return added, drained


def _version(binding: BindingDefinition, history: list[RowRegisteredBinding]) -> int:
    """Return the version that had this definition before, else the next number."""
    same = [
        row["binding"]["version"]
        for row in history
        if row["binding"]["fingerprint"] == binding["fingerprint"]
    ]
    if same:
        return max(same)
    return max((row["binding"]["version"] for row in history), default=0) + 1


def _publish(
    state: State,
    applied: ManifestApplied,
    added: list[BindingDefinition],
    drained: list[RowRegisteredBinding],
) -> Iterable[Output]:
    number = revision.last_revision(state) + 1
    policy = applied["policy"] or revision.policy_in_force(state)
    row: RowRevision = {"revision": number, "policy": policy}
    state.rows.put(revision.REVISION_ROW, row)
    published: RevisionPublished = {
        "revision": number,
        "namespace": applied["namespace"],
        "added": added,
        "drained": sorted(found["binding"]["binding_key"] for found in drained),
        "policy": policy,
        "apply_id": applied["apply_id"],
    }
    outputs = [Output(REGISTRY, "revision_published", applied["namespace"], published, partition=0)]
    outputs += [_move(state, found, "draining", number) for found in drained]
    for binding in added:
        before: RowRegisteredBinding | None = state.rows.get(binding_row_key(binding))
        fresh: RowRegisteredBinding = {
            "binding": binding,
            "state": "registering" if before is None else before["state"],
            "revision": number,
            "ended": [],
        }
        if before is None:
            outputs.append(_transition(fresh, None, "registering", number))
        outputs.append(_move(state, fresh, "active", number))
    for trigger_id in sorted({binding["trigger_id"] for binding in added}):
        _forget_old(state, trigger_id)
    return outputs


def _move(state: State, row: RowRegisteredBinding, to_state: BindingState, number: int) -> Output:
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
        "source": "manifest",
        "handler_kind": binding["handler_kind"],
        "definition_fingerprint": binding["fingerprint"],
        "from_state": from_state,
        "to_state": to_state,
        "namespace": binding["namespace"],
        "revision": number,
    }
    return Output(LIFECYCLE, "state_transition", binding["binding_key"], value)


def _forget_old(state: State, trigger_id: str) -> None:
    """Drop terminated versions except those among the newest two of the id."""
    versions = [row for row in registered(state) if row["binding"]["trigger_id"] == trigger_id]
    for row in versions[:-VERSIONS_KEPT]:
        if row["state"] == "terminated":
            state.rows.delete(binding_row_key(row["binding"]))


def _on_binding_ended(state: State, record: Record) -> Answer:
    word: BindingEnded = record.value
    row: RowRegisteredBinding | None = state.rows.get(f"b:{word['binding_key']}")
    if row is None or row["state"] != "draining" or row["revision"] != word["revision"]:
        return ()  # revived meanwhile, or a repeat: an old drain says nothing about it
    ended = sorted({*row["ended"], word["partition"]})
    if len(ended) < word["partitions"]:
        noted: RowRegisteredBinding = {**row, "ended": ended}
        state.rows.put(binding_row_key(row["binding"]), noted)
        return ()
    moved = _move(state, row, "terminated", row["revision"])
    _forget_old(state, row["binding"]["trigger_id"])
    return (moved,)


def _on_record(state: State, record: Record, /) -> Answer:
    match record.kind:
        case "manifest_applied":
            return _on_manifest_applied(state, record)
        case "binding_ended":
            return _on_binding_ended(state, record)
        case "revision_published" | "apply_answered" | "revision_broadcast":
            return ()
        case _:
            return Rejection("REG-001", f"the registry has no use for kind {record.kind!r}")


FOLD = Fold(on_record=_on_record)
