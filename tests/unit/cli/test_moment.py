"""Times as options take them: one form everywhere, UTC unless they say otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.cli.main import main
from streams.cli.moment import moment_ms, read_moment
from streams.errors import ConfigError

DAY_MS = 1_772_323_200_000
"""The first moment of 2026-03-01, UTC."""


@pytest.mark.parametrize(
    ("text", "after_ms"),
    [
        ("2026-03-01", 0),
        ("2026-03-01T00:00:00Z", 0),
        ("2026-03-01t00:00:00z", 0),
        ("2026-03-01 00:00", 0),
        ("2026-03-01T12:30", 45_000_000),
        ("2026-03-01T12:30:00.250Z", 45_000_250),
        ("2026-03-01T12:30:00.123456789Z", 45_000_123),
        ("2026-03-01T01:00:00+01:00", 0),
        ("2026-02-28T19:00-05:00", 0),
        ("1969-12-31T23:59:59.999Z", -DAY_MS),
        ("0001-01-01T00:00+23:59", -DAY_MS),
    ],
)
def test_a_time_is_read(text: str, after_ms: int) -> None:
    assert moment_ms(text) == DAY_MS + after_ms


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "2026", "2026-03", "20260301", "2026-W09-7", "1772323200"),
        *("2026-02-29", "2026-03-01T", "2026-03-01T12", "2026-03-01T25:00", "2026-03-01Z"),
        *("01.03.2026", "2026-3-1", "2026-03-01T12:30:00 UTC"),
    ],
)
def test_what_is_no_time_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--to is '.*', expected a time such as .*, or a date"):
        read_moment("--to", text)


@pytest.mark.parametrize(
    "command",
    [
        ("trigger", "replay", "--from", "monday"),
        ("trigger", "replay", "--to", "monday"),
        ("trigger", "show", "triage", "--at", "monday"),
        ("log", "tail", "trigger.outbox", "--from", "monday"),
    ],
)
def test_every_command_refuses_it_before_it_asks_the_broker(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(command)
    assert stopped.value.code == 2
    assert "is 'monday', expected" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_empty_span_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(("trigger", "replay", "--from", "2026-03-01", "--to", "2026-03-01T00:00:00Z"))
    assert stopped.value.code == 2
    assert "expected a time before --to" in capsys.readouterr().err
