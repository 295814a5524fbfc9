"""The registry: which binding versions are in force.

Decided by compare-and-set, published as revisions.

| kind | answer |
|---|---|
| `manifest_applied`, another apply came first | `apply_answered` conflict |
| `manifest_applied`, breaks a rule | `apply_answered` invalid |
| `manifest_applied`, nothing changes | `apply_answered` unchanged |
| `manifest_applied` | `revision_published`, and a `state_transition` per binding that changed |
| `trigger_registered`, `trigger_drain_requested` | see `streams.core.registry_dynamic` |
| `binding_ended` by every dispatch partition | `state_transition` to terminated |
| `scheduler_policy_proposed` | see `streams.core.registry_policy` |
| own words coming back | none |

Invariants: revisions grow by one; at most one active version per trigger id; the two newest
versions of an id are remembered, so that version numbers are never given twice.

Source: SEMANTICS 1.8; DESIGN law 3, "Registry".
"""

from __future__ import annotations

from streams.core import bounds, registry_dynamic, registry_policy, revision, scheduler_policy
from streams.core.record import Record, Rejection
from streams.core.registry_dynamic import DYNAMIC
from streams.core.registry_moves import (
    REGISTRY,
    Request,
    answer,
    binding_row_key,
    forget_old,
    move,
    publish,
    registered,
    versioned,
)
from streams.core.state import Answer, Fold, State
from streams.core.webhook import route_problem
from streams.core.wire import (
    BindingDefinition,
    BindingEnded,
    ManifestApplied,
    Policy,
    RowRegisteredBinding,
)

__all__ = ["FOLD", "REGISTRY", "registered"]


def _on_manifest_applied(state: State, record: Record) -> Answer:
    applied: ManifestApplied = record.value
    request = Request(applied["apply_id"], applied["namespace"])
    known = registered(state)
    if applied["expected_revision"] != revision.last_revision(state):
        reason = (
            f"revision {revision.last_revision(state)} is in force, the manifest was compared "
            f"with revision {applied['expected_revision']}: somebody else applied one meanwhile; "
            "look at it and apply again"
        )
        return (answer(state, request, "conflict", reason),)
    problem = _problem(applied, known)
    if problem is not None:
        return (answer(state, request, "invalid", problem),)
    added, drained = _reconcile(applied, known)
    problem = bounds.revision_problem(added, (row["binding"]["binding_key"] for row in drained))
    if problem is not None:
        return (answer(state, request, "invalid", problem),)
    present = revision.policy_in_force(state)
    policy: Policy = applied["policy"] or present
    if policy["scheduler"] is None:
        policy = {**policy, "scheduler": present["scheduler"]}
    changed = bool(added or drained) or policy != present
    # The very first apply publishes even an empty manifest, so that every stage knows a revision.
    if not changed and revision.last_revision(state) > 0:
        return (answer(state, request, "unchanged", "the manifest is in force already"),)
    return publish(state, request, added, drained, source="manifest", policy=policy)


def _problem(applied: ManifestApplied, known: list[RowRegisteredBinding]) -> str | None:
    """Return what makes the manifest unusable as a whole, or None."""
    names = (
        ("apply_id", applied["apply_id"], bounds.ID_CHARS_MAX),
        ("namespace", applied["namespace"], bounds.ID_CHARS_MAX),
    )
    problem = bounds.text_problem(names)
    if problem is None and applied["policy"] is not None:
        problem = bounds.policy_problem(applied["policy"])
        problem = problem or scheduler_policy.problem_of(
            scheduler_policy.in_force(applied["policy"])
        )
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
    dynamic = {
        row["binding"]["trigger_id"]
        for row in known
        if row["source"] == DYNAMIC and row["state"] != "terminated"
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
        if trigger_id in dynamic:
            return f"trigger id {trigger_id!r} is registered by itself: deregister it first"
    active = [row for row in known if row["state"] == "active"]
    beside = [row["binding"] for row in active if row["source"] == DYNAMIC]
    return route_problem(
        [*applied["bindings"], *(b for b in beside if b["namespace"] == applied["namespace"])],
        (row["binding"] for row in active if row["binding"]["namespace"] != applied["namespace"]),
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
        if row["state"] == "active"
        and row["source"] != DYNAMIC
        and row["binding"]["namespace"] == applied["namespace"]
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
        added.append(versioned(binding, applied["namespace"], history.get(trigger_id, [])))
    return added, drained


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
    moved = move(state, row, "terminated", row["revision"])
    forget_old(state, row["binding"]["trigger_id"])
    return (moved,)


def _on_record(state: State, record: Record, /) -> Answer:
    match record.kind:
        case "manifest_applied":
            return _on_manifest_applied(state, record)
        case "binding_ended":
            return _on_binding_ended(state, record)
        case "trigger_registered":
            return registry_dynamic.on_trigger_registered(state, record)
        case "trigger_drain_requested":
            return registry_dynamic.on_trigger_drain_requested(state, record)
        case "scheduler_policy_proposed":
            return registry_policy.on_scheduler_policy_proposed(state, record)
        case "revision_published" | "apply_answered" | "revision_broadcast":
            return ()
        case _:
            return Rejection("REG-001", f"the registry has no use for kind {record.kind!r}")


FOLD = Fold(on_record=_on_record)
