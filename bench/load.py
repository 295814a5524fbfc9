"""Orders at a steady rate, from a thread of their own, for as long as a block lasts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

from bench.orders import CUSTOMERS, PARTITIONS, order_of
from streams.codec import Codec
from streams.kafka import make_producer
from streams.settings import Settings

_HEADERS: list[tuple[str, str | bytes | None]] = [("kind", b"order")]


class Pace:
    """Evenly spaced moments; a late one is not made up for by a burst, the rest stays on time."""

    def __init__(self, per_second: float) -> None:
        self._interval_s = 1 / per_second
        self._next_s = time.monotonic()

    @property
    def wait_s(self) -> float:
        """How long until the next moment, which is then taken."""
        now_s = time.monotonic()
        self._next_s = max(self._next_s + self._interval_s, now_s - self._interval_s)
        return max(0.0, self._next_s - now_s)


@contextmanager
def steady_load(
    settings: Settings, mailbox: str, codec: Codec, per_second: float
) -> Iterator[None]:
    """Append orders to every partition in turn while the block runs."""
    stop = threading.Event()

    def append() -> None:
        producer = make_producer(settings, linger_ms=0)
        encode, pace = codec.encoder("bench_order"), Pace(per_second)
        for number, partition in enumerate(cycle(range(PARTITIONS))):
            if stop.wait(pace.wait_s):
                break
            customer = f"customer-{number % CUSTOMERS:06d}"
            value = encode(order_of(f"order-{number:012d}", customer, number))
            producer.produce(mailbox, value, customer.encode(), partition, headers=_HEADERS)
            producer.poll(0)
        producer.flush(10)

    thread = threading.Thread(target=append, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
