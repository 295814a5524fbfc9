"""The time series of labelled metrics, looked up cheaply: the client's own lookup locks and copies.

Source: prometheus_client, `MetricWrapperBase.labels`.
"""

from __future__ import annotations

from typing import TypeVar, cast

from prometheus_client import Counter, Gauge, Histogram

__all__ = ["Children"]

_Metric = TypeVar("_Metric", Counter, Gauge, Histogram)


class Children:
    """Remembers each time series by its metric and labels; both are of bounded sets."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], object] = {}

    def of(self, metric: _Metric, *labels: str) -> _Metric:
        """Return the time series of these labels."""
        key = (metric, *labels)
        child = self._known.get(key)
        if child is None:
            child = self._known[key] = metric.labels(*labels)
        return cast("_Metric", child)
