"""Keys of a consumer manifest that no worker goes by: refused, so that nobody relies on them.

A worker takes jobs that have been dispatched: what decides whether and how an event is dispatched
belongs to the manifest that enqueues, and what a queue does with a job to the scheduler's policy.

Source: SEMANTICS 1.4, 5.4; DESIGN "A job".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from streams.core.manifest import Manifest
from streams.core.manifest_budget import NAMESPACE_BUDGET

__all__ = ["unused_keys"]

_WHERE_ENQUEUED = "declare it where the job is enqueued"

_OF_A_TRIGGER: Final = {
    "batch": f"a job is run and answered by itself: {_WHERE_ENQUEUED}",
    "retry": "a job that fails comes again when its claim runs out: bound that with "
    "HARN_SCHEDULER_MAX_DELIVERIES and --claim-ttl",
    "circuit": "a destination's circuit parks dispatches, and jobs have had theirs: let the "
    "handler raise, and the job comes again",
    "circuit_max_park": "it bounds the parking of dispatches",
    "budget": f"only dispatches are charged: {_WHERE_ENQUEUED}",
    "dedupe_key": f"events are deduplicated when they come in: {_WHERE_ENQUEUED}",
    "filter": f"events are filtered when they come in: {_WHERE_ENQUEUED}, or use `when`",
}
_OF_WHEN_BUDGET: Final = {"max_cost_micros": "max_cost_usd", "tokens_max": "tokens_max"}
"""As a definition keeps it, and as it is written."""


def unused_keys(manifest: Manifest, /) -> Iterator[str]:
    """Yield what a consumer manifest says in vain: file, trigger, key, reason and remedy."""
    if manifest.scheduler is not None:
        yield (
            f"{manifest.file}: [orchestrator.scheduler]: a worker does not select jobs: set it in "
            "the manifest that is applied, or by HARN_SCHEDULER_* where the scheduler runs"
        )
    if manifest.pump_max_outstanding is not None:
        yield (
            f"{manifest.file}: [orchestrator.pumps]: a worker runs as many handlers as its "
            "--concurrency says: leave it out"
        )
    for binding in manifest.bindings:
        if binding["handler_kind"] != "local":
            continue  # it runs nothing here, and a job of it is answered with an error
        definition: dict[str, Any] = json.loads(binding["definition"])
        for key, reason in _unused(definition):
            yield (
                f"{manifest.file}: trigger {binding['trigger_id']!r}: {key} is not used by a "
                f"worker: {reason}"
            )


def _unused(definition: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, reason in _OF_A_TRIGGER.items():
        if key in definition:
            yield key, reason
    limits: dict[str, Any] = definition.get("when_budget", {})
    for kept, written in _OF_WHEN_BUDGET.items():
        if kept in limits:
            yield f"when_budget.{written}", "only its timeout holds here: leave the rest out"
    if NAMESPACE_BUDGET in definition:
        yield "[orchestrator] budget", _OF_A_TRIGGER["budget"]
