"""How jobs of worker queues are selected: the policy in force, its bounds, and its default.

It travels in revisions, as every policy that folds read.  A manifest may set it
(`[orchestrator.scheduler]`); the environment of a process that hosts the scheduler proposes it,
once, when it differs from what an environment proposed last.

Source: SEMANTICS 6.1; DESIGN law 3, decisions A4, A6; ADR 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streams.core.bounds import DURATION_MS_MAX
from streams.core.wire import Policy, SchedulerPolicy

QUANTUM_MAX: Final = 1_000_000
WEIGHT_MAX: Final = 1_000_000
WEIGHTS_MAX: Final = 1_000
WEIGHTS_BYTES_MAX: Final = 100_000
"""Keys that may have a weight of their own, and their bytes in all: every summary repeats them."""

KEY_CHARS_MAX: Final = 600
"""Of a fairness key: a tenant and a binding."""

STARVATION_AGE_MS_MAX: Final = DURATION_MS_MAX
PER_KEY_MAX: Final = 1_000_000
DELIVERIES_MAX: Final = 1_000_000
WAITING_MAX: Final = 100_000_000
WORKER_TTL_MS_MIN: Final = 1_000
WORKER_TTL_MS_MAX: Final = 86_400_000

DEFAULT: Final[SchedulerPolicy] = {
    "strategy": "fifo",
    "fairness_key": "tenant",
    "quantum": 1,
    "starvation_age_ms": 300_000,
    "starvation_mode": "job",
    "max_concurrent_per_key": 0,
    "default_weight": 1,
    "weights": {},
    "max_deliveries": 16,
    "max_waiting": 10_000_000,
    "worker_ttl_ms": 15_000,
}
"""In force until somebody says otherwise."""


def in_force(policy: Policy, /) -> SchedulerPolicy:
    """Return what a policy says of the scheduler."""
    return policy["scheduler"] or DEFAULT


def problem_of(policy: SchedulerPolicy, /) -> str | None:
    """Return what makes a policy unusable, or None."""
    ranges = (
        ("quantum", policy["quantum"], 1, QUANTUM_MAX),
        ("starvation_age_ms", policy["starvation_age_ms"], 0, STARVATION_AGE_MS_MAX),
        ("max_concurrent_per_key", policy["max_concurrent_per_key"], 0, PER_KEY_MAX),
        ("default_weight", policy["default_weight"], 1, WEIGHT_MAX),
        ("max_deliveries", policy["max_deliveries"], 0, DELIVERIES_MAX),
        ("max_waiting", policy["max_waiting"], 1, WAITING_MAX),
        ("worker_ttl_ms", policy["worker_ttl_ms"], WORKER_TTL_MS_MIN, WORKER_TTL_MS_MAX),
    )
    for name, number, low, high in ranges:
        if not low <= number <= high:
            return f"scheduler: {name} is {number}, expected {low} to {high}"
    for name in ("strategy", "fairness_key", "starvation_mode"):
        if policy[name] == "unknown":
            return f"scheduler: {name} is none that this release knows"
    return _weights_problem(policy["weights"])


def _weights_problem(weights: Mapping[str, int]) -> str | None:
    if len(weights) > WEIGHTS_MAX:
        return f"scheduler: {len(weights)} weights, expected at most {WEIGHTS_MAX}"
    for key, weight in sorted(weights.items()):
        if not key.strip() or len(key) > KEY_CHARS_MAX:
            found = f"a weight's key has {len(key)} characters"
            return f"scheduler: {found}, expected 1 to {KEY_CHARS_MAX}"
        if not 1 <= weight <= WEIGHT_MAX:
            return f"scheduler: weight of {key!r} is {weight}, expected 1 to {WEIGHT_MAX}"
    size = sum(len(key.encode()) for key in weights)
    if size > WEIGHTS_BYTES_MAX:
        found = f"the keys of all weights have {size} bytes"
        return f"scheduler: {found}, expected at most {WEIGHTS_BYTES_MAX}"
    return None
