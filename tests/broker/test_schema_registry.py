"""Confluent's wire format against a real registry and Confluent's own serializers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings

from schemas import SchemaSet
from streams.codec import Codec, DecodeError
from streams.edge.schema_registry import SchemaRegistry, register_schemas, subjects
from streams.errors import BrokerError
from streams.settings import Settings
from tests.support.apicurio import Apicurio, running_registry
from tests.support.avro_values import example_of, values_of
from tests.support.schema_folder import copied_schemas, field
from topology import TOPOLOGY

# The first run fetches the registry; each start of it is bounded by itself.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

SCHEMAS = SchemaSet.load()
SUBJECTS = subjects(TOPOLOGY, SCHEMAS)
TOPIC_OF = {stem: subject.rpartition("-harn.streams.")[0] for subject, stem in SUBJECTS}
FILL = {"boolean": True, "int": 3, "long": 1_700_000_000_000, "bytes": b"\x00\xff", "string": "é"}


@pytest.fixture(scope="module")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    folder = tmp_path_factory.mktemp("apicurio")
    with running_registry(Settings.from_env(), folder) as running:
        yield running


@pytest.fixture(scope="module")
def client(apicurio: Apicurio) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": apicurio.url}) as connected:
        yield connected


@pytest.fixture(scope="module")
def registry(apicurio: Apicurio) -> SchemaRegistry:
    return register_schemas(settings_for(apicurio))


@pytest.fixture(scope="module")
def codec(registry: SchemaRegistry) -> Codec:
    return Codec(SCHEMAS, registry)


def settings_for(apicurio: Apicurio) -> Settings:
    return Settings.from_env(lambda name: apicurio.url if name == "SCHEMA_REGISTRY_URL" else None)


def text_of(stem: str) -> str:
    return json.dumps(SCHEMAS[stem].definition, separators=(",", ":"))


# Both are made by `__new__`, which a type checker takes for classes without arguments.
Serializer: Any = AvroSerializer
Deserializer: Any = AvroDeserializer


def serializer(client: SchemaRegistryClient, stem: str) -> Any:
    in_families = not TOPIC_OF[stem]  # one subject for all members: the record's full name
    conf = {
        "auto.register.schemas": False,
        "subject.name.strategy": record_subject_name_strategy
        if in_families
        else topic_record_subject_name_strategy,
    }
    return Serializer(client, text_of(stem), conf=conf)


def context(stem: str) -> SerializationContext:
    return SerializationContext(TOPIC_OF[stem], MessageField.VALUE)


def test_every_record_of_every_topic_is_registered_under_its_own_subject(
    registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    assert set(client.get_subjects()) >= {subject for subject, _stem in SUBJECTS}
    for subject, stem in SUBJECTS:
        found = client.lookup_schema(subject, Schema(text_of(stem), "AVRO"))
        assert found.schema_id == registry.id_of(stem)
    assert ("trigger.inbox.envelopes-harn.streams.EventIngested", "event_ingested") in SUBJECTS
    assert ("inbox-inbox-changelog-harn.streams.RowPosition", "row_position") in SUBJECTS


def test_registering_again_changes_nothing(
    apicurio: Apicurio, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    again = register_schemas(settings_for(apicurio))
    assert [again.id_of(stem) for stem in TOPIC_OF] == [registry.id_of(stem) for stem in TOPIC_OF]
    assert all(client.get_versions(subject) == [1] for subject, _stem in SUBJECTS)


@pytest.mark.parametrize("stem", TOPIC_OF)
def test_bytes_equal_those_of_confluents_serializer_and_its_deserializer_reads_them(
    stem: str, codec: Codec, client: SchemaRegistryClient
) -> None:
    # Confluent's writes a map as it was built, so build it in order.
    value = codec.decode(codec.encode(stem, example_of(SCHEMAS[stem].shape, FILL.__getitem__)))[1]
    ours = codec.encode(stem, value)
    assert serializer(client, stem)(value, context(stem)) == ours
    assert Deserializer(client)(ours, context(stem)) == value
    assert codec.decode(ours) == (stem, value)


@given(value=values_of(SCHEMAS["event_ingested"].shape))
@settings(max_examples=50)
def test_any_event_is_the_same_bytes_in_both(
    value: dict[str, Any], codec: Codec, client: SchemaRegistryClient
) -> None:
    stem = "event_ingested"
    headers = value["event"]["headers"]
    value["event"]["headers"] = {name: headers[name] for name in sorted(headers)}
    ours = codec.encode(stem, value)
    assert serializer(client, stem)(value, context(stem)) == ours
    assert Deserializer(client)(ours, context(stem)) == value


def test_a_compatible_change_passes_the_registrys_check_and_a_rename_does_not(
    client: SchemaRegistryClient, registry: SchemaRegistry, tmp_path: Any
) -> None:
    subject = next(subject for subject, stem in SUBJECTS if stem == "tick")
    assert registry.id_of("tick") == client.get_latest_version(subject).schema_id
    client.set_compatibility(subject, "FULL")

    def add(definition: dict[str, Any]) -> None:
        entry = {"name": "why", "type": ["null", "string"], "doc": "New.", "default": None}
        definition["fields"].append(entry)

    def check(change: Any) -> bool:
        definition = copied_schemas(tmp_path, "tick", change)["tick"].definition
        return client.test_compatibility(subject, Schema(json.dumps(definition), "AVRO"))

    assert check(add)
    assert not check(lambda definition: field(definition, "due_ms").update(name="at_ms"))


def test_a_schema_that_the_registry_refuses_is_named(
    apicurio: Apicurio, registry: SchemaRegistry, client: SchemaRegistryClient, tmp_path: Any
) -> None:
    del registry
    client.set_compatibility(None, "FULL")
    renamed = copied_schemas(
        tmp_path, "stage_skip", lambda definition: field(definition, "reason").update(name="why")
    )
    with pytest.raises(BrokerError, match=r"refused subject .*harn\.streams\.StageSkip") as caught:
        register_schemas(settings_for(apicurio), schemas=renamed)
    assert not caught.value.retryable


def test_a_newer_releases_record_is_read_by_its_id(
    codec: Codec, client: SchemaRegistryClient, tmp_path: Any
) -> None:
    def change(definition: dict[str, Any]) -> None:
        definition["fields"].insert(
            0, {"name": "why", "type": "string", "doc": "New.", "default": ""}
        )

    newer = copied_schemas(tmp_path, "revision_broadcast", change)
    text = json.dumps(newer["revision_broadcast"].definition)
    schema_id = client.register_schema("elsewhere", Schema(text, "AVRO"))
    value = example_of(newer["revision_broadcast"].shape, FILL.__getitem__)
    body = Codec(newer).encode("revision_broadcast", value)[10:]
    stem, read = codec.decode(b"\x00" + schema_id.to_bytes(4, "big") + body)
    del value["why"]
    assert (stem, read) == ("revision_broadcast", value)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (Schema('{"type":"record","name":"Else","fields":[{"name":"x","type":"int"}]}'), "Else"),
        (Schema('"string"', "AVRO"), "not an Avro record"),
        (
            Schema('{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}', "JSON"),
            "not one Avro record",
        ),
        (
            Schema(
                '{"type":"record","name":"Tick","namespace":"harn.streams",'
                '"fields":[{"name":"due_ms","type":"double"}]}',
                "AVRO",
            ),
            "found 'double'",
        ),
        (
            Schema(
                '{"type":"record","name":"Tick","namespace":"harn.streams",'
                '"fields":[{"name":"due_ms","type":"bytes"}]}',
                "AVRO",
            ),
            "the current one cannot read",
        ),
    ],
)
def test_a_schema_that_is_none_of_ours_makes_its_records_unknown(
    codec: Codec, client: SchemaRegistryClient, schema: Schema, reason: str
) -> None:
    schema_id = client.register_schema(f"stranger-{reason}", schema)
    with pytest.raises(DecodeError, match=reason) as caught:
        codec.decode(b"\x00" + schema_id.to_bytes(4, "big") + b"\x02a")
    assert caught.value.code == "unknown_schema"


def test_an_id_that_nobody_registered_is_unknown(codec: Codec) -> None:
    with pytest.raises(DecodeError, match="registry id 987654") as caught:
        codec.decode(b"\x00" + (987_654).to_bytes(4, "big") + b"\x02")
    assert caught.value.code == "unknown_schema"


def test_what_is_known_keeps_working_while_the_registry_is_down(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("stopped")
    with running_registry(Settings.from_env(), folder) as running:
        where = settings_for(running)
        codec = Codec(SCHEMAS, register_schemas(where))
    for stem in TOPIC_OF:
        value = example_of(SCHEMAS[stem].shape, FILL.__getitem__)
        assert codec.decode(codec.encode(stem, value)) == (stem, value)
    with pytest.raises(
        BrokerError, match=r"no answer from the schema registry .* for id 777777"
    ) as at:
        codec.decode(b"\x00" + (777_777).to_bytes(4, "big") + b"\x02")
    assert at.value.retryable
    with pytest.raises(BrokerError, match=f"no answer .* for subject {SUBJECTS[0][0]}") as at:
        register_schemas(where)
    assert at.value.retryable
