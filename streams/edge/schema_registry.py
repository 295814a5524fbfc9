"""A Confluent-compatible schema registry: registers what we write, looks up what others wrote.

A topic carries several kinds of records, so a subject is `<topic>-<full record name>`, Confluent's
`TopicRecordNameStrategy`; a schema has one id however many subjects it has.  Registering is
idempotent: every process does it at start, and finds the ids that the first one made.

The registry is needed at start, and later only for an id that was not seen before; what is known
keeps working while it is down.  Its client takes a fifth of a second to import, so this module is
imported only where `SCHEMA_REGISTRY_URL` is set.

Source: Confluent Schema Registry, "Wire format" and "Subject name strategy".
"""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka.schema_registry import Schema as RegisteredSchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from fastavro import parse_schema
from httpx2 import TransportError

from schemas import Schema, SchemaError, SchemaSet
from schemas.load import class_stem, make_schema
from streams.errors import BrokerError, ConfigError
from streams.settings import Settings
from topology import TOPOLOGY, Topology

__all__ = ["ForeignSchemas", "SchemaRegistry", "register_schemas", "subjects"]

_AVRO = "AVRO"
_POSITION_ROW = "row_position"  # every changelog holds one a partition, whatever its rows are
# Some seconds in all before an outage is told: a registry's restart takes longer anyway, and trying
# again is the business of whoever restarts us.
_CLIENT_OPTIONS = {
    "timeout": 5,
    "max.retries": 4,
    "retries.wait.ms": 200,
    "retries.max.wait.ms": 2_000,
}
# An id that nobody registered is asked for again after a while, not once a record.
_ABSENT_FOR_S = 30.0
_ABSENT_MAX = 100
_NO_SCHEMA = "is not in the registry"
_REFERENCES_DEPTH_MAX = 16


class SchemaRegistry:
    """The ids of our schemas, and the schemas of other ids; a `RegistryIds` of the codec.

    It keeps one connection, which closes with it: nobody has to stop it.
    """

    def __init__(self, url: str, schemas: SchemaSet) -> None:
        self._url = url
        self.schemas = schemas
        self._client = SchemaRegistryClient({"url": url, **_CLIENT_OPTIONS})
        self._ids: dict[str, int] = {}
        self._writers: dict[int, Schema] = {}
        self._absent_until_s: dict[int, float] = {}
        weakref.finalize(self, self._client.close)

    def register(self, subject: str, stem: str) -> None:
        """Register the current schema `stem` under `subject`; does nothing when it is there.

        Raises: BrokerError, see `register_schemas`.
        """
        schema = self.schemas[stem]
        text = json.dumps(schema.definition, separators=(",", ":"))
        with _outages_named(self._url, f"subject {subject}"):
            schema_id = self._client.register_schema(subject, RegisteredSchema(text, _AVRO))
        # One text has one id under every subject; should a registry differ, the first will do.
        self._ids.setdefault(stem, schema_id)
        self._writers[schema_id] = schema

    def id_of(self, stem: str, /) -> int:
        """Return the id of the current schema `stem`; SchemaError when no topic carries it."""
        try:
            return self._ids[stem]
        except KeyError:
            message = f"{stem}.avsc: no declared topic carries it, so it has no subject and no id"
            raise SchemaError(message) from None

    def writer(self, schema_id: int, /) -> Schema | None:
        """Return the schema of `schema_id`, or None when the registry has none.

        An id that was not seen before is asked for, which blocks for some ten seconds at most.
        Raises: SchemaError when the schema is not of a kind that can be read here; BrokerError when
        the registry does not answer.
        """
        found = self._writers.get(schema_id)
        if found is None and not self._is_absent(schema_id):
            found = self._fetch(schema_id)
        return found

    def _is_absent(self, schema_id: int) -> bool:
        return self._absent_until_s.get(schema_id, 0.0) > time.monotonic()

    def _fetch(self, schema_id: int) -> Schema | None:
        with _outages_named(self._url, f"id {schema_id}"):
            try:
                registered = self._client.get_schema(schema_id)
            except SchemaRegistryError as error:
                if error.http_status_code != 404:
                    raise
                if len(self._absent_until_s) >= _ABSENT_MAX:
                    self._absent_until_s.clear()
                self._absent_until_s[schema_id] = time.monotonic() + _ABSENT_FOR_S
                return None
        found = self._writers[schema_id] = _read_schema(registered)
        return found


