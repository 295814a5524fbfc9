"""Names what is wrong where an expected output and the log differ.

| the record found in its place | and the expected output | verdict |
|---|---|---|
| has the same cause | | different bytes |
| is a second copy of an earlier one | | duplicate |
| has an earlier cause | | unexpected: the fold gave no such output |
| has a later cause, or there is none | lies later in the same partition | out of order |
| … | lies in another partition | wrong partition |
| … | is nowhere | missing |

Source: DESIGN "Proof".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from streams.audit.divergence import Divergence, DivergenceKind, first_difference, shown
from streams.audit.log import Headers, LogReader, LogRecord, Place
from streams.audit.output_index import Entry, Lanes
from streams.codec import Codec, DecodeError
from streams.core.record import Position
from streams.engine import EncodedOutput

__all__ = ["Diagnosis", "Expected"]


class Walked(Protocol):
    """A lane of which `taken` entries were found right; `after` is the offset after the last."""

    place: Place
    head: tuple[int, int, int, bytes] | None
    taken: int
    after: int


class Expected(NamedTuple):
    """An output that the fold gave, and where it belongs."""

    place: Place
    key: bytes
    value: bytes | None
    headers: Headers
    kind: str
    cause: str
    cause_key: tuple[int, int]

    @classmethod
    def of(cls, output: EncodedOutput, place: Place) -> Expected:
        """Read what the engine wrote into the headers."""
        headers = dict(output.headers)
        cause = headers["cause"].decode()
        offset, index = cause.rsplit("/", 2)[1:]
        kind = headers["kind"].decode()
        return cls(
            place, output.key, output.value, output.headers, kind, cause, (int(offset), int(index))
        )

    def __str__(self) -> str:
        return f"{self.kind} (cause {self.cause})"


class _Occurrence(NamedTuple):
    place: Place
    entry: Entry
    compared: bool


class Diagnosis:
    """Finds the name of a difference; reads again what the index only knows as a fingerprint."""

    def __init__(self, reader: LogReader, codec: Codec, lanes: Lanes) -> None:
        self._reader = reader
        self._codec = codec
        self._noted = lanes

    def of_expected(self, expected: Expected, walked: Mapping[Place, Walked]) -> Divergence:
        """Say why `expected` is not the next record of its lane."""
        lane = walked.get(expected.place)
        head = None if lane is None or lane.head is None else Entry(*lane.head)
        if head is not None and head.cause == expected.cause_key:
            return self._different(expected, head)
        if head is not None:
            extra = self._extra(head, expected.place, walked, str(expected))
            if extra is not None and (
                extra.kind is DivergenceKind.DUPLICATE_OUTPUT or head.cause < expected.cause_key
            ):
                return extra
        for found in self._occurrences(expected.place[0], expected.cause_key, walked):
            if found.compared:
                continue
            if found.place != expected.place:
                return self._misplaced(expected, found)
            assert head is not None, "what lies later has something before it"
            position = Position(*expected.place, head.offset)
            kind = DivergenceKind.OUT_OF_ORDER
            before = self._named(expected.place, head)
            actual = f"{before}; the expected one follows at offset {found.entry.offset}"
            return Divergence(kind, position, str(expected), actual, cause=expected.cause)
        actual = (
            "the end"
            if head is None
            else f"{self._named(expected.place, head)} at offset {head.offset}"
        )
        position = Position(*expected.place, 0 if lane is None else lane.after)
        kind = DivergenceKind.MISSING_OUTPUT
        return Divergence(kind, position, str(expected), actual, cause=expected.cause)

    def of_left(self, entry: Entry, place: Place, walked: Mapping[Place, Walked]) -> Divergence:
        """Name a record that is left when everything expected was found."""
        return self._extra(entry, place, walked, "no such record")

    def _extra(
        self, entry: Entry, place: Place, walked: Mapping[Place, Walked], expected: str
    ) -> Divergence:
        position = Position(*place, entry.offset)
        named = self._named(place, entry)
        for found in self._occurrences(place[0], entry.cause, walked):
            if found.compared:
                first = Position(*found.place, found.entry.offset)
                actual = f"{named} again, first at {first}"
                return Divergence(DivergenceKind.DUPLICATE_OUTPUT, position, expected, actual)
        return Divergence(DivergenceKind.UNEXPECTED_OUTPUT, position, expected, named)

    def _occurrences(
        self, topic: str, cause: tuple[int, int], walked: Mapping[Place, Walked]
    ) -> Iterator[_Occurrence]:
        """Every noted record of one cause in a topic, with whether it was found right already."""
        for place, entries in self._noted.items():
            if place[0] != topic:
                continue
            taken = walked[place].taken
            for at, fields in enumerate(entries):
                if (fields[0], fields[1]) == cause:
                    yield _Occurrence(place, Entry(*fields), at < taken)

    def _different(self, expected: Expected, head: Entry) -> Divergence:
        position = Position(*expected.place, head.offset)
        record = self._record(expected.place, head.offset)
        field, wanted, found = self._first_field(expected, record)
        return Divergence(
            DivergenceKind.DIFFERENT_OUTPUT,
            position,
            f"{expected} with {field} = {wanted}",
            f"{field} = {found}",
            cause=expected.cause,
        )

    def _first_field(self, expected: Expected, record: LogRecord) -> tuple[str, str, str]:
        """Find what differs first: key, headers, then value, field by field where it decodes."""
        if expected.key != record.key:
            return "key", shown(expected.key), shown(record.key)
        wanted = [list(header) for header in expected.headers]
        found = [list(header) for header in record.headers]
        if wanted != found:
            return first_difference(dict(expected.headers), dict(record.headers), "headers") or (
                "headers",
                f"{len(wanted)} in their order",
                f"{len(found)} in another order",
            )
        return differing_value(self._codec, expected.value, record.value)

    def _misplaced(self, expected: Expected, found: _Occurrence) -> Divergence:
        return Divergence(
            DivergenceKind.WRONG_PARTITION,
            Position(*found.place, found.entry.offset),
            f"{expected} in partition {expected.place[1]}",
            f"it in partition {found.place[1]}",
            cause=expected.cause,
        )

    def _named(self, place: Place, entry: Entry) -> str:
        headers = dict(self._record(place, entry.offset).headers)
        kind = headers.get("kind", b"a record without kind").decode(errors="replace")
        return f"{kind} (cause {headers['cause'].decode(errors='replace')})"

    def _record(self, place: Place, offset: int) -> LogRecord:
        return next(iter(self._reader.read(place, offset, offset + 1)))[0]


def differing_value(
    codec: Codec, expected: bytes | None, actual: bytes | None
) -> tuple[str, str, str]:
    """Name the first field in which two different encoded values differ.

    Returns: the field's path, and both sides as `shown` tells them.
    """
    if expected is None or actual is None:
        return "value", shown(expected), shown(actual)
    wanted_schema, wanted = codec.decode(expected)
    try:
        found_schema, found = codec.decode(actual)
    except DecodeError as error:
        return "value", shown(expected), f"{len(actual)} bytes that do not decode ({error.code})"
    if wanted_schema != found_schema:
        return "schema", wanted_schema, found_schema
    return first_difference(wanted, found) or ("value", shown(expected), shown(actual))
