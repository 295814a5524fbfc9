"""How the registry's answers and its silence are told; the real one is in the broker tests."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from schemas import SchemaError, SchemaSet
from streams.codec import Codec, DecodeError
from streams.edge.schema_registry import SchemaRegistry, register_schemas, subjects
from streams.errors import BrokerError, ConfigError
from streams.settings import Settings
from tests.support.registry_server import Server
from topology import TOPOLOGY, Topology

SCHEMAS = SchemaSet.load()
SMALL = Topology(topics=(TOPOLOGY.topic("trigger.inbox.envelopes"),), stages=())


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


def settings_for(url: str) -> Settings:
    return Settings.from_env(lambda name: url if name == "SCHEMA_REGISTRY_URL" else None)


def registered(server: Server, topology: Topology = SMALL) -> SchemaRegistry:
    url = f"http://user:secret@127.0.0.1:{server.port}/base"
    return register_schemas(settings_for(url), topology=topology)


def test_each_subject_is_registered_once_and_one_schema_has_one_id(server: Server) -> None:
    registry = registered(server, TOPOLOGY)
    expected = [
        f"POST /base/subjects/{subject}/versions" for subject, _ in subjects(TOPOLOGY, SCHEMAS)
    ]
    assert server.asked == expected
    ids = {registry.id_of(stem) for _, stem in subjects(TOPOLOGY, SCHEMAS)}
    assert len(ids) == len({stem for _, stem in subjects(TOPOLOGY, SCHEMAS)})


def test_a_schema_on_no_topic_has_no_id(server: Server) -> None:
    with pytest.raises(SchemaError, match=r"retry_policy\.avsc: no declared topic carries it"):
        registered(server).id_of("retry_policy")


def test_an_absent_id_is_asked_for_once_in_a_while_not_once_a_record(server: Server) -> None:
    codec = Codec(SCHEMAS, registered(server))
    for _ in range(3):
        with pytest.raises(DecodeError, match="registry id 999"):
            codec.decode(b"\x00" + (999).to_bytes(4, "big"))
    assert [each for each in server.asked if each.startswith("GET")] == [
        "GET /base/schemas/ids/999"
    ]


def test_what_is_remembered_of_absent_ids_is_bounded(server: Server) -> None:
    registry = registered(server)
    for schema_id in range(1_000, 1_101):
        assert registry.writer(schema_id) is None
    assert len(registry._absent_until_s) == 1


def test_a_schema_with_references_is_not_read(server: Server) -> None:
    references = [{"name": "x", "subject": "y", "version": 1}]
    record = {"type": "record", "name": "Tick", "fields": [{"name": "due_ms", "type": "long"}]}
    server.answers["/base/schemas/ids/700"] = (
        200,
        {"schema": json.dumps(record), "references": references},
    )
    with pytest.raises(SchemaError, match="not one Avro record without references"):
        registered(server).writer(700)


def test_javas_spelling_of_one_of_our_records_is_read(server: Server) -> None:
    text = {"type": "string", "avro.java.string": "String"}
    record = {
        "type": "record",
        "name": "harn.streams.StageResume",
        "fields": [
            {"name": "stage", "type": text},
            {"name": "partition", "type": {"type": "int"}},
            {"name": "requested_by", "type": text},
        ],
    }
    server.answers["/base/schemas/ids/700"] = (200, {"schema": json.dumps(record)})
    value = {"stage": "inbox", "partition": 1, "requested_by": "me"}
    body = Codec(SCHEMAS).encode("stage_resume", value)[10:]
    codec = Codec(SCHEMAS, registered(server))
    assert codec.decode(b"\x00" + (700).to_bytes(4, "big") + body) == ("stage_resume", value)


@pytest.mark.parametrize(
    ("status", "retryable"), [(401, False), (409, False), (422, False), (503, True)]
)
def test_a_refusal_names_place_subject_and_reason_but_no_secret(
    server: Server, status: int, retryable: bool
) -> None:
    server.refusal = (status, {"error_code": status, "message": "because of that"})
    with pytest.raises(BrokerError) as caught:
        registered(server)
    message = str(caught.value)
    assert f"the schema registry at http://127.0.0.1:{server.port}/base refused subject" in message
    assert f"because of that (HTTP {status})" in message
    assert "secret" not in message
    assert caught.value.retryable is retryable


def test_a_refusal_of_an_id_is_an_outage_of_the_registry_and_not_bad_data(server: Server) -> None:
    codec = Codec(SCHEMAS, registered(server))
    server.refusal = (401, {"error_code": 401, "message": "no longer"})
    with pytest.raises(BrokerError, match=r"refused id 700: no longer \(HTTP 401\)"):
        codec.decode(b"\x00" + (700).to_bytes(4, "big") + b"\x02")


def test_silence_is_a_retryable_outage(server: Server) -> None:
    server.stop()
    with pytest.raises(BrokerError, match="no answer from the schema registry at") as caught:
        registered(server)
    assert caught.value.retryable
    assert caught.value.remedy is not None


def test_without_an_address_there_is_nothing_to_register_with() -> None:
    with pytest.raises(ConfigError, match="SCHEMA_REGISTRY_URL is not set"):
        register_schemas(Settings.from_env(lambda _name: None))
