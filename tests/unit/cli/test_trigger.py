import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from streams.cli.trigger import app
from streams.codec import Codec
from streams.core.record import Position
from streams.edge.topic_reader import TopicReader
from streams.errors import BrokerError, ConfigError, HarnError, ManifestError, TopologyError
from streams.kafka import make_producer
from streams.settings import Settings
from streams.testing import binding, policy
from tests.support.app_cluster import read
from tests.support.mock_cluster import mock_cluster
from tests.support.webhooks import with_path

CODEC = Codec()
ENVELOPES = "trigger.inbox.envelopes"
REGISTRY = "triggers.registry"
GITHUB = Path(__file__).parents[2] / "data" / "github-webhooks.jsonl.gz"


@contextmanager
def applied_cluster() -> Iterator[str]:
    """A cluster in memory whose registry has two triggers."""
    with mock_cluster() as address:
        producer = make_producer(Settings(bootstrap=address))
        producer.produce(
            REGISTRY,
            CODEC.encode(
                "manifest_applied",
                {
                    "apply_id": "apply_1",
                    "namespace": "default",
                    "expected_revision": 0,
                    "bindings": [
                        binding("on-issue", events=["issues.opened"]),
                        with_path(binding("on-push"), "/hooks/push"),
                    ],
                    "policy": policy(),
                    "applied_by": "test",
                },
            ),
            b"default",
            headers=[("kind", b"manifest_applied")],
            partition=0,
        )
        producer.flush()
        yield address


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with applied_cluster() as address:
        yield address


def run(bootstrap: str, *arguments: str, stdin: bytes | None = None) -> Result:
    # The cluster in memory makes every topic with four partitions.
    environment = {"KAFKA_BOOTSTRAP_SERVERS": bootstrap, "HARN_PARTITIONS": "4"}
    return CliRunner().invoke(app, list(arguments), env=environment, input=stdin)


def output(bootstrap: str, *arguments: str, stdin: bytes | None = None) -> str:
    result = run(bootstrap, *arguments, stdin=stdin)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def refused(bootstrap: str, *arguments: str) -> HarnError:
    result = run(bootstrap, *arguments)
    assert isinstance(result.exception, HarnError), (result.output, result.exception)
    return result.exception


def envelope(bootstrap: str, position: str) -> dict[str, Any]:
    at = Position.parse(position)
    with TopicReader(Settings(bootstrap=bootstrap), at.topic) as reader:
        reader.start_at({at.partition: at.offset})
        records = reader.read(30)
        while not records:  # a word of the connection's own came first
            records = reader.read(30)
    return CODEC.decode(records[0].value or b"")[1]


# ---------------------------------------------------------------------- the registry
def test_list_shows_every_binding_version(bootstrap: str) -> None:
    text = output(bootstrap, "list")
    assert text.splitlines()[0] == "revision 1 (broadcast 0)"
    assert "on-issue@v1" in text
    assert "issues.opened" in text
    assert "every kind at /webhooks/hooks/push" in text
    listed = json.loads(output(bootstrap, "list", "--json"))
    assert [each["binding_key"] for each in listed["bindings"]] == ["on-issue@v1", "on-push@v1"]
    assert {each["state"] for each in listed["bindings"]} == {"active"}
    assert listed["policy"] == policy()


def test_show_has_the_definition_and_an_unknown_id_a_suggestion(bootstrap: str) -> None:
    assert "on-issue@v1  active  since revision 1" in output(bootstrap, "show", "on-issue")
    shown = json.loads(output(bootstrap, "show", "on-issue", "--json"))
    assert shown["definition"]["match"] == {"events": ["issues.opened"]}
    error = refused(bootstrap, "show", "on-isue")
    assert str(error) == "trigger 'on-isue' is unknown; did you mean 'on-issue'?"


MANIFEST = """
[[triggers]]
id = "on-issue"
kind = "webhook"
provider = "github"
match = { events = ["issues.closed"] }
handler = "fn"
"""


