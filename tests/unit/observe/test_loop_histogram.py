import random

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from streams.observe.loop_histogram import LoopHistogram

_BOUNDS = (0.001, 0.25, 1.0, 60.0)
_VALUES = (0.0, 0.001, 0.0010001, 0.25, 1.0, 59.9, 60.0, 60.1, 1e9)


def _told(registry: CollectorRegistry) -> list[str]:
    text = generate_latest(registry).decode()
    return sorted(line for line in text.splitlines() if "_created" not in line)


def test_it_tells_what_the_client_library_s_own_tells() -> None:
    chance = random.Random(7)
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    quick = LoopHistogram("t_seconds", "Times.", ["a", "b"], bounds=_BOUNDS, registry=ours)
    stock = Histogram("t_seconds", "Times.", ["a", "b"], buckets=_BOUNDS, registry=theirs)
    for _ in range(300):
        labels = chance.choice("xy"), chance.choice("zw")
        value = chance.choice((*_VALUES, chance.expovariate(1)))
        quick.of(*labels).observe(value)
        stock.labels(*labels).observe(value)
    assert _told(ours) == _told(theirs)


def test_without_labels_it_is_one_series() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    quick = LoopHistogram("t_seconds", "Times.", bounds=_BOUNDS, registry=ours)
    quick.of()  # there from the start, as the client library's is
    stock = Histogram("t_seconds", "Times.", buckets=_BOUNDS, registry=theirs)
    assert _told(ours) == _told(theirs)
    for value in _VALUES:
        quick.of().observe(value)
        stock.observe(value)
    assert _told(ours) == _told(theirs)


def test_a_registry_takes_its_name_once() -> None:
    registry = CollectorRegistry()
    LoopHistogram("t_seconds", "Times.", bounds=_BOUNDS, registry=registry)
    with pytest.raises(ValueError, match="t_seconds"):
        LoopHistogram("t_seconds", "Times.", bounds=_BOUNDS, registry=registry)
