"""How jobs of worker queues are selected, as the environment says it.

The variables have the names that users of the scheduler know.  They are a proposal: what is in
force stands in the log, see `streams.core.scheduler_policy`, which has the same bounds.

Source: seed worker-dispatch, "Configuring the policy"; SEMANTICS 6.1; DESIGN decision A6.
"""

from __future__ import annotations

from dataclasses import dataclass

from streams.setting import Kind, choice, integer, setting

__all__ = ["FAIRNESS_KEYS", "STRATEGIES", "SchedulerSettings", "read_weights"]

_WEIGHT_MAX = 1_000_000
_WEIGHTS_MAX = 1_000

STRATEGIES = {
    "fifo": "fifo",
    "drr": "drr",
    "deficit-round-robin": "drr",
    "fair-share": "drr",
}
"""What a strategy may be called."""

FAIRNESS_KEYS = {
    "tenant": "tenant",
    "binding": "binding",
    "trigger-id": "trigger_id",
    "trigger_id": "trigger_id",
    "tenant-and-binding": "tenant_and_binding",
    "tenant_and_binding": "tenant_and_binding",
    "composite": "tenant_and_binding",
}
"""What a fairness key may be called."""


def _named(names: dict[str, str]) -> Kind:
    def parse(text: str) -> str:
        found = names.get(text.lower())
        if found is None:
            raise ValueError(text)
        return found

    return Kind("one of " + ", ".join(names), parse)


def read_weights(text: str) -> dict[str, int]:
    """Read `key:weight,…`; a key may hold colons.  Raises ValueError."""
    weights: dict[str, int] = {}
    for part in text.split(",") if text.strip() else ():
        key, colon, number = part.rpartition(":")
        key, weight = key.strip(), int(number)
        if not (colon and key and 1 <= weight <= _WEIGHT_MAX) or key in weights:
            raise ValueError(part)
        weights[key] = weight
    if len(weights) > _WEIGHTS_MAX:
        raise ValueError(text)
    return weights


def _parse_weights(text: str) -> str:
    return ",".join(f"{key}:{weight}" for key, weight in sorted(read_weights(text).items()))


_WEIGHTS = Kind(
    f"key:weight[,key:weight...], each key once, weights from 1 to {_WEIGHT_MAX}", _parse_weights
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """The part of the settings that proposes how jobs are selected."""

    scheduler_strategy: str = setting(
        "HARN_SCHEDULER_STRATEGY",
        "fifo",
        _named(STRATEGIES),
        "How jobs are selected: by priority and age, or by deficit round robin over keys.",
    )
    scheduler_fairness_key: str = setting(
        "HARN_SCHEDULER_FAIRNESS_KEY",
        "tenant",
        _named(FAIRNESS_KEYS),
        "What of a job is its fairness key.",
    )
    scheduler_quantum: int = setting(
        "HARN_SCHEDULER_QUANTUM",
        1,
        integer(1, 1_000_000),
        "Credits that a key of weight 1 gets each round.",
    )
    scheduler_starvation_age_ms: int = setting(
        "HARN_SCHEDULER_STARVATION_AGE_MS",
        300_000,
        integer(0, 366 * 86_400_000),
        "Age from which a ready job is promoted, ms; 0 promotes none.",
    )
    scheduler_starvation_mode: str = setting(
        "HARN_SCHEDULER_STARVATION_MODE",
        "job",
        choice("job", "key"),
        "Whether the oldest job is promoted, or the key that has waited longest for its turn.",
    )
    scheduler_max_concurrent_per_key: int = setting(
        "HARN_SCHEDULER_MAX_CONCURRENT_PER_KEY",
        0,
        integer(0, 1_000_000),
        "Claims that one fairness key may have at once; 0 sets no bound.",
    )
    scheduler_default_weight: int = setting(
        "HARN_SCHEDULER_DEFAULT_WEIGHT",
        1,
        integer(1, _WEIGHT_MAX),
        "Weight of a key that HARN_SCHEDULER_WEIGHTS does not name.",
    )
    scheduler_weights: str = setting(
        "HARN_SCHEDULER_WEIGHTS",
        "",
        _WEIGHTS,
        "Weights by fairness key.",
    )
    scheduler_max_deliveries: int = setting(
        "HARN_SCHEDULER_MAX_DELIVERIES",
        16,
        integer(0, 1_000_000),
        "How often a job is given to workers before it is dead; 0 sets no bound.",
    )
    scheduler_max_waiting: int = setting(
        "HARN_SCHEDULER_MAX_WAITING",
        10_000_000,
        integer(1, 100_000_000),
        "Jobs that may wait in a queue; what comes beyond is refused, on record.",
    )
    scheduler_worker_ttl_ms: int = setting(
        "HARN_SCHEDULER_WORKER_TTL_MS",
        15_000,
        integer(1_000, 86_400_000),
        "Silence after which a worker is given nothing more, ms.",
    )
