"""How cron triggers stand, by the rows of the partitions that a member has."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry

from streams.core.wire import RowCron
from streams.observe.cron_metrics import TRIGGERS_MAX, CronMetrics
from streams.observe.stage_metrics import StageCollectors, StageMetrics

NOW_MS = 1_700_000_000_000


def timer(trigger_id: str, *, considered_ms: int = NOW_MS, due_ms: int | None = NOW_MS) -> RowCron:
    return {
        "trigger_id": trigger_id,
        "binding_key": f"{trigger_id}@v1",
        "schedule": "* * * * *",
        "timezone": "UTC",
        "missed": "last",
        "considered_ms": considered_ms,
        "due_ms": due_ms,
        "zone_rules": "",
    }


class Seen:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def __call__(self, trigger_id: str) -> tuple[float | None, float | None]:
        """Age of the last tick, and how late the next one is."""
        labels = {"trigger_id": trigger_id}
        return (
            self.registry.get_sample_value("harn_cron_last_tick_age_seconds", labels),
            self.registry.get_sample_value("harn_cron_overdue_seconds", labels),
        )


def test_an_age_counts_from_the_last_tick_and_lateness_from_the_next() -> None:
    seen = Seen()
    metrics = CronMetrics(seen.registry)
    rows = [
        timer("ahead", considered_ms=NOW_MS - 30_000, due_ms=NOW_MS + 30_000),
        timer("late", considered_ms=NOW_MS - 90_000, due_ms=NOW_MS - 1_500),
        timer("never", considered_ms=NOW_MS + 1_000, due_ms=None),
    ]
    metrics.stands(0, rows, NOW_MS)
    assert (seen("ahead"), seen("late"), seen("never")) == ((30, 0), (90, 1.5), (0, 0))


def test_a_trigger_is_told_of_as_long_as_its_timer_is_here() -> None:
    seen = Seen()
    metrics = CronMetrics(seen.registry)
    metrics.stands(0, [timer("a"), timer("b")], NOW_MS)
    metrics.stands(1, [timer("c")], NOW_MS)
    metrics.stands(0, [timer("b")], NOW_MS)
    assert (seen("a"), seen("b"), seen("c")) == ((None, None), (0, 0), (0, 0))
    metrics.gone(0)
    metrics.gone(0)
    assert (seen("b"), seen("c")) == ((None, None), (0, 0))


def test_so_many_triggers_are_told_apart_and_no_more() -> None:
    seen = Seen()
    metrics = CronMetrics(seen.registry)
    metrics.stands(0, [timer("first")], NOW_MS)
    metrics.stands(1, (timer(f"t{number}") for number in range(TRIGGERS_MAX)), NOW_MS)
    told = [seen(f"t{number}") != (None, None) for number in range(TRIGGERS_MAX)]
    assert (sum(told), told[-1]) == (TRIGGERS_MAX - 1, False)
    metrics.gone(0)
    metrics.stands(1, (timer(f"t{number}") for number in range(TRIGGERS_MAX)), NOW_MS)
    assert seen(f"t{TRIGGERS_MAX - 1}") == (0, 0)


class Rows(dict[str, Any]):
    """Rows with due times."""

    def counts(self) -> dict[str, int]:
        return dict(Counter(key.partition(":")[0] for key in self))

    def of_prefix(self, prefix: str) -> Iterator[tuple[str, Any]]:
        return (each for each in sorted(self.items()) if each[0].startswith(f"{prefix}:"))


def test_a_stage_tells_of_its_own_timers_until_the_partition_is_another_s() -> None:
    seen = Seen()
    collectors = StageCollectors(seen.registry)
    inbox, dispatch = (StageMetrics(collectors, name) for name in ("inbox", "dispatch"))
    inbox.owned([0, 1])
    inbox.schedules(1, Rows({"c:nightly": timer("nightly"), "s:x": {}}), NOW_MS)
    # Dispatch has rows of that prefix too, and they are something else.
    dispatch.schedules(1, Rows({"c:1:a:b": {"trigger_id": "not one"}}), NOW_MS)
    assert (seen("nightly"), seen("not one")) == ((0, 0), (None, None))
    inbox.owned([0])
    assert seen("nightly") == (None, None)
