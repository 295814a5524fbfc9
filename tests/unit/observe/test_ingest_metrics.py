from prometheus_client import CollectorRegistry

from streams.observe.ingest_metrics import IngestMetrics


def test_answers_are_counted_by_status_with_their_events_and_their_time() -> None:
    registry = CollectorRegistry()
    metrics = IngestMetrics(registry)
    metrics.answered(202, 3, 0.004)
    metrics.answered(202, 1, 0.2)
    metrics.answered(503, 0, 0.001)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("harn_ingest_requests_total", status="202") == 2
    assert value("harn_ingest_events_total", status="202") == 4
    assert value("harn_ingest_requests_total", status="503") == 1
    assert value("harn_ingest_events_total", status="503") == 0
    assert value("harn_ingest_request_seconds_count") == 3
    assert value("harn_ingest_request_seconds_bucket", le="0.005") == 2


def test_two_applications_of_one_process_count_apart() -> None:
    first, second = CollectorRegistry(), CollectorRegistry()
    IngestMetrics(first).answered(202, 1, 0.0)
    IngestMetrics(second)

    assert second.get_sample_value("harn_ingest_requests_total", {"status": "202"}) is None


def test_deliveries_are_observed_by_their_provider() -> None:
    registry = CollectorRegistry()
    metrics = IngestMetrics(registry)
    metrics.webhook_taken("github", 0.002, 0.02)
    metrics.webhook_refused("github", "signature_mismatch")

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    prefix = "harn_trigger_webhook_accepted_to"
    assert value(f"{prefix}_normalized_seconds_sum", provider="github") == 0.002
    assert value(f"{prefix}_queue_append_seconds_sum", provider="github") == 0.02
    refused = {"provider": "github", "reason": "signature_mismatch"}
    assert value("harn_ingest_webhooks_refused_total", **refused) == 1
