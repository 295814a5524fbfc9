"""Encodings learned by pattern: the bytes that all values of a pattern share, and where ids go.

A form is learned once a pattern has come a few times, from two values that differ in every id: one
shows where the ids stand, the other proves it.  A pattern that does not keep its word, or whose ids
are too short to be told apart, has no form, and its values are encoded like all others.  So a form
gives the very bytes that encoding gives.

Source: `streams.core.pattern`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from streams.core.pattern import Patterned

FORMS_MAX = 1_024
"""Patterns that are known at once, with a form or on the way to it; past it, all are forgotten."""

LEARNED_AFTER = 8
"""Times that a pattern comes before its form is made, which costs as much as five encodings."""

TEXT_BYTES_MIN = 8
"""A shorter id might be found where it does not stand."""

_STAND_INS = (b"ACEGIKMO", b"acegikmo")
"""Letters that texts are replaced with; none is a length of less than two bytes, which is even."""

_Encode = Callable[[Mapping[str, Any]], bytes]


class _Form(NamedTuple):
    """Bytes with a `%b` for each place of a text, and the texts in the order of the places."""

    bytes_: bytes
    in_order: Callable[[Sequence[bytes]], Any]


class Forms:
    """What is known of the patterns of one kind of record."""

    __slots__ = ("_encode", "_known")

    def __init__(self, encode: _Encode) -> None:
        self._encode = encode
        self._known: dict[tuple[Any, ...], _Form | int | None] = {}

    def encode(self, value: Patterned, /) -> bytes:
        """Encode a value by its pattern's form, or as it is as long as there is none."""
        texts = [text.encode() for text in value.texts]
        key = (value.pattern, *map(len, texts))
        known = self._known.get(key, 0)
        if isinstance(known, _Form):
            return known.bytes_ % known.in_order(texts)
        if known is not None:
            self._count(key, known + 1, value)
        return self._encode(value.value())

    def __len__(self) -> int:
        """How many patterns are known."""
        return len(self._known)

    def _count(self, key: tuple[Any, ...], times: int, value: Patterned) -> None:
        if len(self._known) >= FORMS_MAX and key not in self._known:
            self._known.clear()
        if times < LEARNED_AFTER:
            self._known[key] = times
        else:
            self._known[key] = _learned(self._encode, value.draw, key[1:])


def _learned(
    encode: _Encode, draw: Callable[..., Mapping[str, Any]], sizes: Sequence[int]
) -> _Form | None:
    """Return the form of what `draw` makes of texts of these sizes, bytes."""
    if min(sizes) < TEXT_BYTES_MIN or len(sizes) > len(_STAND_INS[0]):
        return None
    first, second = (
        [letters[place : place + 1] * size for place, size in enumerate(sizes)]
        for letters in _STAND_INS
    )
    pieces = re.split(b"(%s)" % b"|".join(first), encode(draw(*(text.decode() for text in first))))
    places = [first.index(piece) for piece in pieces[1::2]]
    if len(places) < 2:  # then `itemgetter` returns no tuple
        return None
    constant = [piece.replace(b"%", b"%%") for piece in pieces[::2]]
    form = _Form(b"%b".join(constant), itemgetter(*places))
    proof = encode(draw(*(text.decode() for text in second)))
    return form if form.bytes_ % form.in_order(second) == proof else None
