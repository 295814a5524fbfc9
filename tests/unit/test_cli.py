"""The command line: groups found, errors turned into exit codes, nothing for people in a pipe."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import pytest
import typer

from streams import __version__
from streams.cli.main import GROUPS, main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | str | None, str, str]:
    """Run `harn` in this process; return its exit code, output and errors."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    said = capsys.readouterr()
    return stopped.value.code, said.out, said.err


def test_the_overview_names_every_group_with_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")

    assert code == 0
    for group, text in GROUPS.items():
        assert f"{group} " in out
        assert text in " ".join(out.split())


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_exists_and_shows_its_help(
    capsys: pytest.CaptureFixture[str], group: str
) -> None:
    assert isinstance(importlib.import_module(f"streams.cli.{group}").app, typer.Typer)
    code, out, err = run(capsys, group, "--help")

    assert (code, err) == (0, "")
    assert f"Usage: harn {group}" in out


def test_an_expected_failure_is_a_message_a_remedy_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARN_PARTITIONS", "many")

    code, out, err = run(capsys, "settings")

    assert (code, out) == (2, "")
    assert err == (
        "harn: HARN_PARTITIONS is 'many', expected an integer from 1 to 1024\n"
        "  `harn settings` lists every variable\n"
    )


@pytest.mark.parametrize("command", [("doctor",), ("broker", "status"), ("broker", "logs")])
def test_a_state_folder_that_is_a_file_is_named(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: tuple[str, ...],
) -> None:
    state_dir = tmp_path / "state"
    state_dir.touch()
    monkeypatch.setenv("HARN_STATE_DIR", str(state_dir))

    code, out, err = run(capsys, *command)

    assert (code, out) == (5, "")
    assert f"cannot use {state_dir}/broker for the embedded Kafka: Not a directory" in err


def test_a_named_cluster_leaves_nothing_to_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "kafka.example:9092")

    code, _, err = run(capsys, "broker", "start")

    assert code == 2
    assert "kafka.example:9092" in err


def test_an_unknown_group_or_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "brokers")[0] == 2
    code, _, err = run(capsys, "broker", "status", "--yaml")
    assert code == 2
    assert "--yaml" in err


def test_the_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"harn-streams {__version__}\n", "")


def test_settings_are_listed_with_the_values_in_force(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARN_CHECKPOINT_RECORDS", "4321")

    code, out, _ = run(capsys, "settings")

    assert code == 0
    (line,) = (each for each in out.splitlines() if each.startswith("HARN_CHECKPOINT_RECORDS"))
    assert line.split()[1:3] == ["4321", "1000000"]
