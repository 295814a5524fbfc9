"""Checkpoints: a partition's full rows as records, so that an audit can begin after a lost head.

A checkpoint is one or more `checkpoint_part` records.  Each part repeats the position that the rows
belong to, so that a part says by itself where it fits; the rows are in key order over all parts.
Whoever writes one may die midway: an incomplete checkpoint means nothing and is passed over.

The writer is not believed: a checkpoint holds when its rows hash to the state hash that the
journal recorded for the same transaction.

Source: DESIGN "Topics" (audit.checkpoints), "Proof".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from streams.audit.divergence import Divergence, DivergenceKind
from streams.audit.log import LogReader, LogRecord, Place, Span
from streams.codec import Codec, DecodeError
from streams.core.record import Position
from streams.engine import StatePosition, row_hash

__all__ = ["PART_BYTES_MAX", "Checkpoint", "encode_checkpoint", "load_rows", "read_checkpoints"]

PART_BYTES_MAX = 700_000
"""Rows in one part, bytes; a larger row has a part of its own."""

_ROW_OVERHEAD_BYTES = 10  # two lengths, as Avro writes them

_MODULUS = 1 << 256
_DRAFTS_MAX = 4

Row = tuple[bytes, bytes]


def encode_checkpoint(
    codec: Codec, stage: str, partition: int, position: StatePosition, rows: Iterable[Row]
) -> Iterator[bytes]:
    """Yield the values of the `checkpoint_part` records of one partition, in order.

    Args:    stage: name of the stage.  position: where the rows stand.
             rows: all rows, in any order, without the reserved position row.
    Returns: at least one part, also for no rows; each is encoded when it is asked for.
    Cost:    O(rows log rows) time; holds a list of the rows, and one part.
    """
    chunks = _chunks(sorted(rows))
    encode = codec.encoder("checkpoint_part")
    for part, chunk in enumerate(chunks):
        yield encode(
            {
                **position.as_row(),
                "stage": stage,
                "partition": partition,
                "part": part,
                "parts": len(chunks),
                "rows": [{"key": key, "value": value} for key, value in chunk],
            }
        )


def _chunks(rows: list[Row]) -> list[list[Row]]:
    """Cut rows into runs that fit a part."""
    chunks: list[list[Row]] = [[]]
    size = 0
    for row in rows:
        row_bytes = len(row[0]) + len(row[1]) + _ROW_OVERHEAD_BYTES
        if chunks[-1] and size + row_bytes > PART_BYTES_MAX:
            chunks.append([])
            size = 0
        chunks[-1].append(row)
        size += row_bytes
    return chunks


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: where its parts lie, what it claims, and what is wrong with it.

    `position` is the claimed one; `problem` is None when the rows hash to the claimed state hash.
    """

    place: Place
    offsets: tuple[int, ...]
    position: StatePosition
    rows: int
    problem: str | None

    @property
    def at(self) -> Position:
        """Position of the first part."""
        return Position(*self.place, self.offsets[0])


@dataclass(slots=True)
class _Draft:
    """A checkpoint of which parts are still missing; its rows are hashed, not kept."""

    position: StatePosition
    parts: int
    offsets: list[int] = field(default_factory=list[int])
    total: int = 0
    rows: int = 0
    last_key: bytes | None = None
    ordered: bool = True

    def take(self, offset: int, rows: list[dict[str, bytes]]) -> None:
        self.offsets.append(offset)
        for row in rows:
            key = row["key"]
            self.ordered = self.ordered and (self.last_key is None or self.last_key < key)
            self.last_key = key
            self.total += row_hash(key, row["value"])
        self.rows += len(rows)

    def done(self, place: Place) -> Checkpoint:
        problem = None
        if not self.ordered:
            problem = "rows that are not in key order"
        elif (self.total % _MODULUS).to_bytes(32) != self.position.state_hash:
            problem = f"{self.rows} rows with another hash"
        return Checkpoint(place, tuple(self.offsets), self.position, self.rows, problem)


def read_checkpoints(
    reader: LogReader, codec: Codec, place: Place, span: Span, key: bytes
) -> Iterator[Checkpoint]:
    """Yield the complete checkpoints of one stage partition, in log order.

    Args:   place: checkpoint partition.  span: what to read of it.
            key: `<stage>/<partition>`, the key of its parts.
    Raises: Divergence for a part that cannot be read.
    Cost:   hashes every row; holds one part.
    """
    drafts: dict[StatePosition, _Draft] = {}
    for records in reader.read(place, *span):
        for record in records:
            if record.key != key:
                continue
            part = _part(codec, place, record)
            position = StatePosition.from_row(part)
            if part["part"] == 0:
                drafts[position] = _Draft(position, part["parts"])
                _forget_oldest(drafts)
            draft = drafts.get(position)
            if draft is None or len(draft.offsets) != part["part"]:
                continue  # its beginning is gone
            draft.take(record.offset, part["rows"])
            if len(draft.offsets) == draft.parts:
                yield draft.done(place)
                del drafts[position]


def _forget_oldest(drafts: dict[StatePosition, _Draft]) -> None:
    """Give up what a writer left unfinished; a stopped one and its successor may write at once."""
    if len(drafts) > _DRAFTS_MAX:
        del drafts[next(iter(drafts))]


def load_rows(reader: LogReader, codec: Codec, checkpoint: Checkpoint) -> dict[bytes, bytes]:
    """Read the rows of a checkpoint."""
    rows: dict[bytes, bytes] = {}
    for offset in checkpoint.offsets:
        for records in reader.read(checkpoint.place, offset, offset + 1):
            for record in records:
                part = _part(codec, checkpoint.place, record)
                rows.update((row["key"], row["value"]) for row in part["rows"])
    return rows


def _part(codec: Codec, place: Place, record: LogRecord) -> dict[str, Any]:
    try:
        schema, part = codec.decode(record.value or b"")
    except DecodeError as error:
        schema, part = f"bytes that do not decode ({error.code})", {}
    if schema != "checkpoint_part":
        at = Position(*place, record.offset)
        raise Divergence(DivergenceKind.CHECKPOINT_CHANGED, at, "a checkpoint_part", schema)
    return part
