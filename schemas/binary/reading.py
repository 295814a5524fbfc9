"""Bytes to values.

Strict where a lenient reader makes garbage look like data: no negative lengths, no index counted
from the end, no number beyond its type.  A value cut short shows in the index that comes back,
which is then past the end: lengths are not compared with the rest of the data one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from schemas.binary.source import Source
from schemas.shape import Array, Enum, Map, Nullable, Primitive, RecordShape, Shape

Read = Callable[[bytes, int], tuple[dict[str, Any], int]]

READ_ERRORS = (ValueError, IndexError)
"""What a `Read` raises when the data is no encoding of its shape."""

# Of each group after the first, how far it is shifted, and the continuation bits before it.
_SHIFTS = tuple(
    (shift, sum(128 << before for before in range(0, shift, 7))) for shift in range(7, 64, 7)
)
_INT_LOW, _INT_HIGH = -(1 << 31), 1 << 31

_TIME_BYTES = 6
"""Of a time of our days, ms since epoch."""

TIMES_MAX = 4_096
"""Numbers of so many bytes that are kept by their encoding, at most."""

_TIMES: dict[bytes, int] = {}


def times_kept() -> int:
    """Return how many of them are kept at this moment."""
    return len(_TIMES)


def compile_read(shape: RecordShape) -> Read:
    """Compile `read(data, at)`: the value that begins at index `at`, and the index after it.

    The index after it is past the end of `data` when the value was cut short.
    """
    source = Source(_CONSTANTS)
    value = _Reading(source).record(shape)
    source.add(f"return {value}, at")
    return source.build(f"read_{shape.name}", "data, at")


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    # Only the last byte of a number has no continuation bit: no other number begins with these.
    known = _TIMES.get(data[at : at + _TIME_BYTES])
    if known is not None:
        return known, at + _TIME_BYTES
    first, number = at, data[at]
    at += 1
    if number < 128:
        return (number >> 1) ^ -(number & 1), at
    # Sums whole bytes, and takes their continuation bits out at the end: cheaper than masking each.
    for shift, marks in _SHIFTS:
        byte = data[at]
        at += 1
        number += byte << shift
        if byte < 128:
            number -= marks
            if number >> 64:
                raise ValueError("a number of more than 64 bits")
            number = (number >> 1) ^ -(number & 1)
            if at - first == _TIME_BYTES:
                _keep(data[first:at], number)
            return number, at
    raise ValueError("a number of more than ten bytes")


def _keep(encoded: bytes, number: int) -> None:
    """Keep a number that may be a time: what a record or a batch leads to says the same few."""
    if len(_TIMES) >= TIMES_MAX:
        _TIMES.clear()
    _TIMES[encoded] = number


def _read_int(data: bytes, at: int) -> tuple[int, int]:
    number, at = _read_long(data, at)
    if not _INT_LOW <= number < _INT_HIGH:
        raise ValueError("an int of more than 32 bits")
    return number, at


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    low = data[at]
    if low & 129 == 128 and (high := data[at + 1]) < 128:  # of two bytes, as most that come here
        return (high << 6) + (low - 128 >> 1), at + 2
    length, at = _read_long(data, at)
    if length < 0:
        raise ValueError("a negative length")
    return length, at


def _read_count(data: bytes, at: int) -> tuple[int, int]:
    """Read how many items a block has; after a negative count comes the block's size in bytes."""
    count, at = _read_long(data, at)
    if count < 0:
        count = -count
        _size, at = _read_length(data, at)
    if count > len(data) - at:  # each takes a byte or more
        raise ValueError("more items than bytes")
    return count, at


_CONSTANTS: dict[str, object] = {
    "read_int": _read_int,
    "read_long": _read_long,
    "read_length": _read_length,
    "read_count": _read_count,
    # From a text's length, where it is one byte, to the text's end; 0 where it is more, or none.
    "STEPS": tuple(0 if byte & 129 else 1 + (byte >> 1) for byte in range(256)),
}


