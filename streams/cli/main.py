"""The `harn` command: its groups, and the one place where an error becomes an exit code.

A group is the module `streams.cli.<group>` with a Typer named `app`.  Only the group being run is
imported, so that `harn broker status` does not pay for what the stages need.

Exit codes: 0 done; 1 a verdict of "no"; 2 usage or settings; 3 to 6 see `streams.errors`; 130
interrupted.  An expected failure prints its message and remedy, never a traceback.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from streams import __version__
from streams.collector import look_seldom
from streams.errors import HarnError
from streams.observe import logs

__all__ = ["GROUPS", "main", "run_and_exit"]

# One line of help each, so that the overview needs no group's module.
GROUPS = {
    "demo": "Show sample events flowing to handlers on a Kafka of its own.",
    "broker": "Start, stop and inspect the embedded Kafka broker.",
    "topology": "Plan, apply and describe topics and stages.",
    "orchestrator": "Run the roles.",
    "trigger": "Apply bindings and send events.",
    "queue": "Create worker queues, and list them.",
    "worker": "Run the jobs of worker queues.",
    "fleet": "Show the workers that run agent turns.",
    "stage": "Resume a halted partition, or skip the record that halted it.",
    "doctor": "Examine a running application, and say what needs you.",
    "log": "Read any topic, decoded.",
    "audit": "Recompute decisions from the log and compare.",
    "settings": "List every setting, its variable and its value.",
}
# Groups of one command are run as `harn demo`, not `harn demo show`.
_SINGLE = {"demo", "doctor", "fleet", "settings"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `harn` with `arguments` (by default those of the process) and exit."""
    if arguments is None:
        look_seldom()  # a sixth of the start would go into looking through what is imported
    given = list(sys.argv[1:] if arguments is None else arguments)
    run_and_exit(_assemble(given), given, "harn")


def run_and_exit(app: typer.Typer, arguments: Sequence[str] | None, name: str) -> None:
    """Run a command line with `arguments` (by default those of the process) and exit.

    Args: name: by which people know the program.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    logs.hush_clients()
    try:
        app(args=given, prog_name=name)
    except HarnError as error:
        typer.echo(f"{name}: {error}", err=True)
        if error.remedy:
            typer.echo(f"  {error.remedy}", err=True)
        sys.exit(error.exit_code)


def _assemble(arguments: list[str]) -> typer.Typer:
    """Build the command line for this run: the chosen group in full, the others as one line."""
    chosen = next((each for each in arguments if not each.startswith("-")), None)
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=_markup(),
    )
    app.callback()(_root)
    for group, text in GROUPS.items():
        name = f"streams.cli.{group}"
        if importlib.util.find_spec(name) is None:
            continue
        if group != chosen:
            app.command(group, help=text, short_help=text)(_not_chosen)
            continue
        part: typer.Typer = importlib.import_module(name).app
        if group in _SINGLE:
            app.command(group, help=text, short_help=text)(
                part.registered_commands[0].callback or _not_chosen
            )
        else:
            app.add_typer(part, name=group, help=text, short_help=text, no_args_is_help=True)
    return app


def _markup() -> Literal["rich"] | None:
    """Draw boxes and colours for people only: a pipe gets plain text."""
    return "rich" if sys.stdout.isatty() and sys.stderr.isatty() else None


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"harn-streams {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Version.")
    ] = False,
) -> None:
    """Turn events into work on Kafka: fairly, durably and provably."""
    assert not version, "its callback ends the run"


def _not_chosen() -> None:
    raise AssertionError("only the chosen group is run")


if __name__ == "__main__":
    main()
