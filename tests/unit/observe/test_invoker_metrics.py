from prometheus_client import CollectorRegistry

from streams.observe.invoker_metrics import InvokerMetrics


def test_what_runs_is_told_by_trigger_and_what_ended_by_outcome() -> None:
    registry = CollectorRegistry()
    metrics = InvokerMetrics(registry)
    for trigger_id in ("a", "a", "b"):
        metrics.started(trigger_id, 20)
    metrics.finished("a", "success", 0.5)
    metrics.finished("a", "unresolved", None)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("harn_trigger_inflight", trigger_id="a") == 1
    assert value("harn_trigger_inflight", trigger_id="b") == 1
    runtime = {"trigger_id": "a", "status": "success"}
    assert value("harn_trigger_dispatch_runtime_seconds_sum", **runtime) == 0.5
    assert value("harn_invoker_invocations_total", outcome="unresolved") == 1
    waited = "harn_trigger_queue_age_at_dispatch_start_seconds_count"
    assert value(waited, trigger_id="a") == 2
