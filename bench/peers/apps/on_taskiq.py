"""The measured job on Taskiq with Redis streams."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable

from marks import PAYLOAD, Marks
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(os.environ["BENCH_REDIS_URL"])
_MARKS = Marks.of_environment()


@broker.task
async def job(number: int, sleep_ms: int, _payload: str) -> None:
    """Say that it started, and sleep."""
    _MARKS.started(number)
    if sleep_ms:
        await asyncio.sleep(sleep_ms / 1_000)


def send(numbers: Iterable[int], sleep_ms: int, sent: Callable[[int], None]) -> None:
    """Enqueue jobs one by one."""
    asyncio.run(_send(numbers, sleep_ms, sent))


async def _send(numbers: Iterable[int], sleep_ms: int, sent: Callable[[int], None]) -> None:
    await broker.startup()
    for number in numbers:
        sent(number)
        await job.kiq(number, sleep_ms, PAYLOAD)
    await broker.shutdown()
