"""What others may write to a topic: bytes, keys, headers and values that nobody reads there."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from streams.codec import Codec
from tests.support.hostile_records import HostileRecords
from topology import TOPOLOGY
from topology.family import family_of
from topology.model import Cleanup, TopicRole

__all__ = ["OURS", "Garbage", "garbage"]

OURS = frozenset({TopicRole.CHANGELOG, TopicRole.JOURNAL, TopicRole.CHECKPOINT})
"""What a stage knows stands there: whoever may write to these is the stage."""

_AUTHORITY = frozenset({"revision_published", "revision_broadcast", "stage_skip", "stage_resume"})
"""Kinds that are obeyed, whoever says them."""

_VALUES = (None, b"", b"junk", b"{", b"[]", b'{"job_id": 1}', b"\xc3\x01", b"\0\0\0\0\1x")
_KEYS = (b"", b"x", b"\xff:\0#", b"k" * 3_000, b"worker-a", b"triage", b"session:s", None)
_CODEC = Codec()


class Garbage(NamedTuple):
    """A record."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]


def garbage(random: Random, topic: str, partition: int) -> Iterator[Garbage]:
    """Yield records for a topic of ours: what is none, another topic's, and hostile ones of its."""
    declared = family_of(TOPOLOGY, topic)
    assert declared is not None, f"{topic} is one of ours"
    schemas = {
        kind: schema for (name, kind), schema in TOPOLOGY.kinds.items() if name == declared.name
    }
    keys = _KEYS[:-1] if declared.cleanup is Cleanup.COMPACT else _KEYS
    kinds = [each.encode() for each in schemas] or [b"x"]
    tick = _CODEC.encode("tick", {"due_ms": 1})

    def record(value: bytes | None, kind: bytes | None) -> Garbage:
        headers: list[tuple[str, str | bytes | None]] = (
            [] if random.random() < 0.2 else [("kind", kind), ("cause", b"x"), ("fold", None)]
        )
        return Garbage(topic, partition, random.choice(keys), value, headers)

    for value in (*_VALUES, tick, tick[:-1], tick + b"x"):
        yield record(value, random.choice((*kinds, None, b"\xff\xfe")))
    hostile = HostileRecords(random, 0.2)
    for kind, schema in schemas.items():
        yield record(tick, kind.encode())
        if kind in _AUTHORITY:
            continue
        value = hostile.value(_CODEC.schemas[schema].shape)
        hostile.note(value)
        encoded = _CODEC.encode(schema, value)
        if len(encoded) < 900_000:
            yield Garbage(topic, partition, random.choice(keys), encoded, [("kind", kind.encode())])