def manifest(folder: Path, text: str = MANIFEST, lib: str = "def fn(event): ...") -> str:
    (folder / "harn.toml").write_text(text)
    (folder / "lib.py").write_text(lib)
    return str(folder)


def test_a_dry_run_shows_what_would_change(bootstrap: str, tmp_path: Path) -> None:
    folder = manifest(tmp_path)
    assert output(bootstrap, "apply", folder, "--dry-run").splitlines() == [
        "revision 2 of namespace default would be in force",
        "  + on-issue@v2",
        "  - on-issue@v1 (drains)",
        "  - on-push@v1 (drains)",
        "  ~ lease_ms: 15000 -> 24000",
    ]
    told = json.loads(output(bootstrap, "apply", folder, "--dry-run", "--keep-policy", "--json"))
    assert (told["answer"], told["dry_run"], told["revision"]) == ("published", True, 2)
    assert told["drained"] == ["on-issue@v1", "on-push@v1"]
    assert (told["policy_changes"], told["position"]) == ({}, None)
    assert output(bootstrap, "list").startswith("revision 1 "), "nothing was changed"


def test_an_apply_that_nobody_answers_says_so_and_what_to_do(tmp_path: Path) -> None:
    with applied_cluster() as address:
        error = refused(address, "apply", manifest(tmp_path), "--timeout", "1")
    assert isinstance(error, BrokerError)
    assert str(error).startswith(f"nobody answered the apply at {REGISTRY}/0/")
    assert error.remedy is not None
    assert "harn orchestrator serve" in error.remedy


def test_handlers_are_loaded_before_anything_is_asked(tmp_path: Path) -> None:
    error = refused("127.0.0.1:1", "apply", manifest(tmp_path, lib="def other(event): ..."))
    assert isinstance(error, ManifestError)
    assert "lib.py has no 'fn'" in str(error)