class ForeignSchemas:
    """Avro schemas that others registered, by id; kept as long as the process runs."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = SchemaRegistryClient({"url": url, **_CLIENT_OPTIONS})
        self._parsed: dict[int, Any] = {}
        self._absent_until_s: dict[int, float] = {}
        weakref.finalize(self, self._client.close)

    def parsed(self, schema_id: int, /) -> Any:  # noqa: ANN401 - fastavro's form of a schema
        """Return the schema in fastavro's form.

        Raises: SchemaError when there is none, or none that can be read; BrokerError when the
        registry does not answer.
        """
        if schema_id not in self._parsed:
            if self._absent_until_s.get(schema_id, 0.0) > time.monotonic():
                raise SchemaError(_NO_SCHEMA)
            self._parsed[schema_id] = self._fetch(schema_id)
        found = self._parsed[schema_id]
        if isinstance(found, SchemaError):
            raise found
        return found

    def _fetch(self, schema_id: int) -> Any:  # noqa: ANN401 - as above, or why it cannot be read
        named: dict[str, Any] = {}
        with _outages_named(self._url, f"id {schema_id}"):
            try:
                registered = self._client.get_schema(schema_id)
                self._follow(registered, named, 0)
            except SchemaRegistryError as error:
                if error.http_status_code != 404:
                    raise
                if len(self._absent_until_s) >= _ABSENT_MAX:
                    self._absent_until_s.clear()
                self._absent_until_s[schema_id] = time.monotonic() + _ABSENT_FOR_S
                raise SchemaError(_NO_SCHEMA) from error
            except SchemaError as error:
                return error
        try:
            return _parse_foreign(registered, named)
        except SchemaError as error:
            return error

    def _follow(self, registered: RegisteredSchema, named: dict[str, Any], depth: int) -> None:
        """Parse what a schema refers to, innermost first."""
        for reference in (registered.references or ()) if depth < _REFERENCES_DEPTH_MAX else ():
            subject, version = reference.subject, reference.version
            if subject is None or version is None:
                continue  # parsing says which name is missing
            found = self._client.get_version(subject, version).schema
            if found is not None:
                self._follow(found, named, depth + 1)
                _parse_foreign(found, named)


def _parse_foreign(registered: RegisteredSchema, named: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return a schema in fastavro's form; names that it defines are added.  Raises SchemaError."""
    if registered.schema_type not in {None, _AVRO}:
        raise SchemaError(f"is of type {registered.schema_type}, expected {_AVRO}")
    try:
        return parse_schema(json.loads(registered.schema_str or ""), named_schemas=named)
    except Exception as error:  # a library's, over a schema of somebody else's
        reason = f"{type(error).__name__}: {error}"[:200]
        raise SchemaError(f"is no Avro schema that can be read ({reason})") from error


def register_schemas(
    settings: Settings, *, schemas: SchemaSet | None = None, topology: Topology = TOPOLOGY
) -> SchemaRegistry:
    """Register the schema of every record that a declared topic carries, and return their ids.

    Blocks: some milliseconds a subject, some ten seconds when the registry is down.
    Raises: ConfigError without SCHEMA_REGISTRY_URL; BrokerError when the registry does not answer
    (retryable) or refuses a schema, which it does when it is incompatible with what it has.
    """
    url = settings.schema_registry_url
    if url is None:
        raise ConfigError("SCHEMA_REGISTRY_URL is not set: there is no registry to register with")
    registry = SchemaRegistry(url, SchemaSet.load() if schemas is None else schemas)
    for subject, stem in subjects(topology, registry.schemas):
        registry.register(subject, stem)
    return registry


def subjects(topology: Topology, schemas: SchemaSet) -> list[tuple[str, str]]:
    """Return (subject, schema stem) of every kind of record on every declared topic, sorted.

    A record of a topic family has one subject, its full name: the family's members come and go.
    """
    families = {topic.name for topic in topology.topics if topic.is_family}
    carried = {(topic, stem) for (topic, _kind), stem in topology.kinds.items()}
    for stage in topology.stages:
        carried.add((stage.changelog, _POSITION_ROW))
        carried.update((stage.changelog, row.schema) for row in stage.table.rows)
    named = {
        (
            schemas[stem].full_name if topic in families else f"{topic}-{schemas[stem].full_name}",
            stem,
        )
        for topic, stem in carried
    }
    return sorted(named)


def _read_schema(registered: RegisteredSchema) -> Schema:
    """Read a registered schema; SchemaError when it is not an Avro record of its own."""
    if registered.schema_type not in {None, _AVRO} or registered.references:
        raise SchemaError("the registered schema is not one Avro record without references")
    try:
        definition = json.loads(registered.schema_str or "")
        name = str(definition["name"]).rpartition(".")[2]
    except (ValueError, TypeError, KeyError) as error:
        raise SchemaError("the registered schema is not an Avro record") from error
    return make_schema(class_stem(name), definition)


@contextmanager
def _outages_named(url: str, what: str) -> Iterator[None]:
    place = _without_secrets(url)
    try:
        yield
    except TransportError as error:
        raise BrokerError(
            f"no answer from the schema registry at {place} for {what} ({type(error).__name__})",
            retryable=True,
            remedy="check SCHEMA_REGISTRY_URL and that the registry is up",
        ) from error
    except SchemaRegistryError as error:
        outage = error.http_status_code >= 500 or error.http_status_code == 429
        raise BrokerError(
            f"the schema registry at {place} refused {what}: {error.error_message} "
            f"(HTTP {error.http_status_code})",
            retryable=outage,
            remedy=None if outage else "check the registry's rights, mode and compatibility level",
        ) from error


def _without_secrets(url: str) -> str:
    """Return addresses without user and password."""
    parts = [urlsplit(each.strip()) for each in url.split(",")]
    return ",".join(
        f"{part.scheme}://{part.netloc.rpartition('@')[2]}{part.path}" for part in parts
    )
