"""Records that fit their schemas, and mean nothing, or nearly something.

Names are mostly those that were said before, so that a word finds something to be about; numbers
are mostly near those that were.  The rest is what nobody should write: empty, too long, negative,
of another alphabet, of the largest that a type holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from random import Random
from typing import Any

from schemas.shape import Array, Enum, Map, Nullable, Primitive, RecordShape, Shape

_NAMES = ("a", "b", "c", "t1", "w1", "i1", "triage")
_HOSTILE_TEXTS = (
    *("", " ", ":", "a:b", "#", "a#", "#1", "a#9999999999", "-", "0", "-1", "null", "_global"),
    *("\x00", "a\nb", "\ufffe", "😀", "../x", "@", "a@v", "triage@v1", "d:1"),
    *("x" * 201, "x" * 70_000, "x" * 300_000, "é" * 100_000),
)
_HOSTILE_NUMBERS = (0, -1, 1_000, *(sign * (1 << bits) for sign in (1, -1) for bits in (31, 62)))
_RANGES = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}
_KEPT = 60


class HostileRecords:
    """Makes values of shapes; `hostility` is the share of what nobody should write."""

    def __init__(self, random: Random, hostility: float) -> None:
        self._random = random
        self._hostility = hostility
        self._said: dict[str, list[Any]] = defaultdict(list)
        self.now_ms = 0

    def note(self, value: Any, name: str = "") -> None:
        """Remember what was said, by the name of its field."""
        if isinstance(value, Mapping):
            for each, inner in value.items():
                self.note(inner, each)
        elif isinstance(value, list):
            for inner in value:
                self.note(inner, name)
        elif isinstance(value, str | int) and not isinstance(value, bool):
            said = self._said[name]
            if len(said) < _KEPT:
                said.append(value)
            else:
                said[self._random.randrange(_KEPT)] = value

    def value(self, shape: Shape, name: str = "") -> Any:
        """Make a value of a field of that name."""
        random = self._random
        match shape:
            case Primitive():
                return self._primitive(shape.name, name)
            case Nullable():
                return None if random.random() < 0.5 else self.value(shape.inner, name)
            case Enum():
                return random.choice(shape.symbols)
            case Array():
                count = 500 if self._is_hostile(0.2) else random.choice((0, 1, 1, 2, 3))
                return [self.value(shape.items, name) for _ in range(count)]
            case Map():
                keys = (self._text(f"{name}_key") for _ in range(random.randrange(3)))
                return {key: self.value(shape.values, name) for key in keys}
            case RecordShape():
                return {each.name: self.value(each.shape, each.name) for each in shape.fields}

    def _is_hostile(self, share: float = 1.0) -> bool:
        return self._random.random() < self._hostility * share

    def _primitive(self, kind: str, name: str) -> Any:
        random = self._random
        match kind:
            case "boolean":
                return random.random() < 0.5
            case "bytes":
                return (
                    b"x" * 200_000 if self._is_hostile() else random.choice((b"", b"{}", b"body"))
                )
            case "string":
                return self._text(name)
            case _:
                least, most = _RANGES[kind]
                return min(max(self._number(name), least), most)

    def _text(self, name: str) -> str:
        random = self._random
        if self._is_hostile():
            return random.choice(_HOSTILE_TEXTS)
        said = [each for each in self._said[name] if isinstance(each, str)]
        return random.choice(said if said and random.random() < 0.85 else _NAMES)

    def _number(self, name: str) -> int:
        random = self._random
        if self._is_hostile():
            return random.choice(_HOSTILE_NUMBERS)
        said = [each for each in self._said[name] if isinstance(each, int)]
        if said and random.random() < 0.7:
            return random.choice(said) + random.choice((0, 0, 0, 1, -1))
        return random.choice((0, 1, 2, 3, self.now_ms, self.now_ms + random.randrange(1_000_000)))
