"""Records about one thing, found in the log and decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from streams.audit.log import LogReader, LogRecord, Place
from streams.codec import Codec
from streams.core.record import Position
from topology import TOPOLOGY
from topology.family import family_of

__all__ = ["Happening", "happening", "happenings"]


class Happening(NamedTuple):
    """One record; `value` is decoded, `at_ms` its time, ms since epoch."""

    at_ms: int
    position: Position
    kind: str
    value: dict[str, Any]


def happenings(
    reader: LogReader,
    codec: Codec,
    places: Iterable[Place],
    wanted: Callable[[LogRecord], bool],
    *,
    since_ms: int | None = None,
) -> Iterator[Happening]:
    """Yield what these partitions hold of `wanted`; what is no record of its topic is passed over.

    Args: wanted: looks at a record before it is decoded.  since_ms: earlier ones are not read.
    """
    asked = list(places)
    for place, span in reader.spans(asked).items() if asked else ():
        start = span.start if since_ms is None else reader.offset_at(place, since_ms)
        for records in reader.read(place, start, span.end):
            for record in records:
                if wanted(record) and (found := happening(codec, place, record)) is not None:
                    yield found


def happening(codec: Codec, place: Place, record: LogRecord) -> Happening | None:
    """Return a record decoded; None when it is none of those that its topic is for."""
    texts = (text for name, text in record.headers if name == "kind" and text is not None)
    kind = next((text.decode(errors="replace") for text in texts), "")
    schema = TOPOLOGY.kinds.get((_declared(place[0]), kind))
    value = None if schema is None else codec.decode_as(schema, record.value)
    if value is None:
        return None
    return Happening(record.timestamp, Position(*place, record.offset), kind, value)


@cache
def _declared(topic: str) -> str:
    """Return the name under which a topic is declared, its family's; empty for a foreign one."""
    found = family_of(TOPOLOGY, topic)
    return "" if found is None else found.name
