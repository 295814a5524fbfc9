"""The measured job on Celery with Redis, acknowledged when it is done."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from celery import Celery
from marks import PAYLOAD, Marks

app = Celery("on_celery", broker=os.environ["BENCH_REDIS_URL"])
app.conf.update(task_ignore_result=True, task_acks_late=True, broker_connection_retry=False)
_MARKS = Marks.of_environment()


@app.task
def job(number: int, sleep_ms: int, _payload: str) -> None:
    """Say that it started, and sleep."""
    _MARKS.started(number)
    if sleep_ms:
        time.sleep(sleep_ms / 1_000)


def send(numbers: Iterable[int], sleep_ms: int, sent: Callable[[int], None]) -> None:
    """Enqueue jobs one by one."""
    with app.producer_pool.acquire(block=True) as producer:
        for number in numbers:
            sent(number)
            job.apply_async((number, sleep_ms, PAYLOAD), producer=producer)
