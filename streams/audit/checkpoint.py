"""Checkpoints: a partition's full rows as records, so that an audit can begin after a mailbox's lost head.

A checkpoint is one or more `checkpoint_part` records.  Each part repeats the position that the rows
belong to, so that a part says by itself where it fits; the rows are in key order over all parts.
Whoever writes one may die midway: an incomplete checkpoint means nothing and is passed over.

The writer is not believed: a checkpoint holds when its rows hash to the state hash that the
journal recorded for the same transaction.

Source: DESIGN "Topics" (audit.checkpoints), "Proof".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streams.codec import Codec
from streams.engine import StatePosition

__all__ = ["PART_BYTES_MAX", "encode_checkpoint"]

PART_BYTES_MAX = 700_000
"""Rows in one part, bytes; with one more row of any size that a fold may emit it still fits a record."""

_ROW_OVERHEAD_BYTES = 10  # two lengths, as Avro writes them

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
    """Cut rows into runs that fit a part; a row that is larger than that has a part of its own."""
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
