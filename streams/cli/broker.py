"""`harn broker`: start, stop and inspect the embedded Kafka of a state directory."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
from rich.progress import Progress as Bar

from streams.cli.options import StateDir, notice, settings_from
from streams.edge.broker import (
    BrokerStatus,
    Progress,
    Step,
    broker_status,
    ensure_broker,
    stop_broker,
)
from streams.errors import ConfigError

__all__ = ["app", "progress_shown"]

app = typer.Typer(help="Start, stop and inspect the embedded Kafka broker.")

_FOLLOW_POLL_S = 0.2
_SHARE_SAID = 0.25


@app.command()
def start(
    state_dir: StateDir = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Demand this port; default: the one it had before."),
    ] = None,
) -> None:
    """Start the broker unless it runs, wait until it answers, and leave it running."""
    settings = settings_from(state_dir=state_dir)
    if settings.bootstrap is not None:
        raise ConfigError(
            f"KAFKA_BOOTSTRAP_SERVERS names a cluster ({settings.bootstrap}), expected it to be "
            "unset: there is nothing to start",
            remedy="unset it to use a broker of our own",
        )
    with progress_shown() as progress:
        handle = ensure_broker(settings, progress, port=port)
    typer.echo(f"Kafka answers at {handle.bootstrap} (pid {handle.pid}, log {handle.log_path})")


@app.command()
def stop(state_dir: StateDir = None) -> None:
    """Stop the broker; its records stay."""
    folder = settings_from(state_dir=state_dir).state_dir
    stopped = stop_broker(folder)
    typer.echo(f"Kafka of {folder} {'is stopped' if stopped else 'was not running'}")


@app.command()
def status(
    state_dir: StateDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say whether the broker runs, where, and what it uses; exit code 1 when it does not run."""
    found = broker_status(settings_from(state_dir=state_dir).state_dir)
    typer.echo(_json(found) if as_json else _sentences(found))
    raise typer.Exit(0 if found.running else 1)


@app.command()
def logs(
    state_dir: StateDir = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Start with the last.")] = 50,
) -> None:
    """Print the end of the broker's log."""
    path = broker_status(settings_from(state_dir=state_dir).state_dir).log_path
    if not path.is_file():
        notice(f"there is no log yet at {path}: the broker was never started")
        raise typer.Exit(1)
    with path.open(encoding="utf-8", errors="replace") as file:
        sys.stdout.writelines(deque(file, maxlen=lines))
        sys.stdout.flush()
        if not follow:
            return
        for more in _grown(path, file.tell()):
            sys.stdout.write(more)
            sys.stdout.flush()


@contextmanager
def progress_shown() -> Iterator[Progress]:
    """Show the steps of a start on standard error: a bar on a terminal, else lines."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Bar(*columns, TransferSpeedColumn(), console=console, transient=True) as bar:
        yield _Bars(bar)


class _Lines:
    """A line for each step, and for each quarter of a download."""

    def __init__(self) -> None:
        self._said: tuple[str, int] | None = None

    def __call__(self, step: Step) -> None:
        quarter = 0
        text = step.text
        if step.total_bytes:
            share = step.done_bytes / step.total_bytes
            quarter = int(share / _SHARE_SAID)
            text = f"{text}: {share:.0%} of {step.total_bytes / 1e6:.0f} MB"
        if self._said != (step.text, quarter):
            self._said = (step.text, quarter)
            notice(text)


class _Bars:
    """One bar a download; other steps are lines above it."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._task = None

    def __call__(self, step: Step) -> None:
        if not step.total_bytes:
            self._bar.console.print(step.text)
            return
        if self._task is None:
            self._task = self._bar.add_task(step.text, total=step.total_bytes)
        self._bar.update(self._task, completed=step.done_bytes)


def _grown(path: Path, offset: int) -> Iterator[str]:
    """Yield what is appended to a log from `offset` on, through its rotations, for ever."""
    while True:
        file = path.open(encoding="utf-8", errors="replace")
        with file:
            file.seek(offset)
            while True:
                text = file.read()
                if text:
                    yield text
                elif _replaced(path, file.fileno()):
                    break
                else:
                    time.sleep(_FOLLOW_POLL_S)
        offset = 0


def _replaced(path: Path, descriptor: int) -> bool:
    """Whether the log was rotated: the path names another file than the open one."""
    try:
        now = path.stat()
    except FileNotFoundError:
        return False  # between two renames
    return now.st_ino != os.fstat(descriptor).st_ino


def _json(found: BrokerStatus) -> str:
    data = msgspec.to_builtins(found, enc_hook=str)
    return msgspec.json.format(msgspec.json.encode(data)).decode()


def _sentences(found: BrokerStatus) -> str:
    disk = f"{found.disk_bytes / 1e6:.1f} MB on disk"
    if not found.running:
        return f"Kafka of {found.state_dir} does not run ({disk})"
    memory_mb = (found.memory_bytes or 0) / 1e6
    uptime_s = found.uptime_s or 0.0
    return (
        f"Kafka {found.kafka} answers at {found.bootstrap}\n"
        f"  pid {found.pid}, up {uptime_s:.0f} s, {memory_mb:.0f} MB resident, {disk}\n"
        f"  state {found.state_dir}\n"
        f"  log   {found.log_path}"
    )
