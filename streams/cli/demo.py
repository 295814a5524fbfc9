"""`harn demo`: the whole thing at work on a Kafka of its own, with real webhook events.

    broker → topics → roles → manifest → sample deliveries over HTTP → what became of them → audit

Source: README, "First impressions".
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import msgspec
import typer
from rich.console import Console

from streams.app import Application, Plan
from streams.cli.audit import judge
from streams.cli.cluster import cluster_of
from streams.cli.options import StateDir, screen, settings_from
from streams.cli.sending import send_event
from streams.cli.story import Story
from streams.edge.applier import apply_manifest, policy_of
from streams.edge.broker import broker_status, stop_broker
from streams.edge.handlers import load_manifest
from streams.errors import BrokerError
from streams.observe import logs
from streams.provision import provision_topics
from streams.roles import ALL_ROLES
from streams.settings import Settings

app = typer.Typer()

_STATE_DIR = Path(".harn/demo")
_LOG = "demo.log"
_OUTCOMES_S = 120.0  # a slow laptop is no outage
_NEXT_ROUND_S = 5.0


@app.command()
def demo(
    state_dir: StateDir = None,
    once: Annotated[bool, typer.Option("--once", help="End after one round.")] = False,
    manifest: Annotated[
        Path | None, typer.Option("--manifest", "-m", help="Another manifest than the example's.")
    ] = None,
) -> None:
    """Show sample events flowing to handlers on a Kafka of its own.

    Exit codes: 0 shown, and the audit found nothing; 1 it found a divergence; else as `harn`.
    """
    console = screen()
    started = time.monotonic()
    settings = settings_from(state_dir=state_dir or _STATE_DIR)
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    embedded = settings.embedded
    ran_before = embedded and broker_status(settings.state_dir).running
    logs.configure_file(settings.log_level, settings.log_format, settings.state_dir / _LOG)
    settings = replace(cluster_of(settings), http_port=0, metrics_port=0)
    provision_topics(settings)
    path = manifest or example_manifest()
    try:
        code = asyncio.run(_show(console, settings, path, once=once, started=started))
    finally:
        if embedded and once and not ran_before:
            stop_broker(settings.state_dir)
    raise typer.Exit(code)


def example_manifest() -> Path:
    """The example's manifest: in a checkout beside the package, else the copy that is installed."""
    checkout = Path(__file__).parents[2] / "examples" / "github-triage" / "harn.toml"
    if checkout.exists():
        return checkout
    return Path(str(resources.files("streams.cli").joinpath("github_triage", "harn.toml")))


async def _show(
    console: Console, settings: Settings, manifest: Path, *, once: bool, started: float
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    application = Application(Plan(settings=settings, roles=ALL_ROLES, manifest=manifest))
    try:
        await application.start()
        await asyncio.to_thread(
            apply_manifest, settings, load_manifest(manifest), policy=policy_of(settings)
        )
        _introduce(console, settings, manifest, started)
        story = Story(settings, console)
        try:
            await _round(application, story, first=True)
            code = await asyncio.to_thread(_audit, console, settings)
            _point_onwards(console, settings, application)
            while not once and not stop.is_set():
                await _pause(stop)
                if not stop.is_set():
                    await _round(application, story, first=False)
        finally:
            story.close()
        return code
    finally:
        await application.stop()


def _introduce(console: Console, settings: Settings, manifest: Path, started: float) -> None:
    console.print(
        f"[bold]Kafka[/] {settings.bootstrap}, [bold]roles[/] {', '.join(ALL_ROLES)}, "
        f"[bold]manifest[/] {manifest} — up in {time.monotonic() - started:.0f} s\n"
    )


async def _pause(stop: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stop.wait(), _NEXT_ROUND_S)
    except TimeoutError:
        return


async def _round(application: Application, story: Story, *, first: bool) -> None:
    """Deliver the samples, and tell what becomes of each until it has its outcome."""
    story.start()
    accepted = await _deliver(application, story, _samples(), first=first)
    deadline = time.monotonic() + _OUTCOMES_S
    while not story.ended(accepted):
        await asyncio.to_thread(story.tell)
        if time.monotonic() > deadline:
            missing = ", ".join(sorted(accepted - story.settled))
            message = f"no outcome within {_OUTCOMES_S:.0f} s for {missing}"
            raise BrokerError(
                message, retryable=True, remedy=f"look into {_LOG} in the state directory"
            )


async def _deliver(
    application: Application, story: Story, samples: Iterable[dict[str, Any]], *, first: bool
) -> set[str]:
    """POST the samples as a client would; the first round sends one of them twice."""
    accepted: set[str] = set()
    url = f"{application.http_url}/v1/events"
    async with aiohttp.ClientSession() as client:
        for sample in samples:
            event_id = await send_event(client, url, sample, patience_s=_OUTCOMES_S)
            story.accepted(event_id, sample)
            accepted.add(event_id)
        if first:
            again = {**_samples_twice()}
            for _ in range(2):
                event_id = await send_event(client, url, again, patience_s=_OUTCOMES_S)
                story.accepted(event_id, again)
                accepted.add(event_id)
    return accepted


def _samples() -> list[dict[str, Any]]:
    repository = {"full_name": "octo-org/octo-repo"}
    return [
        _github("issues.opened", issue={"number": next(_numbers), "title": "It crashes on start"}),
        _github("issues.opened", issue={"number": next(_numbers), "title": "How do I scale it?"}),
        _github("release.published", release={"tag_name": f"v1.{next(_numbers)}"}),
        _github("push", repository=repository, ref="refs/heads/main"),
        _github("star.created", repository=repository),
    ]


def _samples_twice() -> dict[str, Any]:
    issue = {"number": next(_numbers), "title": "Delivered twice by the sender"}
    return {**_github("issues.opened", issue=issue), "dedupe_key": f"delivery-{time.time_ns()}"}


def _github(kind: str, **payload: Any) -> dict[str, Any]:  # noqa: ANN401 - a JSON body
    return {"provider": "github", "kind": kind, "payload": payload}


_numbers = itertools.count(1)


def _audit(console: Console, settings: Settings) -> int:
    console.print("\n[bold]Audit[/]: every decision recomputed from the log alone")
    return 1 if judge(settings).divergences else 0


def _point_onwards(console: Console, settings: Settings, application: Application) -> None:
    sample = _github("issues.opened", issue={"number": 7, "title": "A bug"})
    harn = f"HARN_STATE_DIR={settings.state_dir} {Path(sys.argv[0])}"
    curl = (
        f"curl -s {application.http_url}/v1/events -H 'content-type: application/json' "
        f"-d '{msgspec.json.encode(sample).decode()}'"
    )
    lines = [
        ("send an event", curl),
        ("see outcomes", f"{harn} log tail trigger.outbox --follow"),
        ("see dead letters", f"{harn} log tail trigger.dlq"),
        ("see bindings", f"{harn} trigger list"),
        ("audit", f"{harn} audit verify"),
        ("metrics", f"curl -s localhost:{application.metrics_port}/metrics"),
        ("topics and stages", f"{harn} topology describe"),
        ("stop the broker", f"{harn} broker stop"),
    ]
    console.print("\n[bold]Where to look next[/]")
    for what, command in lines:
        console.print(f"  {what:<18} {command}", markup=False, highlight=False, soft_wrap=True)
