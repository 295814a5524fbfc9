"""The worker: runs the jobs of queues that the scheduler grants it."""

from streams.edge.worker.plan import WorkerPlan
from streams.edge.worker.worker import Worker

__all__ = ["Worker", "WorkerPlan"]
