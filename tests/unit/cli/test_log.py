import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from streams.cli.log import app
from streams.cli.log_query import Start, parse_query, parse_start
from streams.cli.log_record import ShownRecord, show_record
from streams.codec import Codec
from streams.edge.topic_reader import ReadRecord
from streams.errors import ConfigError
from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.mock_cluster import mock_cluster

CODEC = Codec()
TOPIC = "trigger.inbox.envelopes"
AT_MS = 1_795_829_114_816


def envelope(event_id: str, payload: str = "null", **changes: Any) -> bytes:
    event = {
        "id": event_id,
        "provider": "github",
        "kind": "push",
        "received_at": "2026-11-28T01:25:14.816Z",
        "trace_id": "trace_1",
        "headers": {},
        "provider_payload": payload,
        **changes,
    }
    return CODEC.encode("event_ingested", {"event": event})


def record(value: bytes | None, **changes: Any) -> ReadRecord:
    fields: dict[str, Any] = {
        "partition": 3,
        "offset": 42,
        "timestamp": AT_MS,
        "key": b"github:a",
        "value": value,
        "headers": [("kind", b"event_ingested"), ("tenant_id", b"acme")],
        **changes,
    }
    return ReadRecord(**fields)


def shown(value: bytes | None, **changes: Any) -> ShownRecord:
    return show_record(record(value, **changes), TOPIC, CODEC)


# ---------------------------------------------------------------------- one record
def test_a_record_is_one_line_with_its_position_and_decoded_value() -> None:
    line = shown(envelope("e1")).line().plain
    assert line.startswith(
        f"2026-11-28T01:25:14.816Z {TOPIC}/3/42 event_ingested key=github:a tenant_id=acme {{"
    )
    assert '"id":"e1"' in line
    assert "\n" not in line


def test_a_document_has_everything_that_the_log_has() -> None:
    document = shown(envelope("e1")).document()
    assert document["position"] == f"{TOPIC}/3/42"
    assert (document["partition"], document["offset"]) == (3, 42)
    assert (document["kind"], document["schema"]) == ("event_ingested", "event_ingested")
    assert document["headers"] == {"kind": "event_ingested", "tenant_id": "acme"}
    assert document["value"]["event"]["id"] == "e1"
    assert "undecodable" not in document


def test_bytes_are_shown_as_hex_wherever_they_are() -> None:
    found = shown(envelope("e1", raw_body=b"\x00\xff"))
    assert found.document()["value"]["event"]["raw_body"] == "00ff"


def test_what_cannot_be_decoded_is_shown_as_what_it_is() -> None:
    found = shown(b"garbage" * 100)
    assert found.value is None
    assert found.document()["undecodable"] == {
        "reason": "unknown_frame: begins with 6761; expected c301 or 00",
        "size": 700,
        "head": (b"garbage" * 100)[:32].hex(),
    }
    assert "undecodable: unknown_frame" in found.line().plain
    assert f"{TOPIC}/3/42" in found.line().plain


def test_a_tombstone_and_an_odd_key_are_shown() -> None:
    line = shown(None, key=b"\0seq\xff", headers=[]).line().plain
    assert line.endswith(f"{TOPIC}/3/42 - key=\\x00seq\\xff tombstone")


def test_a_record_without_a_kind_is_of_its_schema_s() -> None:
    assert shown(envelope("e1"), headers=[]).kind == "event_ingested"


# ---------------------------------------------------------------------- which records
def takes(found: ShownRecord, **wanted: str) -> bool:
    options = {"kind": None, "key": None, "event_id": None, "where": None, **wanted}
    return parse_query(**options).takes(found)


def test_a_query_takes_what_fits_in_everything_asked() -> None:
    found = shown(envelope("e1", '{"issue": {"number": 7}, "ok": false}'))
    assert takes(found)
    assert takes(found, kind="event_ingested", key="github:a", event_id="e1")
    assert not takes(found, kind="tick")
    assert not takes(found, key="github")
    assert not takes(found, event_id="e2")
    assert not takes(found, kind="event_ingested", event_id="e2")


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("value.event.kind == 'push'", True),
        ("value.event.kind == 'pull'", False),
        ("payload.issue.number == `7`", True),
        ("payload.issue.number > `6` && headers.tenant_id == 'acme'", True),
        ("payload.ok", False),
        ("payload.missing", False),
        ("payload.zero", True),
        ("partition", True),
        ("length(value.event.kind) == `4`", True),
        ("length(partition)", False),
    ],
)
def test_where_is_jmespath_over_the_document_and_the_payload(where: str, holds: bool) -> None:
    payload = '{"issue": {"number": 7}, "ok": false, "zero": 0}'
    assert takes(shown(envelope("e1", payload)), where=where) is holds


