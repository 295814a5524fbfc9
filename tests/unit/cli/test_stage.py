"""`harn stage`: what is wrong is said before any broker is looked for."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams.cli.stage import app
from streams.errors import ConfigError


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["resume", "nobody", "1"], "stage 'nobody' is unknown, expected one of dispatch, inbox"),
        (["skip", "trigger.outbox/1/2"], "trigger.outbox is no stage's mailbox, expected one of"),
        (["skip", "trigger.dispatches"], "position 'trigger.dispatches': expected"),
    ],
)
def test_a_word_about_nothing_that_is_a_stage_s_starts_no_broker(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, [*arguments, "--state-dir", str(tmp_path / "state")])
    assert isinstance(done.exception, ConfigError)
    assert said in str(done.exception)
    assert not (tmp_path / "state").exists()
