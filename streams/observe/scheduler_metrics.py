"""Metrics of worker queues, a function of the summaries that the scheduler publishes.

A summary holds counts since the queue began, whoever owned it then: a series goes on where another
member's ended.  Cardinality is bounded twice: a summary names its largest keys and sums up the rest
as `_other`, and a process tells `QUEUES_MAX` queues apart, the rest together.

Source: seed worker-dispatch, "Metrics"; SEMANTICS 5.5, 6.6.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from streams.core.queue_report import OTHER_KEYS
from streams.core.record import Output
from streams.core.wire import FairnessState, JobsGranted, QueueSummary
from streams.observe.loop_histogram import LoopHistogram
from streams.observe.relay_metrics import OTHER, QueueLabels

__all__ = ["OBSERVED", "QueueSummaries", "SchedulerMetrics"]

OBSERVED = frozenset({("worker.queues", "queue_summary"), ("worker.deliveries", "jobs_granted")})
"""(topic, kind) of the outputs that are counted; stages note them as values."""

_LABELS = ("queue", "fairness_dimension", "fairness_key")
_AGES = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 60.0, 600.0, 3_600.0)

_Labels = tuple[str, ...]


class _Family(NamedTuple):
    """A metric of each fairness key: how it is made, and what it says of one."""

    make: type[CounterMetricFamily | GaugeMetricFamily]
    name: str
    doc: str
    value: Callable[[FairnessState, QueueSummary], float]
    merge: Callable[[float, float], float] = float.__add__


def _oldest_s(state: FairnessState, summary: QueueSummary) -> float:
    oldest_ms = state["oldest_ready_at_ms"]
    return 0.0 if oldest_ms is None else max(0, summary["at_ms"] - oldest_ms) / 1_000


_FAMILIES = (
    _Family(
        CounterMetricFamily,
        "harn_scheduler_selections",
        "Jobs selected.",
        lambda state, _: float(state["selected_total"]),
    ),
    _Family(
        CounterMetricFamily,
        "harn_scheduler_deferrals",
        "Selections in which a key with work was passed over for its cap.",
        lambda state, _: float(state["deferred_total"]),
    ),
    _Family(
        CounterMetricFamily,
        "harn_scheduler_starvation_promotions",
        "Jobs selected for their age.",
        lambda state, _: float(state["starvation_promotions_total"]),
    ),
    _Family(
        GaugeMetricFamily,
        "harn_scheduler_deficit",
        "Credits that a key has.",
        lambda state, _: float(state["deficit"]),
    ),
    _Family(
        GaugeMetricFamily,
        "harn_scheduler_oldest_eligible_age_seconds",
        "Age of the oldest job that waits.",
        _oldest_s,
        max,
    ),
)


class QueueSummaries(Collector):
    """The latest summary of each queue or shard, as metrics; several threads may use it."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._latest: dict[tuple[str, int | None], QueueSummary] = {}
        self._label = QueueLabels()
        if registry is not None:
            registry.register(self)

    def take(self, summary: QueueSummary) -> None:
        """Note a summary; a later one replaces it."""
        self._latest[summary["queue"], summary["shard"]] = summary

    def keep(self, partitions: Iterable[int]) -> None:
        """Forget the queues that live in other partitions: their owners tell of them."""
        owned = frozenset(partitions)
        for place, summary in list(self._latest.items()):
            if summary["partition"] not in owned:
                self._latest.pop(place, None)

    def collect(self) -> Iterator[Metric]:
        """Yield every family, with one series for each label set."""
        summaries = list(self._latest.values())
        for family in _FAMILIES:
            metric = family.make(family.name, family.doc, labels=_LABELS)
            for labels, value in sorted(self._values(family, summaries).items()):
                metric.add_metric(labels, value)
            yield metric
        depth = GaugeMetricFamily(
            "harn_worker_queue_depth", "Jobs that wait or are claimed.", labels=["queue"]
        )
        for queue, count in sorted(self._depths(summaries).items()):
            depth.add_metric([queue], count)
        yield depth

    def _values(
        self, family: _Family, summaries: Iterable[QueueSummary]
    ) -> Mapping[_Labels, float]:
        values: dict[_Labels, float] = {}
        for summary in summaries:
            queue = self._label(summary["queue"])
            dimension = summary["policy"]["fairness_key"].replace("_", "-")
            for name, state in _states(summary):
                # Of a queue that is not told apart its keys are not, either.
                labels = (queue, dimension, OTHER_KEYS if queue == OTHER else name)
                value = family.value(state, summary)
                known = values.get(labels)
                values[labels] = value if known is None else family.merge(known, value)
        return values

    def _depths(self, summaries: Iterable[QueueSummary]) -> Mapping[str, int]:
        depths: defaultdict[str, int] = defaultdict(int)
        for summary in summaries:
            depths[self._label(summary["queue"])] += (
                summary["ready"] + summary["delayed"] + summary["in_flight"]
            )
        return depths


def _states(summary: QueueSummary) -> Iterator[tuple[str, FairnessState]]:
    for state in summary["keys"]:
        yield state["fairness_key"], state
    if summary["other_keys"] is not None:
        yield OTHER_KEYS, summary["other_keys"]


class SchedulerMetrics:
    """Observes what a scheduler member commits."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.summaries = QueueSummaries(registry)
        self._label = QueueLabels()
        self._ages = LoopHistogram(
            "harn_worker_queue_claim_age_seconds",
            "From a job's enqueuing, by its producer's clock, until it was claimed.",
            ["queue"],
            bounds=_AGES,
            registry=registry,
        )

    def committed(self, notes: Iterable[Output]) -> None:
        """Count outputs that the scheduler committed."""
        for _, kind, _, value, *_ in notes:
            if value is None:  # a tombstone says nothing
                continue
            if kind == "queue_summary":
                self.summarized(cast("QueueSummary", value))
            else:
                self.granted(cast("JobsGranted", value))

    def summarized(self, summary: QueueSummary) -> None:
        """A queue's summary was published."""
        self.summaries.take(summary)

    def granted(self, grant: JobsGranted) -> None:
        """Jobs were claimed."""
        queue = grant["queue"].partition("#")[0]
        observe = self._ages.of(self._label(queue)).observe
        at_ms = grant["granted_at_ms"]
        for job in grant["jobs"]:
            observe(max(0, at_ms - job["occurred_at_ms"]) / 1_000)

    def owned(self, partitions: Iterable[int]) -> None:
        """This member owns these partitions now."""
        self.summaries.keep(partitions)
