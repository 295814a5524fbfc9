from prometheus_client import CollectorRegistry

from streams.observe.worker_metrics import WorkerMetrics


def test_what_ended_is_told_by_queue_and_outcome_and_what_was_acked_together() -> None:
    registry = CollectorRegistry()
    metrics = WorkerMetrics(registry)
    metrics.finished("mail", "succeeded", 0.25)
    metrics.finished("mail", "succeeded", 0.5)
    metrics.finished("mail", "failed", 4.0)
    metrics.settled("mail", 2, acked=True)
    metrics.settled("mail", 1, acked=False)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"queue": "mail", **labels})

    assert value("harn_worker_jobs_total", outcome="succeeded") == 2
    assert value("harn_worker_jobs_total", outcome="failed") == 1
    assert value("harn_worker_jobs_acked_total") == 2
    assert value("harn_worker_job_seconds_bucket", le="0.1") == 0
    assert value("harn_worker_job_seconds_bucket", le="0.5") == 2
    assert value("harn_worker_job_seconds_bucket", le="+Inf") == 3
    assert value("harn_worker_job_seconds_count") == 3
    assert value("harn_worker_job_seconds_sum") == 4.75
