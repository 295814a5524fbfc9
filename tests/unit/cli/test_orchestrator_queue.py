"""`harn orchestrator queue`: what is refused before anything is asked of a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams.cli.orchestrator_queue import app
from streams.errors import ConfigError


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("purge", "triage"), "purging 'triage' removes its jobs, and nothing was removed"),
        (("purge", " ", "--confirm"), "QUEUE is blank"),
        (("drain", ""), "QUEUE is blank"),
        (("drain", "triage", "--consumer-id", " "), "--consumer-id is ' '"),
        (("drain", "triage", "--claim-ttl", "5x"), "--claim-ttl: is '5x'"),
        (("drain", "triage", "--claim-ttl", "500ms"), "expected at least 1s"),
    ],
)
def test_refused(arguments: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["--state-dir", str(tmp_path / "state"), *arguments])
    assert isinstance(done.exception, ConfigError), done.output
    assert problem in str(done.exception)
    assert not (tmp_path / "state").exists(), "no broker was started for it"