def test_a_policy_that_no_role_would_run_with_is_not_put_in_force(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARN_LEASE_MS", "5000")
    folder = manifest(tmp_path)
    for dry_run in ([], ["--dry-run"]):
        error = refused(bootstrap, "apply", folder, *dry_run)
        assert isinstance(error, TopologyError)
        assert str(error).startswith(
            "HARN_LEASE_MS: is 5000, expected >= 22000: twice the 11000 ms"
        )
    assert "lease_ms" not in output(bootstrap, "apply", folder, "--dry-run", "--keep-policy")


# ---------------------------------------------------------------------- emit
def test_an_emitted_event_is_where_it_is_said_to_be(bootstrap: str) -> None:
    options = ["--provider", "github", "--kind", "push", "--payload", '{"a": 1}']
    options += ["--dedupe-key", "d", "--tenant", "acme", "--header", "X-Token=s", "--header", "a=b"]
    event_id, position = output(bootstrap, "emit", *options, "--trigger", "on-push").split()
    found = envelope(bootstrap, position)
    assert found["event"]["id"] == event_id
    assert found["trigger_id"] == "on-push"
    assert found["event"]["provider_payload"] == '{"a": 1}'
    assert (found["event"]["dedupe_key"], found["event"]["tenant_id"]) == ("d", "acme")
    assert found["event"]["headers"] == {"a": "b", "x-token": "[redacted]"}


def test_an_event_or_a_replay_for_a_trigger_that_is_not_in_force_is_refused(
    bootstrap: str,
) -> None:
    """An event that names no trigger in force would match nothing, and nobody would be told."""
    event_of_one = ["emit", "--provider", "github", "--kind", "push"]
    for command in (event_of_one, ["replay", "trigger_evt_1"]):
        error = refused(bootstrap, *command, "--trigger", "on-isue")
        assert isinstance(error, ConfigError)
        said = "--trigger: trigger 'on-isue' is unknown; did you mean 'on-issue'?"
        assert str(error) == said
        assert error.remedy is not None
        assert "those in force (on-issue, on-push), or apply the manifest" in error.remedy


def test_an_unknown_trigger_is_not_drained_and_one_is_suggested(bootstrap: str) -> None:
    error = refused(bootstrap, "drain", "on-isue")
    assert (str(error), error.exit_code) == (
        "trigger 'on-isue' is unknown; did you mean 'on-issue'?",
        2,
    )


def test_an_audit_record_says_all_that_narrowed_what_was_chosen(bootstrap: str) -> None:
    span = ["--from", "2026-03-01T12:00:00+01:00", "--to", "2026-03-02"]
    replay = run(bootstrap, "replay", *span, "--trigger", "on-push", "--dry-run", "--json")
    one = ["trigger_evt_9", "--binding", "on-push@v1"]
    cancel = run(bootstrap, "cancel", *one, "--dry-run", "--json")
    asked = read(Settings(bootstrap=bootstrap), "trigger.operations.audit")
    audits = {entry.value["audit_id"]: entry.value for entry in asked}
    found = audits[json.loads(replay.stdout)["audit_id"]]
    assert found["accepted_from"] == "2026-03-01T11:00:00.000Z"
    assert found["accepted_before"] == "2026-03-02T00:00:00.000Z"
    assert (found["only_for"], found["filter"]) == ("on-push", None)
    found = audits[json.loads(cancel.stdout)["audit_id"]]
    assert found["only_for"] == "on-push@v1"
    assert (found["accepted_from"], found["accepted_before"]) == (None, None)


def test_dead_letters_are_listed_without_frames_for_who_reads_lines(bootstrap: str) -> None:
    [names] = output(bootstrap, "dlq", "list").splitlines()
    assert names.split()[:4] == ["entry", "moved", "trigger", "event"]


def test_a_cancel_for_a_binding_version_that_there_is_not_is_refused(bootstrap: str) -> None:
    error = refused(bootstrap, "cancel", "trigger_evt_1", "--binding", "on-isue@v1")
    assert str(error).startswith("--binding: trigger 'on-isue' is unknown; did you mean 'on-issue'")
    error = refused(bootstrap, "cancel", "trigger_evt_1", "--binding", "on-issue@v7")
    assert str(error) == "--binding: on-issue@v7 is unknown; there is on-issue@v1"
    assert isinstance(error, ConfigError)
    asked = ["cancel", "trigger_evt_1", "--binding", "on-issue@v1", "--json", "--dry-run"]
    report = json.loads(output(bootstrap, *asked))
    assert [each["latest_status"] for each in report["items"]] == ["not_come"]


def test_a_payload_comes_from_a_file_or_standard_input(bootstrap: str, tmp_path: Path) -> None:
    (tmp_path / "payload.json").write_text("[1]")
    options = ["emit", "--provider", "github", "--kind", "push", "--json", "--payload"]
    told = json.loads(output(bootstrap, *options, f"@{tmp_path}/payload.json"))
    assert envelope(bootstrap, told["position"])["event"]["provider_payload"] == "[1]"
    told = json.loads(output(bootstrap, *options, "-", stdin=b"[2]"))
    assert envelope(bootstrap, told["position"])["event"]["provider_payload"] == "[2]"


def test_count_sends_that_many_events_of_their_own(bootstrap: str) -> None:
    options = ["emit", "--provider", "github", "--kind", "push", "--count", "3"]
    lines = output(bootstrap, *options).splitlines()
    assert len({line.split()[0] for line in lines}) == 3
    assert output(bootstrap, *options, "--quiet") == "3 sent\n"


def test_a_file_of_deliveries_is_sent_line_by_line(bootstrap: str, tmp_path: Path) -> None:
    lines = gzip.decompress(GITHUB.read_bytes()).splitlines(keepends=True)
    plain = tmp_path / "deliveries.jsonl"
    plain.write_bytes(b"".join(lines[:20]))
    sent = output(bootstrap, "emit", "--file", str(GITHUB)).splitlines()
    assert len(sent) == len(lines) == 165
    first = envelope(bootstrap, sent[0].split()[1])["event"]
    assert (first["provider"], first["kind"]) == ("github", "branch_protection_rule.edited")
    again = output(bootstrap, "emit", "--file", str(plain)).splitlines()
    assert envelope(bootstrap, again[0].split()[1])["event"]["dedupe_key"] == first["dedupe_key"]
    new = output(bootstrap, "emit", "--file", str(plain), "--as-new", "--tenant", "t").splitlines()
    event = envelope(bootstrap, new[0].split()[1])["event"]
    assert (event["dedupe_key"], event["tenant_id"]) == (None, "t")


@pytest.mark.parametrize(
    ("options", "kind", "payload", "tenant_id"),
    [
        (
            ["--payload", '{"n": 1}', "--dedupe-key", "k"],
            "channel:tenant:default:orders",
            '{"channel":"orders","scope":"tenant","scope_id":"default","payload":{"n": 1}}',
            "default",
        ),
        (
            ["--tenant", "acme"],
            "channel:tenant:acme:orders",
            '{"channel":"orders","scope":"tenant","scope_id":"acme","payload":null}',
            "acme",
        ),
        (
            ["--scope", "session", "--scope-id", "s 1"],
            "channel:session:orders",
            '{"channel":"orders","scope":"session","scope_id":"s 1","payload":null}',
            None,
        ),
    ],
)
def test_a_payload_is_emitted_to_a_channel(
    bootstrap: str, options: list[str], kind: str, payload: str, tenant_id: str | None
) -> None:
    _, position = output(bootstrap, "emit", "--channel", "orders", *options).split()
    found = envelope(bootstrap, position)["event"]
    assert (found["provider"], found["kind"]) == ("channel", kind)
    assert (found["provider_payload"], found["tenant_id"]) == (payload, tenant_id)
    key = "channel:tenant:default:orders/default:k" if "--dedupe-key" in options else None
    assert found["dedupe_key"] == key


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--channel", "c", "--kind", "x"], "--kind cannot be given with --channel"),
        (["--channel", "c", "--provider", "x"], "--provider cannot be given with --channel"),
        (["--channel", "c", "--file", __file__], "--file cannot be given with --channel"),
        (["--channel", "a b"], "--channel: a channel's name is 1 to 100"),
        (["--channel", "c", "--scope", "user", "--scope-id", "1"], "scope is one of tenant, sess"),
        (["--channel", "c", "--scope", "session"], "--scope session needs --scope-id"),
        (["--channel", "c", "--payload", "{"], "--payload: is not JSON"),
        ([], "provider is missing"),
        (["--provider", "github"], "kind is missing"),
        (["--provider", "a b", "--kind", "x"], "provider: expected"),
        (["--provider", "x", "--kind", "y", "--payload", "{"], "--payload: is not JSON"),
        (["--provider", "x", "--kind", "y", "--payload", "@nowhere"], "@nowhere: cannot be read"),
        (["--provider", "x", "--kind", "y", "--header", "a"], "--header is 'a', expected name="),
        (["--file", "nowhere"], "--file is nowhere, expected an existing file"),
        (["--file", __file__, "--kind", "x"], "--kind cannot be given with --file"),
        (["--file", __file__], "test_trigger.py: line 1: the body is not JSON"),
        (
            ["--provider", "x", "--kind", "y", "--payload", '"' + "x" * 300_000 + '"'],
            "has 300002 bytes, expected at most 300000 (HARN_HTTP_MAX_BODY_BYTES)",
        ),
    ],
)
def test_what_cannot_be_sent_is_refused(bootstrap: str, options: list[str], problem: str) -> None:
    error = refused(bootstrap, "emit", *options)
    assert isinstance(error, ConfigError)
    assert problem in str(error)