def test_where_bears_records_without_value_and_payloads_that_are_no_json() -> None:
    assert not takes(shown(None), where="payload.a")
    assert not takes(shown(b"garbage"), where="payload.a")
    assert takes(shown(envelope("e1", "{")), where="value.event.id == 'e1'")


def test_an_event_is_found_in_whatever_is_about_it() -> None:
    outbox = CODEC.encode(
        "lifecycle_event_deduplicated",
        {"event_id": "e2", "provider": "x", "dedupe_key": "d", "first_event_id": "e1"},
    )
    assert shown(outbox).event_ids == {"e1", "e2"}
    assert shown(envelope("e3")).event_ids == {"e3"}


def test_a_wrong_expression_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--where is no JMESPath expression: .*[^:]$"):
        parse_query(kind=None, key=None, event_id=None, where="a ==")


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("event.kind == 'push'", "'event' is not known: an expression sees `topic`, .*`payload`"),
        ("nosuch(value)", "there is no function 'nosuch'"),
        ("length(value, key)", "'length' is given 2 arguments, expected 1"),
    ],
)
def test_names_that_no_record_has_are_refused(where: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_query(kind=None, key=None, event_id=None, where=where)


# ---------------------------------------------------------------------- where to begin
@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Start(offset=0)),
        ("end", Start(newest=0)),
        ("-20", Start(newest=20)),
        ("1042", Start(offset=1042)),
        ("2026-11-28T01:25:14.816Z", Start(timestamp_ms=AT_MS)),
        ("2026-11-28T02:25:14.816+01:00", Start(timestamp_ms=AT_MS)),
        ("2026-11-28T01:25:14.816", Start(timestamp_ms=AT_MS)),
        ("2026-11-28", Start(timestamp_ms=AT_MS // 86_400_000 * 86_400_000)),
    ],
)
def test_a_start_is_read(text: str, start: Start) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize(
    "text", ["", "yesterday", "1.5", "-", "--5", "2026-13-01T00:00:00Z", "2026-W48"]
)
def test_a_start_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--from is .*, expected beginning, end, an offset"):
        parse_start(text)


# ---------------------------------------------------------------------- the command
@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with mock_cluster() as address:
        producer = make_producer(Settings(bootstrap=address))
        for number in range(30):
            producer.produce(
                TOPIC,
                envelope(f"e{number}"),
                b"k%d" % (number % 2),
                headers=[("kind", b"event_ingested")],
                partition=number % 2,
            )
        producer.produce(TOPIC, b"garbage", b"k2", partition=2)
        producer.flush()
        yield address


def tail(bootstrap: str, *options: str) -> list[dict[str, Any]]:
    environment = {"KAFKA_BOOTSTRAP_SERVERS": bootstrap}
    result = CliRunner().invoke(app, ["tail", TOPIC, "--json", *options], env=environment)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_tail_prints_a_topic_to_its_end(bootstrap: str) -> None:
    found = tail(bootstrap, "--from", "beginning")
    assert len(found) == 31
    for partition, count in ((0, 15), (1, 15), (2, 1)):
        offsets = [each["offset"] for each in found if each["partition"] == partition]
        assert offsets == list(range(count)), "in order within a partition"
    assert ["undecodable" in each for each in found].count(True) == 1


def test_tail_begins_where_it_is_told(bootstrap: str) -> None:
    assert len(tail(bootstrap)) == 31, "all of a topic with few records"
    assert len(tail(bootstrap, "--from", "-2")) == 5, "the newest two of each partition"
    assert len(tail(bootstrap, "--from", "14")) == 2
    assert tail(bootstrap, "--from", "end") == []
    assert tail(bootstrap, "--from", "9999") == []


def test_tail_prints_what_fits_and_no_more_than_the_limit(bootstrap: str) -> None:
    assert [each["value"]["event"]["id"] for each in tail(bootstrap, "--event", "e7")] == ["e7"]
    assert len(tail(bootstrap, "--key", "k1")) == 15
    assert len(tail(bootstrap, "--kind", "event_ingested", "--limit", "4")) == 4
    assert {each["partition"] for each in tail(bootstrap, "--partition", "1")} == {1}
    assert tail(bootstrap, "--where", "value.event.id == 'none'") == []


def test_tail_follows_until_it_has_enough(bootstrap: str) -> None:
    assert len(tail(bootstrap, "--from", "beginning", "--follow", "--limit", "31")) == 31


def refused(bootstrap: str, *arguments: str) -> Exception:
    environment = {"KAFKA_BOOTSTRAP_SERVERS": bootstrap}
    result = CliRunner().invoke(app, ["tail", *arguments], env=environment)
    assert isinstance(result.exception, Exception), result.output
    return result.exception


def test_a_partition_that_is_not_there_is_refused(bootstrap: str) -> None:
    error = refused(bootstrap, TOPIC, "--partition", "4")
    assert isinstance(error, ConfigError)
    assert str(error) == f"--partition is 4, but {TOPIC} has partitions 0 to 3"
