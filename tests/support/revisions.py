"""Revisions for stage tests: what a broadcaster copies into mailboxes."""

from __future__ import annotations

from collections.abc import Sequence

from streams.core.wire import BindingDefinition, Policy, RevisionPublished
from streams.testing import binding, policy


def versioned(trigger_id: str = "triage", version: int = 1, **options: object) -> BindingDefinition:
    """A binding as the registry publishes it."""
    return binding(trigger_id, version=version, **options)  # type: ignore[arg-type]


def revision(
    number: int,
    *,
    added: Sequence[BindingDefinition] = (),
    drained: Sequence[str] = (),
    in_force: Policy | None = None,
) -> RevisionPublished:
    """A revision, as published."""
    return {
        "revision": number,
        "namespace": "default",
        "added": list(added),
        "drained": list(drained),
        "policy": in_force or policy(),
        "apply_id": f"apply_{number}",
    }
