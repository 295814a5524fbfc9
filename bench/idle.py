"""What all roles together cost while nothing happens, besides the broker."""

from __future__ import annotations

import time

import psutil

from bench.lab import Lab
from bench.orders import bench_codec
from bench.row import Row, at_most
from bench.serving import serving, wait_until_it_works

_SETTLE_S = 5.0
_IDLE_S = 20.0


def measure(lab: Lab) -> list[Row]:
    """Processor time over stretches of silence, and resident memory after each."""
    percent: list[float] = []
    megabytes: list[float] = []
    with serving(lab) as place:
        wait_until_it_works(place, bench_codec())
        process = psutil.Process(place.process.pid)
        time.sleep(_SETTLE_S)
        for _ in range(lab.rounds):
            before, began_s = process.cpu_times(), time.monotonic()
            time.sleep(_IDLE_S)
            after, seconds = process.cpu_times(), time.monotonic() - began_s
            used_s = after.user + after.system - before.user - before.system
            percent.append(used_s / seconds * 100)
            megabytes.append(process.memory_info().rss / 1e6)
    return [
        Row("idle_all_roles_cpu", "% of core", percent, at_most(5)),
        Row("idle_all_roles_resident", "MB", megabytes, at_most(400)),
    ]