class _Reading:
    """Writes the code for one record; each method returns the variable that holds the value."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def record(self, shape: RecordShape) -> str:
        values = [(field.name, self._shape(field.shape)) for field in shape.fields]
        record = self._source.name("record")
        entries = ", ".join(f"{name!r}: {value}" for name, value in values)
        self._source.add(f"{record} = {{{entries}}}")
        return record

    def _shape(self, shape: Shape) -> str:
        match shape:
            case Nullable():
                return self._nullable(shape)
            case Primitive():
                return self._primitive(shape)
            case Enum():
                return self._enum(shape)
            case Array():
                return self._array(shape)
            case Map():
                return self._map(shape)
            case RecordShape():
                return self.record(shape)

    def _nullable(self, shape: Nullable) -> str:
        self._source.add("branch = data[at]", "at += 1")
        with self._source.block("if branch == 2:"):
            value = self._shape(shape.inner)
        self._source.add(
            f"elif not branch: {value} = None", "else: raise ValueError('no branch of a nullable')"
        )
        return value

    def _primitive(self, shape: Primitive) -> str:
        value = self._source.name(shape.name)
        match shape.name:
            case "string" | "bytes":
                decoded = ".decode()" if shape.name == "string" else ""
                self._source.add("step = STEPS[data[at]]")
                self._source.add(f"if step: {value} = data[at + 1:(at := at + step)]{decoded}")
                with self._source.block("else:"):
                    self._source.add("size, at = read_length(data, at)")
                    self._source.add(f"{value} = data[at:(at := at + size)]{decoded}")
            case "boolean":
                self._source.add(
                    f"{value} = data[at]",
                    "at += 1",
                    f"if {value} > 1: raise ValueError('neither true nor false')",
                    f"{value} = {value} == 1",
                )
            case "int" | "long":
                self._source.add(f"{value} = data[at]")
                with self._source.block(f"if {value} < 128:"):
                    self._source.add(f"{value} = ({value} >> 1) ^ -({value} & 1)", "at += 1")
                self._source.add(f"else: {value}, at = read_{shape.name}(data, at)")
        return value

    def _length(self) -> None:
        """Read a length or index into `size`; most are one byte, which is even and below 128."""
        self._source.add("size = data[at]")
        self._source.add("if size & 129: size, at = read_length(data, at)")
        with self._source.block("else:"):
            self._source.add("size >>= 1", "at += 1")

    def _enum(self, shape: Enum) -> str:
        value, symbols = (
            self._source.name("symbol"),
            self._source.constant("SYMBOLS", shape.symbols),
        )
        self._length()
        self._source.add(f"{value} = {symbols}[size]")
        return value

    def _array(self, shape: Array) -> str:
        items = self._source.name("items")
        self._source.add(f"{items} = []")
        with self._blocks():
            item = self._shape(shape.items)
            self._source.add(f"{items}.append({item})")
        return items

    def _map(self, shape: Map) -> str:
        values = self._source.name("values")
        self._source.add(f"{values} = {{}}")
        with self._blocks():
            key = self._primitive(Primitive("string"))
            value = self._shape(shape.values)
            self._source.add(f"{values}[{key}] = {value}")
        return values

    @contextmanager
    def _blocks(self) -> Generator[None]:
        """Add the loops over blocks and items; the body of a `with` reads one item."""
        count = self._source.name("count")
        self._count(count)
        with self._source.block(f"while {count}:"):
            with self._source.block(f"for _ in range({count}):"):
                yield
            self._count(count)

    def _count(self, count: str) -> None:
        """Read a block's count; most are one byte: even, below 128, and too few to be checked."""
        self._source.add(f"{count} = data[at]")
        self._source.add(f"if {count} & 129: {count}, at = read_count(data, at)")
        with self._source.block("else:"):
            self._source.add(f"{count} >>= 1", "at += 1")
