"""A trigger with several sources: each becomes a binding of its own, `<trigger id>.<source id>`.

    [[triggers]]
    id = "digest"
    handler = "digest"

    [[triggers.sources]]
    id = "mornings"
    kind = "cron"
    provider = "cron"
    match = {}
    schedule = "0 9 * * *"

    [[triggers.sources]]               # without an id: `digest.source-2`
    kind = "webhook"
    provider = "github"
    match = { events = ["release.published"] }

| key | comes from |
|---|---|
| `id`, `kind`, `provider`, `match` | the source alone |
| `_OVERRIDING`: gates, `filter`, `retry`, … | the source, else the trigger |
| `secrets`, keys of the source's kind | both, the source's count |
| everything else: `handler`, `when`, … | the trigger alone |

Source: SEMANTICS 1.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from streams.core.manifest_kinds import keys_of_kind
from streams.core.manifest_place import Place
from streams.core.manifest_table import TEXT_CHARS_MAX, Field, read_table, table_of

__all__ = ["SOURCES_MAX", "Values", "read_sources"]

SOURCES_MAX = 100
"""Sources of one trigger."""

Values = dict[str, Any]
"""A trigger's keys as `read_table` returns them."""

_OWN = ("id", "kind", "provider", "match")
_OVERRIDING = (
    *("filter", "dedupe_key", "retry", "budget", "window", "max_waiting", "priority"),
    *("batch", "debounce", "rate_limit", "throttle", "singleton", "concurrency"),
)
_SOURCES = "sources"


def read_sources(
    table: Mapping[str, Any], fields: tuple[Field, ...], place: Place
) -> list[tuple[Values, Place]]:
    """Read a trigger that has `sources`; returns what each of its bindings is made of, and where.

    Problems are noted; what is returned is then not used.
    """
    trigger = _read_trigger(table, fields, place)
    tables = _tables(table[_SOURCES], place.field(_SOURCES))
    found: list[tuple[Values, Place]] = []
    used: set[str] = set()
    for index, (source, where) in enumerate(tables, start=1):
        values = _read_source(source, fields, where)
        name: str = values["id"] or f"source-{index}"
        own = keys_of_kind(values["kind"])
        used.update(own)
        merged = _merged(trigger, values, _given(table, fields), _given(source, fields), own)
        merged["id"] = f"{trigger['id']}.{name}"
        if len(merged["id"]) > TEXT_CHARS_MAX:
            where.field("id").refuse(f"makes an id of more than {TEXT_CHARS_MAX} characters")
        found.append((merged, where))
    unused = keys_of_kind(None) & _given(table, fields) - used
    sound = bool(found) and all(values["kind"] for values, _ in found)
    for key in sorted(unused if sound else ()):
        place.field(key).refuse("is a key that no source of the trigger takes")
    return found


def _given(table: Mapping[str, Any], fields: tuple[Field, ...]) -> set[str]:
    return {field.name for field in fields if field.name in table or field.alias in table}


def _read_trigger(table: Mapping[str, Any], fields: tuple[Field, ...], place: Place) -> Values:
    """Read what the sources share."""
    shared = tuple(
        replace(field, required=False) if field.name in _OWN[1:] else field for field in fields
    )
    for key in _OWN[1:]:
        if key in table:
            place.field(key).refuse("stands beside sources: each source has its own")
    return read_table({key: table[key] for key in table if key != _SOURCES}, shared, place)


def _tables(value: object, place: Place) -> list[tuple[Mapping[str, Any], Place]]:
    given: object = value
    entries = cast("list[object]", value) if isinstance(value, list) else []
    if not entries:
        place.expected(given, "tables written as [[triggers.sources]], one at least")
        return []
    if len(entries) > SOURCES_MAX:
        place.refuse(f"has {len(entries)} entries, expected at most {SOURCES_MAX}")
        return []
    found = [(table_of(each, place.field(at)), place.field(at)) for at, each in enumerate(entries)]
    return [(table, where) for table, where in found if table is not None]


def _read_source(table: Mapping[str, Any], fields: tuple[Field, ...], place: Place) -> Values:
    """Read one source; a key that belongs to the trigger is refused."""
    taken = {*_OWN, *_OVERRIDING, "secrets", *keys_of_kind(None)}
    known = {field.name: field for field in fields}
    own: list[Field] = []
    for field in fields:
        if field.name not in taken:
            continue
        optional = field.name not in _OWN[1:]
        missing = f"is missing: {_label(table)} needs one"
        own.append(replace(field, required=not optional, missing=missing))
    elsewhere = [key for key in table if key in known and key not in taken]
    for key in elsewhere:
        place.field(key).refuse("belongs to the trigger, not to one of its sources")
    return read_table(
        {key: value for key, value in table.items() if key not in elsewhere}, tuple(own), place
    )


def _label(table: Mapping[str, Any]) -> str:
    source_id = table.get("id")
    return f"source {source_id!r}" if isinstance(source_id, str) else "the source"


def _merged(
    trigger: Values, source: Values, shared: set[str], given: set[str], own: frozenset[str]
) -> Values:
    """Return a source's keys over its trigger's."""
    foreign = keys_of_kind(None) - own
    inherited = shared - given - foreign - {*_OWN}
    merged = {key: value for key, value in trigger.items() if key not in foreign}
    merged |= {key: value for key, value in source.items() if key not in inherited}
    merged["secrets"] = {**trigger["secrets"], **source["secrets"]}
    return merged
