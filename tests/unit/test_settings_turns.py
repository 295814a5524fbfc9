"""Settings of agent turns: names that users know, and a word for what has no effect here."""

from __future__ import annotations

import pytest

from streams.cli.main import main
from streams.core.turn.words import TURNS
from streams.errors import ConfigError
from streams.provision import layout_of
from streams.settings import Settings
from topology import TOPOLOGY
from topology.edges import TURN_WORKER

DATABASE = "postgresql://harn:hunter2@db.example/turns"


def read(**variables: str) -> Settings:
    return Settings.from_env(variables.get)


def problems(**variables: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        read(**variables)
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "backend"),
    [("", "inline"), ("  ", "inline"), ("inline", "inline"), (" Queue ", "queue")],
)
def test_the_dispatch_backend_is_trimmed_and_inline_when_blank(text: str, backend: str) -> None:
    assert read(AGENT_DISPATCH_BACKEND=text).agent_dispatch_backend == backend


def test_what_is_no_backend_is_refused_with_variable_and_accepted_values() -> None:
    assert problems(AGENT_DISPATCH_BACKEND="both", TASK_QUEUE_BACKEND="redis") == (
        "AGENT_DISPATCH_BACKEND is 'both', expected one of inline, queue",
        "TASK_QUEUE_BACKEND is 'redis', expected one of auto, kafka, postgres, sqlite",
    )


@pytest.mark.parametrize(
    ("variables", "carrier"),
    [
        ({}, "kafka"),
        ({"TASK_QUEUE_BACKEND": "AUTO"}, "kafka"),
        ({"STATE_DB_URI": DATABASE}, "kafka"),
        ({"TASK_QUEUE_BACKEND": "SQLite"}, "sqlite"),
        ({"TASK_QUEUE_BACKEND": "postgres", "STATE_DB_URI": DATABASE}, "postgres"),
        ({"QUEUE_BACKEND": "sqlite"}, "sqlite"),
        ({"QUEUE_BACKEND": "auto"}, "kafka"),
        ({"QUEUE_BACKEND": "sqlite", "TASK_QUEUE_BACKEND": "kafka"}, "kafka"),
        ({"QUEUE_BACKEND": "postgres", "TASK_QUEUE_BACKEND": "kafka"}, "kafka"),
    ],
)
def test_kafka_carries_turns_unless_another_is_named(
    variables: dict[str, str], carrier: str
) -> None:
    assert read(**variables).turn_queue_backend == carrier


@pytest.mark.parametrize("variable", ["TASK_QUEUE_BACKEND", "QUEUE_BACKEND"])
def test_postgres_needs_to_be_told_where_it_is(variable: str) -> None:
    assert problems(**{variable: "postgres"}) == (
        f"{variable} is postgres, expected STATE_DB_URI to be set with it",
    )


@pytest.mark.parametrize("uri", ["mysql://db/turns", "db:5432", "postgresql://db/a b"])
def test_a_database_that_is_none_is_refused_and_its_password_not_shown(uri: str) -> None:
    assert problems(STATE_DB_URI=uri) == (
        "STATE_DB_URI is a secret value, expected a postgresql:// address",
    )


def test_the_password_of_the_database_is_shown_nowhere() -> None:
    settings = read(STATE_DB_URI=DATABASE)

    assert settings.state_db_uri == DATABASE
    assert "hunter2" not in repr(settings) + str(settings.describe())


def test_numbers_of_turns_have_their_defaults_and_bounds() -> None:
    settings = read()
    assert (settings.agent_turns_partitions, settings.claim_ttl_s) == (6, 3_600)
    assert (settings.turn_handover_s, settings.turns_max_beyond_prefix) == (60, 1_000)

    assert read(TURN_HANDOVER_S="0", CLAIM_TTL_S="1").turn_handover_s == 0
    assert problems(
        AGENT_TURNS_PARTITIONS="0",
        CLAIM_TTL_S="0",
        TURN_HANDOVER_S="86401",
        AGENT_TURNS_MAX_BEYOND_PREFIX="0",
    ) == (
        "AGENT_TURNS_PARTITIONS is '0', expected an integer from 1 to 1024",
        "CLAIM_TTL_S is '0', expected an integer from 1 to 604800",
        "TURN_HANDOVER_S is '86401', expected an integer from 0 to 86400",
        "AGENT_TURNS_MAX_BEYOND_PREFIX is '0', expected an integer from 1 to 100000",
    )


