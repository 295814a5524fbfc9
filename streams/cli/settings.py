"""`harn settings`: every setting, its variable, its value and what it means."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from streams.cli.options import StateDir, screen, settings_from
from streams.settings import Settings

__all__ = ["app", "settings_markdown"]

app = typer.Typer(help="List every setting, its variable and its value.")

_HEADER = """# Settings

Every setting is an environment variable, read once at start; an empty one counts as unset. A value
that cannot be used stops the command, and all of them are named at once. `harn settings` shows what
is in force. This page is written by `harn settings --markdown`.

| variable | default | takes | meaning |
|---|---|---|---|
"""


@app.command()
def show(
    state_dir: StateDir = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the page of the documentation instead.")
    ] = False,
) -> None:
    """List every setting, its variable and its value (secrets hidden)."""
    if markdown:
        typer.echo(settings_markdown(), nl=False)
        return
    table = Table("variable", "value", "default", "meaning", box=None, pad_edge=False)
    for row in settings_from(state_dir=state_dir).describe():
        table.add_row(row.env, row.value, row.default, row.doc)
    screen().print(table)


def settings_markdown() -> str:
    """Return docs/settings.md."""
    rows = "".join(
        f"| `{row.env}` | {row.default or 'unset'} | {row.expected} | {row.doc} |\n"
        for row in Settings().describe()
    )
    return _HEADER + rows
