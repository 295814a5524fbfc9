"""Read the `.avsc` files: resolve the names they share, expand each schema and fingerprint it.

A file may use a record of another file by its full name (`harn.streams.TriggerEvent`).  Each schema
is kept fully expanded, so that it can be parsed, registered and fingerprinted alone: the first use
of a name holds its definition, later ones its name, as Avro asks.

Source: Avro 1.12 specification, "Parsing Canonical Form" and "Schema Fingerprints".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, cast

from fastavro.schema import (
    SchemaParseException,
    UnknownType,
    fingerprint,
    parse_schema,
    to_parsing_canonical_form,
)

from schemas.shape import RecordShape, SchemaError, shape_of

NAMESPACE = "harn.streams"
_SUFFIX = ".avsc"
_RELEASED = "released"

Definition = dict[str, Any]
"""A schema as JSON holds it."""


@dataclass(frozen=True, slots=True)
class Schema:
    """One record schema, fully expanded.

    `stem` is its file's name without suffix and how the code names it; `definition` its JSON,
    `shape` the same as a tree, `parsed` fastavro's form of it; `canonical` its Parsing Canonical
    Form and `fingerprint` the CRC-64-AVRO of that: 8 bytes, little-endian, as the single-object
    encoding has it.
    """

    stem: str
    full_name: str
    definition: Definition = field(repr=False)
    shape: RecordShape = field(repr=False, compare=False)
    parsed: Any = field(repr=False, compare=False)
    canonical: str = field(repr=False)
    fingerprint: bytes


def make_schema(stem: str, definition: Definition) -> Schema:
    """Build a schema from its expanded definition; SchemaError says what is wrong with it."""
    file = f"{stem}{_SUFFIX}"
    try:
        parsed = parse_schema(definition)
        canonical = to_parsing_canonical_form(parsed)
        digest = bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))
        full_name = str(cast("Definition", parsed)["name"])
    except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"{file}: no valid Avro schema: {error!r}") from error
    shape = shape_of(definition, file)
    return Schema(stem, full_name, definition, shape, parsed, canonical, digest)


class SchemaSet(Mapping[str, Schema]):
    """All schemas of one folder by stem, and, read when first asked for, those that releases wrote.

    Immutable; load it once and pass it on.
    """

    def __init__(self, schemas: Mapping[str, Schema], releases: Traversable | None = None) -> None:
        self._by_stem = dict(sorted(schemas.items()))
        self._releases = releases
        self._by_name = {schema.full_name: schema for schema in self._by_stem.values()}

    @classmethod
    def load(cls, folder: Traversable | None = None) -> SchemaSet:
        """Read every `.avsc` in `folder` (default: this package's own).

        Raises: SchemaError that names the file when one is not JSON, not a record of the namespace,
        not named after its file, or uses a name that no file declares.
        """
        root = files("schemas") if folder is None else folder
        sources = _read_folder(root)
        return cls(
            {stem: make_schema(stem, _expanded(stem, sources)) for stem in sources},
            root / _RELEASED,
        )

    def __getitem__(self, stem: str) -> Schema:
        return self._by_stem[stem]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_stem)

    def __len__(self) -> int:
        return len(self._by_stem)

    def named(self, full_name: str) -> Schema | None:
        """Return the schema of that full Avro name, or None."""
        return self._by_name.get(full_name)

    def with_fingerprint(self, digest: bytes) -> Schema | None:
        """Return the current or released schema of that fingerprint (8 bytes), or None."""
        found = self._current_writers.get(digest)
        return self._released_writers.get(digest) if found is None else found

    @cached_property
    def releases(self) -> dict[str, SchemaSet]:
        """The schemas of every release by version, oldest first."""
        if self._releases is None or not self._releases.is_dir():
            return {}
        folders = [entry for entry in self._releases.iterdir() if entry.is_dir()]
        folders.sort(key=lambda entry: version_key(entry.name))
        return {entry.name: SchemaSet.load(entry) for entry in folders}

    @cached_property
    def _current_writers(self) -> dict[bytes, Schema]:
        return {schema.fingerprint: schema for schema in self._by_stem.values()}

    @cached_property
    def _released_writers(self) -> dict[bytes, Schema]:
        return {
            schema.fingerprint: schema
            for release in self.releases.values()
            for schema in release.values()
        }


def version_key(version: str) -> tuple[int, ...]:
    """Order `major.minor.patch`; SchemaError when it is something else."""
    parts = version.split(".")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise SchemaError(f"release {version!r}: expected <major>.<minor>.<patch>, such as 0.1.0")
    return tuple(int(part) for part in parts)


def class_stem(name: str) -> str:
    """File stem of a record's name: `EventIngested` is `event_ingested`."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")


def _read_folder(folder: Traversable) -> dict[str, Definition]:
    """Return definitions by stem; SchemaError when a file is no record that is named after it."""
    found: dict[str, Definition] = {}
    for entry in folder.iterdir():
        if not entry.name.endswith(_SUFFIX):
            continue
        stem = entry.name.removesuffix(_SUFFIX)
        try:
            definition = json.loads(entry.read_text(encoding="utf-8"))
        except ValueError as error:
            raise SchemaError(f"{entry.name}: expected JSON: {error}") from error
        if (
            not isinstance(definition, dict)
            or cast("Definition", definition).get("type") != "record"
        ):
            raise SchemaError(f"{entry.name}: expected one Avro record")
        definition = cast("Definition", definition)
        name, namespace = definition.get("name"), definition.get("namespace")
        if namespace != NAMESPACE or class_stem(str(name)) != stem:
            expected = "".join(part.capitalize() for part in stem.split("_"))
            raise SchemaError(
                f"{entry.name}: declares {namespace}.{name}; expected {NAMESPACE}.{expected}"
            )
        found[stem] = definition
    if not found:
        raise SchemaError(f"{folder}: no {_SUFFIX} files; is the package installed completely?")
    return dict(sorted(found.items()))


def _expanded(stem: str, sources: Mapping[str, Definition]) -> Definition:
    """Replace every name of another file by its definition, at its first use."""
    try:
        return _Expander(stem, sources).record(sources[stem])
    except (KeyError, TypeError, AttributeError) as error:
        raise SchemaError(f"{stem}{_SUFFIX}: no valid Avro schema: {error!r}") from error


class _Expander:
    """Expands one schema: knows which names were defined so far and which are being defined."""

    def __init__(self, stem: str, sources: Mapping[str, Definition]) -> None:
        self._stem = stem
        self._sources = sources
        self._defined: set[str] = set()

    def record(self, definition: Definition) -> Definition:
        """Expand a record's fields in order, as a reader of the text meets them."""
        self._defined.add(str(definition["name"]))
        fields = [
            {**entry, "type": self._type(entry["type"], str(entry["name"]))}
            for entry in cast("list[Definition]", definition["fields"])
        ]
        return {**definition, "fields": fields}

    def _type(self, kind: object, path: str) -> object:
        if isinstance(kind, str):
            return self._name(kind, path)
        if isinstance(kind, list):
            return [self._type(branch, path) for branch in cast("list[object]", kind)]
        definition = cast("Definition", kind)
        match definition.get("type"):
            case "record":
                return self.record(definition)
            case "array":
                return {**definition, "items": self._type(definition["items"], path)}
            case "map":
                return {**definition, "values": self._type(definition["values"], path)}
            case "enum":
                self._defined.add(str(definition["name"]))
            case _:
                pass
        return definition

    def _name(self, name: str, path: str) -> object:
        space, _, short = name.rpartition(".")
        if not space or short in self._defined:
            return name
        source = self._sources.get(class_stem(short))
        if space != NAMESPACE or source is None:
            raise SchemaError(f"{self._stem}{_SUFFIX}: field {path}: no file declares {name}")
        return self.record(source)
