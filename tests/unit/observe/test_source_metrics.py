from prometheus_client import CollectorRegistry

from streams.observe.source_metrics import SourceMetrics


def test_records_are_counted_by_trigger_and_what_became_of_them() -> None:
    registry = CollectorRegistry()
    metrics = SourceMetrics(registry)
    metrics.took("orders", events=3, rejected=1, passed_over=0)
    metrics.took("orders", events=2, rejected=0, passed_over=7)

    def value(outcome: str) -> float | None:
        labels = {"trigger_id": "orders", "outcome": outcome}
        return registry.get_sample_value("harn_stream_records_total", labels)

    assert (value("event"), value("rejected"), value("passed_over")) == (5, 1, 7)
