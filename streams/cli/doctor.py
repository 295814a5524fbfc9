"""`harn doctor`: how the application is, seen from outside, and what needs somebody."""

from __future__ import annotations

import dataclasses
import time
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from streams.cli.options import StateDir, notice, screen, settings_from
from streams.cli.plain import escape
from streams.edge.broker import broker_status
from streams.edge.checkup import Checkup, Finding, Level, diagnose
from streams.edge.examine import examine
from streams.errors import BrokerError
from streams.settings import Settings

__all__ = ["app"]

app = typer.Typer(help="Examine a running application, and say what needs you.")


@app.command()
def doctor(
    state_dir: StateDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Examine a running application: registry, dispatcher, lag, broker, versions and settings.

    It reads, and changes nothing.  Exit codes: 0 nothing keeps work from being done; 1 a problem
    was found; 5 the broker does not answer.
    """
    checkup = examine(_running(settings_from(state_dir=state_dir)))
    findings = diagnose(checkup)
    if as_json:
        typer.echo(msgspec.json.encode(_document(checkup, findings)).decode())
    else:
        _print(screen(), checkup, findings)
    if any(finding.level is Level.PROBLEM for finding in findings):
        raise typer.Exit(1)


def _running(settings: Settings) -> Settings:
    """Return settings that name a cluster; a broker of our own is looked at, and not started."""
    if settings.bootstrap is not None:
        return settings
    found = broker_status(settings.state_dir)
    if not found.running or found.bootstrap is None:
        raise BrokerError(
            f"the embedded broker of {settings.state_dir} does not run",
            retryable=True,
            remedy="`harn broker start` starts it; KAFKA_BOOTSTRAP_SERVERS names another cluster",
        )
    return settings.with_bootstrap(found.bootstrap)


def _document(checkup: Checkup, findings: list[Finding]) -> dict[str, Any]:
    """Return the checkup as JSON; numbers that follow from others are spelled out."""
    document = dataclasses.asdict(checkup)
    document["topics"] = [each for each, _ in checkup.topics]
    for group, shown in zip(checkup.groups, document["groups"], strict=True):
        shown["lag"] = group.lag
        shown["lags"] = {str(partition): lag for partition, lag in group.lags.items()}
    for dispatcher, shown in zip(checkup.dispatchers, document["dispatchers"], strict=True):
        shown["in_flight"] = dispatcher.in_flight
        shown["retry_queue_depth"] = dispatcher.retries
        shown["gated"] = dispatcher.gated
        shown["parked"] = dispatcher.parked
    document["findings"] = [dataclasses.asdict(finding) for finding in findings]
    return document


def _print(console: Console, checkup: Checkup, findings: list[Finding]) -> None:
    shown = "  ".join(f"{name} {version}" for name, version in checkup.versions.items())
    console.print(escape(shown))
    console.print(escape(f"broker {checkup.bootstrap}: {', '.join(checkup.brokers)}"))
    registry = checkup.registry
    if registry is not None:
        states = ", ".join(f"{count} {state}" for state, count in registry.states.items())
        revision = f"revision {registry.revision} (broadcast {registry.broadcast})"
        console.print(f"registry {revision}: {states or 'no bindings'}")
    if checkup.groups:
        console.print(_groups(checkup))
    if checkup.dispatchers:
        console.print(_dispatchers(checkup))
    for finding in findings:
        console.print(escape(f"{finding.level}: {finding.what}"))
        console.print(escape(f"  {finding.remedy}"))
    if not findings:
        notice("nothing needs you")


def _groups(checkup: Checkup) -> Table:
    table = Table("role", "reads", "members", "state", "lag", box=None, pad_edge=False)
    for group in checkup.groups:
        cells = (group.role, group.topic, str(group.members), group.state, str(group.lag))
        table.add_row(*(escape(cell) for cell in cells))
    return table


def _dispatchers(checkup: Checkup) -> Table:
    names = ("dispatch", "in flight", "retries", "gated", "parked", "dead letters")
    columns = (*names, "oldest", "revision")
    table = Table(*columns, box=None, pad_edge=False)
    for each in checkup.dispatchers:
        age_ms = 0 if each.oldest_ms is None else max(0, checkup.at_ms - each.oldest_ms)
        waiting = (each.retries, each.gated, each.parked)
        counts = (each.partition, each.in_flight, *waiting, each.dead_letters)
        oldest = "" if each.oldest_ms is None else _age(age_ms)
        table.add_row(*(str(count) for count in counts), oldest, str(each.revision))
    return table


def _age(age_ms: int) -> str:
    seconds = age_ms // 1_000
    if seconds >= 86_400:
        return f"{seconds // 86_400}d{time.strftime('%Hh', time.gmtime(seconds))}"
    return time.strftime("%Hh%Mm%Ss", time.gmtime(seconds))
