"""The rows of a stage's table as its changelog has them: true from any host, whoever owns them.

Only committed rows are seen, so that they are those of some moment between two transactions of each
partition.

Source: DESIGN "The stage runtime", State.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from streams.audit.log import LogReader
from streams.codec import Codec
from topology.model import Stage

__all__ = ["TableRow", "busy_row", "table_rows"]

_TAIL: Final = 1_000
"""Records of a changelog that are looked at first for a row that is written all the time."""


class TableRow(NamedTuple):
    """A row, decoded, of one partition."""

    partition: int
    key: str
    value: dict[str, Any]


def table_rows(reader: LogReader, codec: Codec, stage: Stage, *prefixes: str) -> Iterator[TableRow]:
    """Yield a stage's rows whose keys start with one of these, by partition and key.

    Cost: the changelog is read whole; one partition's rows of these prefixes are held, encoded.
    """
    starts = tuple(prefix.encode() for prefix in prefixes)
    topic = stage.changelog
    places = [(topic, partition) for partition in range(reader.partitions(topic))]
    for place, span in reader.spans(places).items() if places else ():
        latest: dict[bytes, bytes] = {}
        for records in reader.read(place, *span):
            for record in records:
                if record.key is None or not record.key.startswith(starts):
                    continue
                if record.value is None:
                    latest.pop(record.key, None)
                else:
                    latest[record.key] = record.value
        for key in sorted(latest):
            yield TableRow(place[1], key.decode(), codec.decode(latest[key])[1])


def busy_row(reader: LogReader, codec: Codec, stage: Stage, key: str) -> Iterator[TableRow]:
    """Yield one row of each partition that has it, which nearly every transaction writes.

    Cost: the end of the changelog is read, and more of it only where the row is not there.
    """
    topic, wanted = stage.changelog, key.encode()
    places = [(topic, partition) for partition in range(reader.partitions(topic))]
    for place, span in reader.spans(places).items() if places else ():
        found: bytes | None = None
        first, size = span.end, _TAIL
        while found is None and first > span.start:
            end, first = first, max(span.start, first - size)
            for records in reader.read(place, first, end):
                for record in records:
                    found = record.value if record.key == wanted else found
            size *= 8
        if found is not None:
            yield TableRow(place[1], key, codec.decode(found)[1])
