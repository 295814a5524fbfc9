"""The policy of the scheduler: what a job's fairness key is, and what a key weighs.

Source: SEMANTICS 6.1, 6.2; DESIGN decisions A4, A6, A8.
"""

from __future__ import annotations

from typing import Final

from streams.core.wire import RowJob, SchedulerPolicy

NO_TENANT: Final = "_no_tenant"
"""The fairness key of jobs whose event belongs to no tenant."""

PROMOTED_AFTER_MS: Final = 900_000
"""Age from which a job of normal priority ranks with those of high.  Source: SEMANTICS 5.3."""

RANKS: Final = {"high": 0, "normal": 1, "low": 2}


def fairness_key(dimension: str, job: RowJob, /) -> str:
    """Return the fairness key of a job."""
    match dimension:
        case "binding":
            return job["binding_key"]
        case "trigger_id":
            return job["trigger_id"]
        case "tenant_and_binding":
            return f"{job['tenant_id'] or NO_TENANT}|{job['binding_key']}"
        case _:
            return job["tenant_id"] or NO_TENANT


def weight_of(policy: SchedulerPolicy, key: str, /) -> int:
    """Return the weight of a fairness key; at least 1."""
    return max(1, policy["weights"].get(key, policy["default_weight"]))
