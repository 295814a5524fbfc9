"""Settings: read once, refused together, documented as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streams.cli.options import manifest_of
from streams.cli.settings import settings_markdown
from streams.errors import ConfigError
from streams.settings import Settings

ROOT = Path(__file__).parents[2]


def read(**variables: str) -> Settings:
    return Settings.from_env(variables.get)


def problems(**variables: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        read(**variables)
    return caught.value.problems


def test_without_any_variable_it_is_a_laptop_with_a_broker_of_its_own() -> None:
    settings = read()

    assert settings == Settings()
    assert settings.embedded
    assert (settings.partitions, settings.replication_factor, settings.min_insync_replicas) == (
        4,
        1,
        1,
    )


def test_a_named_cluster_gets_the_counts_of_a_cluster() -> None:
    settings = read(KAFKA_BOOTSTRAP_SERVERS="a:9092, b:9093")

    assert settings.bootstrap == "a:9092,b:9093"
    assert not settings.embedded
    assert (settings.partitions, settings.replication_factor, settings.min_insync_replicas) == (
        12,
        3,
        2,
    )


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("HARN_STATE_DIR", "~nobody-here/state", "expected a path"),
        ("KAFKA_SSL_CA_LOCATION", "~nobody-here/ca.crt", "expected"),
        ("KAFKA_SSL_CA_LOCATION", "x" * 5_000, "expected"),
    ],
)
def test_a_path_that_leads_nowhere_is_a_problem_and_no_accident(
    name: str, value: str, expected: str
) -> None:
    [problem] = problems(**{name: value})
    assert problem.startswith(f"{name} is ")
    assert expected in problem


def test_a_broker_of_ours_keeps_its_counts_when_its_address_is_known() -> None:
    assert read().with_bootstrap("127.0.0.1:1").partitions == 4


def test_defaults_follow_what_they_depend_on() -> None:
    assert read(HARN_SESSION_TIMEOUT_MS="10000").heartbeat_interval_ms == 1_666
    assert read(HARN_MAX_RECORD_BYTES="300000").http_max_body_bytes == 100_000
    cluster = {"KAFKA_BOOTSTRAP_SERVERS": "a:1", "HARN_REPLICATION_FACTOR": "1"}
    assert read(**cluster).min_insync_replicas == 1


def test_an_empty_variable_counts_as_unset() -> None:
    assert read(HARN_PARTITIONS="", KAFKA_BOOTSTRAP_SERVERS=" ") == Settings()


def test_every_problem_is_told_at_once_with_variable_value_and_expectation() -> None:
    assert problems(
        KAFKA_BOOTSTRAP_SERVERS="kafka",
        HARN_PARTITIONS="0",
        HARN_STORE="redis",
        SCHEMA_REGISTRY_URL="registry:8081",
        HARN_BUFFER_RECORDS="10",
    ) == (
        "KAFKA_BOOTSTRAP_SERVERS is 'kafka', expected host:port[,host:port...]",
        "SCHEMA_REGISTRY_URL is 'registry:8081', expected an http:// or https:// address",
        "HARN_PARTITIONS is '0', expected an integer from 1 to 1024",
        "HARN_STORE is 'redis', expected one of memory, rocksdb",
        "HARN_MAX_BATCH_RECORDS is 1000, expected at most HARN_BUFFER_RECORDS = 10",
    )


@pytest.mark.parametrize(
    ("variables", "expectation"),
    [
        ({"HARN_HEARTBEAT_INTERVAL_MS": "2001"}, "HARN_SESSION_TIMEOUT_MS / 3 = 2000"),
        ({"HARN_HTTP_MAX_BODY_BYTES": "300000", "HARN_MAX_RECORD_BYTES": "600000"}, "= 200000"),
        ({"HARN_MIN_INSYNC_REPLICAS": "2"}, "HARN_REPLICATION_FACTOR = 1"),
        ({"HARN_RETENTION_OUTPUT_MS": "9000000000"}, "HARN_RETENTION_AUDIT_MS = 2592000000"),
        ({"HARN_BUFFER_RECORDS": "10"}, "HARN_BUFFER_RECORDS = 10"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    variables: dict[str, str], expectation: str
) -> None:
    (problem,) = problems(**variables)
    assert problem.endswith(expectation)


def test_sasl_needs_all_of_its_parts_and_a_protocol_that_uses_them() -> None:
    cluster = {"KAFKA_BOOTSTRAP_SERVERS": "a:1"}
    user = {
        "KAFKA_SASL_MECHANISM": "PLAIN",
        "KAFKA_SASL_USERNAME": "u",
        "KAFKA_SASL_PASSWORD": "p",
    }

    assert (
        "KAFKA_SASL_PASSWORD to be set"
        in problems(**cluster, KAFKA_SECURITY_PROTOCOL="SASL_SSL")[0]
    )
    assert "expected KAFKA_SECURITY_PROTOCOL to be SASL_" in problems(**cluster, **user)[0]
    assert read(**cluster, **user, KAFKA_SECURITY_PROTOCOL="SASL_PLAINTEXT")


def test_a_security_protocol_without_a_cluster_is_refused() -> None:
    (problem,) = problems(KAFKA_SECURITY_PROTOCOL="SSL")
    assert "expected KAFKA_BOOTSTRAP_SERVERS to be set" in problem


def test_a_secret_is_shown_nowhere() -> None:
    settings = read(
        KAFKA_BOOTSTRAP_SERVERS="a:1",
        KAFKA_SECURITY_PROTOCOL="SASL_PLAINTEXT",
        KAFKA_SASL_MECHANISM="PLAIN",
        KAFKA_SASL_USERNAME="user",
        KAFKA_SASL_PASSWORD="hunter2",
    )

    (row,) = (each for each in settings.describe() if each.name == "kafka_sasl_password")
    assert row.value == "(set)"
    assert "hunter2" not in repr(settings) + str(settings.describe())


def test_an_address_with_a_password_is_told_without_it() -> None:
    settings = read(SCHEMA_REGISTRY_URL="https://user:hunter2@registry:8081")
    assert settings.schema_registry_url == "https://user:hunter2@registry:8081"
    (row,) = (each for each in settings.describe() if each.name == "schema_registry_url")
    assert row.value == "https://***@registry:8081"
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize(
    ("variable", "value", "shown"),
    [
        ("SCHEMA_REGISTRY_URL", "user:hunter2@registry", "***@registry"),
        ("SCHEMA_REGISTRY_URL", "ftp://user:hun,ter2@x/hunter2@registry", "ftp://***@registry"),
        ("KAFKA_BOOTSTRAP_SERVERS", "SASL://user:hunter2@kafka", "SASL://***@kafka"),
    ],
)
def test_an_address_that_is_refused_is_told_without_its_password(
    variable: str, value: str, shown: str
) -> None:
    (problem,) = problems(**{variable: value})
    assert problem.startswith(f"{variable} is '{shown}', expected ")


def test_options_win_over_the_environment() -> None:
    variables = {"HARN_HTTP_PORT": "1", "HARN_DRAIN_MS": "7"}

    settings = Settings.from_env(variables.get, http_port=2)

    assert (settings.http_port, settings.drain_ms) == (2, 7)


def test_the_environment_of_settings_reads_back_to_them() -> None:
    settings = replace(
        Settings(), bootstrap="a:1", instance_id="member-1", http_port=0, state_dir=Path("/x y")
    )

    assert Settings.from_env(settings.environment().get) == settings


def test_a_replacement_is_checked_as_a_whole() -> None:
    with pytest.raises(ConfigError, match="HARN_MIN_INSYNC_REPLICAS is 3"):
        replace(Settings(), min_insync_replicas=3)


def test_the_documentation_is_what_harn_settings_prints() -> None:
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    assert page == settings_markdown(), "run: harn settings --markdown > docs/settings.md"


def test_there_are_few_enough_settings_to_read() -> None:
    assert len(Settings().describe()) <= 75


def test_the_state_directory_has_a_longer_name_too_and_the_shorter_one_wins() -> None:
    assert read(HARN_ORCHESTRATOR_STATE_DIR="/srv/a").state_dir == Path("/srv/a")
    both = read(HARN_ORCHESTRATOR_STATE_DIR="/srv/a", HARN_STATE_DIR="/srv/b")
    assert both.state_dir == Path("/srv/b")
    assert Settings.from_env(both.environment().get) == both


def test_a_command_reads_the_manifest_it_is_given_else_that_of_the_environment() -> None:
    named = read(HARN_ORCHESTRATOR_MANIFEST="/srv/team-a.toml")
    assert manifest_of(named, Path("other.toml")) == Path("other.toml")
    assert manifest_of(named, None) == Path("/srv/team-a.toml")
    assert manifest_of(read(), None) == Path("harn.toml")
