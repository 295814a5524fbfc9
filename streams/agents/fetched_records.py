"""Records as aiokafka fetches them, also where a header's name is no UTF-8.

Kafka takes any bytes for a name, and clients of other languages write them; aiokafka raises at one,
and fetches the same records again, for ever: no word of an operator could pass them.  Such a record
counts as one without headers, as it does to whoever reads by librdkafka (`streams.kafka`), so that
the auditor folds what the stage has folded.

Invariant: whatever else aiokafka makes of fetched bytes stays as it is.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record import default_records
from aiokafka.record.memory_records import MemoryRecords

__all__ = ["FetchedRecords", "install"]

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8  # behind the base offset
_LOG_OVERHEAD = 12  # base offset, length


def install() -> None:
    """Let aiokafka's consumers in this process read by this."""
    module: Any = fetcher
    module.MemoryRecords = FetchedRecords


class FetchedRecords:
    """Stands in for aiokafka's `MemoryRecords`: the batches of one partition in a fetch."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._batches: Any = MemoryRecords(data)
        self._begin = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def next_batch(self) -> _Batch | None:
        """Return the next batch, or nothing after the last."""
        batch = self._batches.next_batch()
        if batch is None:
            return None
        begin = self._begin
        (length,) = _LENGTH.unpack_from(self._data, begin + _LENGTH_AT)
        self._begin += _LOG_OVERHEAD + length
        return _Batch(batch, memoryview(self._data)[begin : self._begin])


class _Batch:
    """One batch; it is decoded by aiokafka's C, and once more by its Python where that raises."""

    def __init__(self, batch: Any, data: memoryview) -> None:
        self._batch = batch
        self._data = data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)  # of a batch of the broker's own, which has no headers

    def __iter__(self) -> Iterator[Any]:
        count = 0
        try:
            for record in self._batch:
                count += 1
                yield record
        except UnicodeDecodeError:
            yield from islice(_readable(self._data), count, None)


def _readable(data: memoryview) -> Iterator[Any]:
    """Yield the records of a batch, without headers where one of them has such a name."""
    batch: Any = default_records._DefaultRecordBatchPy(data)  # type: ignore[attr-defined]
    batch._maybe_uncompress()
    batch._buffer = _Buffer(batch._buffer)
    for record in batch:
        if all(name.isascii() or _is_text(name) for name, _ in record.headers):
            yield record
        else:
            yield dataclasses.replace(record, headers=[])


class _Buffer(bytearray):
    """Bytes of which a part can be decoded whatever it is."""

    def __getitem__(self, part: Any) -> Any:
        found = super().__getitem__(part)
        return _Buffer(found) if isinstance(part, slice) else found

    def decode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> str:
        """Return the text; what is none stands in it as surrogates."""
        return super().decode(encoding, errors)


def _is_text(name: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in name)
