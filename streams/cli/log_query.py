"""Which records of a topic a person wants to see: where to begin, and what must hold of each."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from jmespath.exceptions import JMESPathError

from streams.cli.log_record import SEEN, ShownRecord
from streams.cli.moment import EXPECTED, moment_ms
from streams.edge.topic_reader import TopicReader
from streams.errors import ConfigError
from streams.expression_functions import jmespath_functions_problem
from streams.expression_names import jmespath_names_problem
from streams.expressions import what_is_wrong
from streams.jmespath_program import Program, TooManySteps, compile_jmespath

__all__ = ["Query", "Start", "parse_query", "parse_start"]

_NEWEST = re.compile(r"-\d{1,9}")
_OFFSET = re.compile(r"\d{1,18}")


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin in each partition; exactly one field is set.

    `offset` is absolute, `newest` counts back from the end, `timestamp_ms` is the append time.
    """

    offset: int | None = None
    newest: int | None = None
    timestamp_ms: int | None = None

    def offsets(self, reader: TopicReader, partitions: list[int]) -> dict[int, int]:
        """Return the first offset to read of each partition.  Raises BrokerError."""
        if self.timestamp_ms is not None:
            found = reader.offsets_at(self.timestamp_ms)
            return {partition: found[partition] for partition in partitions}
        starts: dict[int, int] = {}
        for partition in partitions:
            low, high = reader.watermarks(partition)
            wanted = high - self.newest if self.newest is not None else self.offset or 0
            starts[partition] = min(max(wanted, low), high)
        return starts


def parse_start(text: str) -> Start:
    """Read `beginning`, `end`, an offset, `-N` (the newest N) or a time.  Raises ConfigError."""
    if text == "beginning":
        return Start(offset=0)
    if text == "end":
        return Start(newest=0)
    if _NEWEST.fullmatch(text):
        return Start(newest=-int(text))
    if _OFFSET.fullmatch(text):
        return Start(offset=int(text))
    timestamp_ms = moment_ms(text)
    if timestamp_ms is None:
        expected = f"beginning, end, an offset, -N for the newest N, or {EXPECTED}"
        raise ConfigError(f"--from is {text!r}, expected {expected}")
    return Start(timestamp_ms=timestamp_ms)


class Query:
    """What must hold of a record for it to be shown; all of it, and without anything everything."""

    def __init__(
        self,
        *,
        kind: str | None,
        key: str | None,
        event_id: str | None,
        where: Program | None,
    ) -> None:
        self._kind = kind
        self._key = key
        self._event_id = event_id
        self._where = where

    @property
    def is_selective(self) -> bool:
        """Whether some records are left out."""
        wanted = (self._kind, self._key, self._event_id, self._where)
        return any(each is not None for each in wanted)

    def takes(self, record: ShownRecord) -> bool:
        """Whether the record is to be shown."""
        if self._kind is not None and record.kind != self._kind:
            return False
        if self._key is not None and record.key != self._key:
            return False
        if self._event_id is not None and self._event_id not in record.event_ids:
            return False
        return self._where is None or _holds(self._where, record)


def _holds(where: Program, record: ShownRecord) -> bool:
    try:
        found = where.search(_document(record))
    except TooManySteps as error:
        at = record.position
        raise ConfigError(f"--where cannot be evaluated over {at}: {error}") from error
    except Exception:  # noqa: BLE001 - over what others wrote, a library may fail in any way
        return False  # a function of another type's value: the record is another kind
    # JMESPath's own truth: null, false and whatever is empty do not hold; zero does.
    return found is not None and found is not False and found not in ("", [], {})


def _document(record: ShownRecord) -> dict[str, Any]:
    """Return what `--where` sees: what `--json` prints, and the event's payload as `payload`."""
    document = record.document()
    value: Mapping[str, Any] = record.value or {}
    event = value.get("event")
    payload = event.get("provider_payload") if isinstance(event, Mapping) else None
    if isinstance(payload, str):
        # Another producer's payload may be no JSON; then there is nothing to ask of it.
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            document["payload"] = msgspec.json.decode(payload)
    return document


def parse_query(
    *, kind: str | None, key: str | None, event_id: str | None, where: str | None
) -> Query:
    """Make a query of options.  Raises ConfigError when `where` is no JMESPath expression."""
    if where is None:
        return Query(kind=kind, key=key, event_id=event_id, where=None)
    try:
        compiled = compile_jmespath(where)
    except (ValueError, JMESPathError) as error:
        problem = what_is_wrong(error)
        raise ConfigError(f"--where is no JMESPath expression: {problem}") from error
    unknown = jmespath_functions_problem(where) or jmespath_names_problem(where, SEEN)
    if unknown is not None:
        raise ConfigError(f"--where is no JMESPath expression over a record: {unknown}")
    return Query(kind=kind, key=key, event_id=event_id, where=compiled)
