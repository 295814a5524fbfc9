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


def test_what_is_behind_is_told_by_topic_as_long_as_it_is_read_here() -> None:
    registry = CollectorRegistry()
    metrics = SourceMetrics(registry)

    def lag(trigger_id: str, topic: str) -> float | None:
        labels = {"trigger_id": trigger_id, "topic": topic}
        return registry.get_sample_value("harn_stream_source_lag_records", labels)

    metrics.stands("orders", {"eu": 3, "us": 4})
    metrics.stands("refunds", {"eu": 1})
    assert (lag("orders", "eu"), lag("orders", "us"), lag("refunds", "eu")) == (3, 4, 1)
    metrics.stands("orders", {"us": 0})
    assert (lag("orders", "eu"), lag("orders", "us"), lag("refunds", "eu")) == (None, 0, 1)
    metrics.stands("orders", {})
    metrics.stands("orders", {})
    assert (lag("orders", "us"), lag("refunds", "eu")) == (None, 1)
