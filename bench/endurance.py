"""Resident memory over a million events: what is kept of each ends, so it must not grow.

The window of remembered event ids is made small, so that it is full after the first part.
"""

from __future__ import annotations

import dataclasses

import psutil

from bench.lab import Lab
from bench.orders import PARTITIONS, bench_codec
from bench.pipeline import events_per_second
from bench.row import Row, at_most
from bench.serving import serving, wait_until_it_works

_EVENTS = 1_000_000
_PARTS = 10
_DEDUPE_ROWS = 10_000


def measure(lab: Lab) -> list[Row]:
    """One long round: memory after each tenth of the events."""
    codec = bench_codec()
    small = dataclasses.replace(lab.settings, dedupe_max_rows=_DEDUPE_ROWS)
    place_of_it = dataclasses.replace(lab, settings=small)
    megabytes: list[float] = []
    with serving(place_of_it) as place:
        wait_until_it_works(place, codec)
        process = psutil.Process(place.process.pid)
        for _ in range(_PARTS):
            events_per_second(lab, place, codec, _EVENTS // _PARTS)
            megabytes.append(process.memory_info().rss / 1e6)
    first = megabytes[1]  # the first part fills caches and the window
    growth = (max(megabytes[2:]) / first - 1) * 100
    note = f"after {_PARTS} parts of {_EVENTS // _PARTS} events each, {PARTITIONS} partitions"
    return [
        Row("memory_growth_over_1m_events", "%", [growth], at_most(10)),
        Row("resident_over_1m_events", "MB", megabytes, note=note),
    ]
