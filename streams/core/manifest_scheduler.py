"""What a manifest says of the scheduler of worker queues.

    [orchestrator.scheduler]
    strategy = "drr"                  # or "fifo"
    fairness_key = "tenant"           # "binding", "trigger-id", "tenant-and-binding"
    quantum = 1
    starvation_age = "5m"             # "0s" promotes nobody
    starvation_mode = "job"           # or "key"
    max_concurrent_per_key = 0
    default_weight = 1
    weights = { tenant-a = 3 }
    max_deliveries = 16

What is left out has its default.  Without the table the policy in force stays.

Source: SEMANTICS 6.1; seed worker-dispatch, "Configuring the policy".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from streams.core import scheduler_policy
from streams.core.bounds import DURATION_MS_MAX
from streams.core.manifest_durations import read_timing
from streams.core.manifest_place import Place
from streams.core.manifest_table import Field, read_choice, read_integer, read_table, table_of
from streams.core.wire import SchedulerPolicy

__all__ = ["read_scheduler", "scheduler_of"]

_AGE = read_timing(DURATION_MS_MAX, "366 days")
_FAIRNESS_KEYS = {
    "tenant": "tenant",
    "binding": "binding",
    "trigger-id": "trigger_id",
    "tenant-and-binding": "tenant_and_binding",
}


def read_scheduler(value: object, place: Place) -> dict[str, Any] | None:
    """Take what a manifest says of the scheduler; None without the table."""
    table = table_of(value, place)
    return None if table is None else read_table(table, _FIELDS, place)


def _read_age(value: object, place: Place) -> int:
    return 0 if value in (0, "0s") else _AGE(value, place)


def _read_weights(value: object, place: Place) -> dict[str, int] | None:
    table = table_of(value, place)
    if table is None:
        return None
    weights: dict[str, int] = {}
    read = read_integer(1, scheduler_policy.WEIGHT_MAX)
    for key, given in table.items():
        weight = read(given, place.field(key))
        if isinstance(weight, int):
            weights[key] = weight
    return weights


_FIELDS = (
    Field(name="strategy", read=read_choice("fifo", "drr")),
    Field(name="fairness_key", read=read_choice(*_FAIRNESS_KEYS)),
    Field(name="quantum", read=read_integer(1, scheduler_policy.QUANTUM_MAX)),
    Field(name="starvation_age", read=_read_age),
    Field(name="starvation_mode", read=read_choice("job", "key")),
    Field(name="max_concurrent_per_key", read=read_integer(0, scheduler_policy.PER_KEY_MAX)),
    Field(name="default_weight", read=read_integer(1, scheduler_policy.WEIGHT_MAX)),
    Field(name="weights", read=_read_weights),
    Field(name="max_deliveries", read=read_integer(0, scheduler_policy.DELIVERIES_MAX)),
    Field(name="max_waiting", read=read_integer(1, scheduler_policy.WAITING_MAX)),
)


def scheduler_of(values: Mapping[str, Any] | None, /) -> SchedulerPolicy | None:
    """Return the policy that a read table asks for; what it leaves out has its default."""
    if values is None:
        return None
    given = {name: value for name, value in values.items() if value is not None}
    if "starvation_age" in given:
        given["starvation_age_ms"] = given.pop("starvation_age")
    if "fairness_key" in given:
        given["fairness_key"] = _FAIRNESS_KEYS[given["fairness_key"]]
    return cast("SchedulerPolicy", {**scheduler_policy.DEFAULT, **given})