_FORMER = "QUEUE_BACKEND is the former name of TASK_QUEUE_BACKEND"


@pytest.mark.parametrize(
    ("variables", "warning"),
    [
        ({"QUEUE_BACKEND": "sqlite"}, f"{_FORMER}: write TASK_QUEUE_BACKEND=sqlite"),
        (
            {"QUEUE_BACKEND": "sqlite", "TASK_QUEUE_BACKEND": "kafka"},
            f"{_FORMER}: TASK_QUEUE_BACKEND=kafka wins, remove it",
        ),
        (
            {"KG_DAEMON_ROLE": "host"},
            "KG_DAEMON_ROLE is host, to no effect: this application has no graph daemon",
        ),
        (
            {"GATEWAY_WORKERS": "4"},
            "GATEWAY_WORKERS is 4, to no effect: run as many processes as are wanted",
        ),
    ],
)
def test_what_has_no_effect_is_told(variables: dict[str, str], warning: str) -> None:
    assert read(**variables).warnings == (warning,)


def test_there_is_nothing_to_tell_of_values_that_mean_what_is_done() -> None:
    assert read().warnings == ()
    assert read(KG_DAEMON_ROLE="client", GATEWAY_WORKERS="1").warnings == ()


def test_a_command_tells_it_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_WORKERS", "4")

    with pytest.raises(SystemExit):
        main(["settings"])

    said = capsys.readouterr()
    assert "harn: warning: GATEWAY_WORKERS is 4, to no effect" in said.err
    assert "warning" not in said.out


def test_settings_of_turns_survive_the_environment_of_a_child() -> None:
    settings = read(STATE_DB_URI=DATABASE, QUEUE_BACKEND="sqlite", GATEWAY_WORKERS="4")

    assert Settings.from_env(settings.environment().get) == settings


def test_the_api_of_turns_enqueues_them_or_runs_them_itself() -> None:
    assert read(AGENT_TURNS_API="ON", AGENT_DISPATCH_BACKEND="queue").serves_turns
    assert not read(AGENT_DISPATCH_BACKEND="queue").serves_turns
    assert read(AGENT_TURNS_API="on").runs_turns_inline
    assert not read(AGENT_DISPATCH_BACKEND="queue").runs_turns_inline


def test_8_08_turns_on_kafka_have_their_topic_group_and_partitions() -> None:
    settings = read(TASK_QUEUE_BACKEND="kafka", AGENT_TURNS_PARTITIONS="4")

    assert settings.turn_queue_backend == "kafka"
    assert layout_of(settings).partitions_of(TOPOLOGY.topic(TURNS)) == 4
    assert (TURNS, TURN_WORKER.group) == ("agent_turns", "agent-dispatch")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("", 604_800_000),
        ("0", 0),
        ("30s", 30_000),
        ("12H", 43_200_000),
        ("2w", 1_209_600_000),
        ("366d", 31_622_400_000),
    ],
)
def test_a_retention_is_a_duration_and_none_is_for_ever(text: str, ms: int) -> None:
    assert read(AGENT_JOB_RETENTION=text).agent_job_retention_ms == ms


@pytest.mark.parametrize(
    "text", ["7", "0d", "-1d", "1.5h", "367d", "9999999999w", "1 d", "forever"]
)
def test_what_is_no_retention_is_refused(text: str) -> None:
    expected = "a duration such as 30m, 12h, 7d or 2w, at most 366d, or 0"
    assert problems(AGENT_JOB_RETENTION=text) == (
        f"AGENT_JOB_RETENTION is {text!r}, expected {expected}",
    )
