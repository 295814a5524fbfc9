"""Values to bytes: each field adds its check, and names the pieces that a final join puts together.

The code checks only as much as speed allows and raises whatever Python raises; `find_misfit` then
says what was wrong.  Both agree on what fits, which a property test shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from schemas.binary.source import Source
from schemas.shape import (
    NO_DEFAULT,
    Array,
    Enum,
    Map,
    Nullable,
    Primitive,
    RecordShape,
    Shape,
)

Write = Callable[[Mapping[str, Any]], bytes]

WRITE_ERRORS = (ValueError, TypeError, KeyError, AttributeError)
"""What a `Write` raises when a value does not fit."""

INT_BITS = {"int": 31, "long": 63}
"""Bits beside the sign."""

_LONG_BITS = INT_BITS["long"]

_SMALL = 4096  # lengths and numbers below it come from a table; most do
_PRESENT = b"\x02"  # second branch of a nullable


def compile_write(
    shape: RecordShape, frame: bytes = b"", refuse: Callable[[Any, Exception], None] | None = None
) -> Write:
    """Compile `write(value)`: `frame` and the encoding of `value`, which is left as it is.

    `refuse` is called with a value that does not fit and what was raised, to raise a better word.
    """
    source = Source({**_CONSTANTS, "FRAME": frame, "WRITE_ERRORS": WRITE_ERRORS, "refuse": refuse})
    with source.block("try:"):
        pieces = _Writing(source).record(shape, "value", present=False)
        source.add(f"return b''.join((FRAME, {', '.join(pieces)}))")
    with source.block("except WRITE_ERRORS as error:"):  # costs nothing until something is raised
        source.add("if refuse is not None: refuse(value, error)", "raise")
    return source.build(f"write_{shape.name}", "value")


def _groups(number: int) -> bytes:
    """Encode a number >= 0 in groups of seven bits, lowest first."""
    groups: list[int] = []
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    groups.append(number)
    return bytes(groups)


_PAIRS = 1 << 14
_LAST = tuple(_groups(number) for number in range(_PAIRS))
_MORE = tuple(bytes((number & 127 | 128, number >> 7 | 128)) for number in range(_PAIRS))


def varint(number: int) -> bytes:
    """Encode a number >= 0 in groups of seven bits, lowest first.

    Takes two groups at a time from tables: times in milliseconds, of six groups, are everywhere.
    """
    if number < _PAIRS:
        return _LAST[number]
    data = _MORE[number & _PAIRS - 1]
    number >>= 14
    while number >= _PAIRS:
        data += _MORE[number & _PAIRS - 1]
        number >>= 14
    return data + _LAST[number]


NUMBERS_MAX = 4_096
"""Large and negative numbers whose encodings are kept, at most."""

_NUMBERS: dict[int, bytes] = {}


def _number_of(number: int) -> bytes:
    """Encode a number that may be negative, and keep what it came to.

    Large ones are times, most of them, and what a record or a batch leads to says the same few.
    """
    if len(_NUMBERS) >= NUMBERS_MAX:
        _NUMBERS.clear()
    data = _NUMBERS[number] = varint((number << 1) ^ (number >> _LONG_BITS))
    return data


def numbers_kept() -> int:
    """Return how many numbers' encodings are kept at this moment."""
    return len(_NUMBERS)


def _filled(value: Mapping[str, Any], defaults: Mapping[str, Any], count: int) -> Mapping[str, Any]:
    """Add defaults; if an entry is unknown now, a field is missing, which will be a KeyError."""
    filled = {**defaults, **value}
    if len(filled) != count:
        raise ValueError
    return filled


_COUNTS = tuple(varint(number << 1) for number in range(_SMALL))
_KEYS_MAX = 4_096
_KEY_CHARS_MAX = 64
_KEYS: dict[str, bytes] = {}


def _key_of(key: str) -> bytes:
    """Encode a map's key, and keep what it came to while there is room."""
    text = key.encode()
    data = varint(len(text) << 1) + text
    if len(_KEYS) < _KEYS_MAX and len(key) <= _KEY_CHARS_MAX:
        _KEYS[key] = data
    return data


_CONSTANTS: dict[str, object] = {
    "COUNTS": _COUNTS,
    "KEYS": _KEYS,
    "key_of": _key_of,
    "PRESENT_COUNTS": tuple(_PRESENT + count for count in _COUNTS),
    "NULL": b"\x00",
    "PRESENT": _PRESENT,
    "MAPPING": Mapping,
    "NUMBERS": _NUMBERS,
    "number_of": _number_of,
    "SEQUENCE": (list, tuple),
    "filled": _filled,
    "varint": varint,
}


