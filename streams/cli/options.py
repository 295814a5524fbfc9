"""What every command group shares: its common options, settings from them, and where to print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from streams.edge.handlers import MANIFEST_NAME
from streams.settings import Settings

__all__ = ["StateDir", "manifest_of", "notice", "screen", "settings_from"]

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        help="State directory (HARN_STATE_DIR); holds the embedded broker and table stores.",
        show_default=False,
    ),
]


def settings_from(*, state_dir: Path | None = None, **options: Any) -> Settings:  # noqa: ANN401
    """Read the settings; options that were given win over the environment, None means not given.

    What is set to no effect is told on standard error.  Raises ConfigError.
    """
    given = {"state_dir": state_dir, **options}
    settings = Settings.from_env(
        **{name: value for name, value in given.items() if value is not None}
    )
    for warning in settings.warnings:
        notice(f"harn: warning: {warning}")
    return settings


def manifest_of(settings: Settings, given: Path | None) -> Path:
    """Return the manifest that a command shall read: its option, else the setting, else the file.

    A manifest that was named and is not there is for the reader to refuse.
    """
    return given or settings.manifest or Path(MANIFEST_NAME)


def screen() -> Console:
    """Return the console for results; without a terminal it prints plain text, never wrapped."""
    if sys.stdout.isatty():
        return Console()
    return Console(no_color=True, highlight=False, markup=True, soft_wrap=True, width=10_000)


def notice(message: str) -> None:
    """Print a remark to standard error, so that results can be piped."""
    typer.echo(message, err=True)
