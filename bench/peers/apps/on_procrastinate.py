"""The measured job on Procrastinate with PostgreSQL."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable

from marks import PAYLOAD, Marks
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_POSTGRES_URL"]))
_MARKS = Marks.of_environment()


@app.task(queue="jobs", name="job")
async def job(number: int, sleep_ms: int, payload: str) -> None:  # noqa: ARG001 - its weight
    """Say that it started, and sleep."""
    _MARKS.started(number)
    if sleep_ms:
        await asyncio.sleep(sleep_ms / 1_000)


def send(numbers: Iterable[int], sleep_ms: int, sent: Callable[[int], None]) -> None:
    """Enqueue jobs one by one."""
    asyncio.run(_send(numbers, sleep_ms, sent))


async def _send(numbers: Iterable[int], sleep_ms: int, sent: Callable[[int], None]) -> None:
    async with app.open_async():
        for number in numbers:
            sent(number)
            await job.defer_async(number=number, sleep_ms=sleep_ms, payload=PAYLOAD)


async def _apply_schema() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


if __name__ == "__main__":
    asyncio.run(_apply_schema())
