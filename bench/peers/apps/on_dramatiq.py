"""The measured job on Dramatiq with Redis."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from marks import PAYLOAD, Marks

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_REDIS_URL"]))
_MARKS = Marks.of_environment()


@dramatiq.actor(max_retries=0)
def job(number: int, sleep_ms: int, _payload: str) -> None:
    """Say that it started, and sleep."""
    _MARKS.started(number)
    if sleep_ms:
        time.sleep(sleep_ms / 1_000)


def send(numbers: Iterable[int], sleep_ms: int, sent: Callable[[int], None]) -> None:
    """Enqueue jobs one by one."""
    for number in numbers:
        sent(number)
        job.send(number, sleep_ms, PAYLOAD)