class _Writing:
    """Writes the code for one record.

    Each method takes the variable that holds a value and returns new variables that hold its
    encoding, in order.  With `present` the first of them begins with the branch of a nullable.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def record(self, shape: RecordShape, value: str, *, present: bool) -> list[str]:
        defaults = {
            field.name: field.default for field in shape.fields if field.default is not NO_DEFAULT
        }
        count, name = len(shape.fields), self._source.constant("DEFAULTS", defaults)
        self._source.add(f"if len({value}) != {count}: {value} = filled({value}, {name}, {count})")
        pieces: list[str] = []
        if present:
            pieces.append(self._source.name("branch"))
            self._source.add(f"{pieces[0]} = PRESENT")
        for field in shape.fields:
            variable = self._source.name("field")
            self._source.add(f"{variable} = {value}[{field.name!r}]")
            pieces += self._shape(field.shape, variable, present=False)
        return pieces

    def _shape(self, shape: Shape, value: str, *, present: bool) -> list[str]:
        match shape:
            case Nullable():
                return self._nullable(shape, value)
            case Primitive():
                return self._primitive(shape, value, present=present)
            case Enum():
                return self._enum(shape, value, present=present)
            case Array():
                return self._array(shape, value, present=present)
            case Map():
                return self._map(shape, value, present=present)
            case RecordShape():
                return self.record(shape, value, present=present)

    def _nullable(self, shape: Nullable, value: str) -> list[str]:
        with self._source.block(f"if {value} is not None:"):
            pieces = self._shape(shape.inner, value, present=True)
        with self._source.block("else:"):
            self._source.add(f"{pieces[0]} = NULL")
            if pieces[1:]:
                self._source.add(f"{' = '.join(pieces[1:])} = b''")
        return pieces

    def _primitive(self, shape: Primitive, value: str, *, present: bool) -> list[str]:
        match shape.name:
            case "string":
                data = self._source.name("text")
                self._source.add(f"{data} = {value}.encode()")  # only texts have it
                return [self._length(data, present=present), data]
            case "bytes":
                data = self._source.name("data")
                self._source.add(f"if type({value}) is not bytes: raise TypeError")
                self._source.add(f"{data} = {value}")
                return [self._length(data, present=present), data]
            case "boolean":
                return self._boolean(value, present=present)
            case "int" | "long":
                return self._integer(INT_BITS[shape.name], value, present=present)

    def _key(self, key: str) -> list[str]:
        """Encode a map's key; the same few come again and again."""
        piece = self._source.name("key")
        self._source.add(f"{piece} = KEYS.get({key}) or key_of({key})")
        return [piece]

    def _length(self, value: str, *, present: bool) -> str:
        piece = self._source.name("size")
        self._source.add(f"size = len({value})", f"{piece} = {_count('size', present=present)}")
        return piece

    def _boolean(self, value: str, *, present: bool) -> list[str]:
        piece = self._source.name("flag")
        table = {flag: _branch(present=present) + bytes([flag]) for flag in (False, True)}
        self._source.add(
            f"if type({value}) is not bool: raise TypeError",
            f"{piece} = {self._source.constant('FLAGS', table)}[{value}]",
        )
        return [piece]

    def _integer(self, bits: int, value: str, *, present: bool) -> list[str]:
        piece, table = self._source.name("number"), _table(present=present)
        zigzag = f"(NUMBERS.get({value}) or number_of({value}))"
        self._source.add(
            f"if type({value}) is not int: raise TypeError",
            f"if 0 <= {value} < {_SMALL}: {piece} = {table}[{value}]",
            f"elif {-(1 << bits)} <= {value} < {1 << bits}: "
            f"{piece} = {'PRESENT + ' if present else ''}{zigzag}",
            "else: raise ValueError",
        )
        return [piece]

    def _enum(self, shape: Enum, value: str, *, present: bool) -> list[str]:
        piece, branch = self._source.name("symbol"), _branch(present=present)
        table = {symbol: branch + _COUNTS[index] for index, symbol in enumerate(shape.symbols)}
        self._source.add(f"{piece} = {self._source.constant('SYMBOLS', table)}[{value}]")
        return [piece]

    def _array(self, shape: Array, value: str, *, present: bool) -> list[str]:
        self._source.add(f"if not isinstance({value}, SEQUENCE): raise TypeError")
        item = self._source.name("item")
        return self._blocks(value, f"for {item} in {value}:", shape.items, item, present=present)

    def _map(self, shape: Map, value: str, *, present: bool) -> list[str]:
        self._source.add(
            f"if type({value}) is not dict and not isinstance({value}, MAPPING): raise TypeError"
        )
        key = self._source.name("key")
        # By code point, which is also the order of their UTF-8; linear when sorted already.
        loop = f"for {key} in sorted({value}) if size > 1 else {value}:"
        return self._blocks(value, loop, shape.values, f"{value}[{key}]", key=key, present=present)

    def _blocks(
        self, value: str, loop: str, items: Shape, item: str, *, key: str = "", present: bool
    ) -> list[str]:
        """Add one block of all items and the empty block that ends it."""
        piece, emit = self._source.name("items"), self._source.name("emit")
        self._source.add(f"size = len({value})")
        with self._source.block("if size:"):
            self._source.add(
                f"{piece} = [{_count('size', present=present)}]", f"{emit} = {piece}.extend"
            )
            with self._source.block(loop):
                pieces = self._key(key) if key else []
                entry = self._source.name("entry")
                self._source.add(f"{entry} = {item}")
                pieces += self._shape(items, entry, present=False)
                self._source.add(f"{emit}(({', '.join(pieces)},))")
            self._source.add(f"{piece}.append(COUNTS[0])", f"{piece} = b''.join({piece})")
        self._source.add(f"else: {piece} = {_branch(present=present) + _COUNTS[0]!r}")
        return [piece]


def _branch(*, present: bool) -> bytes:
    return _PRESENT if present else b""


def _table(*, present: bool) -> str:
    return "PRESENT_COUNTS" if present else "COUNTS"


def _count(size: str, *, present: bool) -> str:
    """Return the expression for a length or count."""
    large = f"{'PRESENT + ' if present else ''}varint({size} << 1)"
    return f"{_table(present=present)}[{size}] if {size} < {_SMALL} else {large}"
