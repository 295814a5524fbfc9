"""`harn trigger`: apply bindings, look at them, and send events.

Exit codes, besides those of `streams.errors`: 1 another apply came first (look, and apply again).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from streams.audit.explain import explain as explain_event
from streams.audit.kafka_log import KafkaLog
from streams.audit.live_dispatches import tell_standings
from streams.cli.cluster import cluster_of
from streams.cli.options import StateDir, manifest_of, notice, screen, settings_from
from streams.cli.trigger_cancel import cancel
from streams.cli.trigger_dlq import app as dlq
from streams.cli.trigger_emit import TENANT_SCOPE, ChannelOptions, emit_events
from streams.cli.trigger_explain import UNSEEN, print_story, require_readable, unseen_topics
from streams.cli.trigger_explain import as_json as story_json
from streams.cli.trigger_register import drain, register
from streams.cli.trigger_replay import replay
from streams.cli.trigger_show import list_triggers, show
from streams.core.manifest import Manifest
from streams.core.wire import Policy
from streams.edge.applier import (
    ANSWER_S,
    ApplyResult,
    apply_manifest,
    policy_asked,
    policy_of,
    preview_apply,
)
from streams.edge.codecs import codec_of
from streams.edge.handlers import MANIFEST_NAME, Handlers, load_manifest
from streams.edge.registry_view import read_registry
from streams.errors import ConfigError
from streams.provision import check_topology
from topology import TOPOLOGY

__all__ = ["app"]

app = typer.Typer(help="Apply bindings and send events.", no_args_is_help=True)

app.command()(cancel)
app.command()(replay)
app.command()(register)
app.command()(drain)
app.command("list")(list_triggers)
app.command()(show)
app.add_typer(dlq, name="dlq")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command()
def apply(
    manifest: Annotated[
        Path | None,
        typer.Argument(
            help="Manifest, or the folder that holds harn.toml.", show_default=MANIFEST_NAME
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    keep_policy: Annotated[
        bool,
        typer.Option(
            "--keep-policy", help="Leave the policy in force as it is, whatever the settings say."
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds to wait for the registry's answer.")
    ] = ANSWER_S,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Make a manifest the truth of its namespace.

    Handlers are loaded first: what cannot be run is refused here.  The registry answers, so a role
    `registry` must run.  Exit codes: 0 in force; 1 another apply came first; 3 topics are missing,
    or the policy of these settings is none to run with; 4 the manifest is wrong; 5 no broker, or
    nobody answers.
    """
    settings = settings_from(state_dir=state_dir)
    if not keep_policy:
        check_topology(settings, bindings=None)  # it becomes that of every role, which would refuse
    loaded = load_manifest(manifest_of(settings, manifest))
    Handlers.load(loaded)
    settings = cluster_of(settings)
    codec = codec_of(settings)
    view = read_registry(settings, codec)
    before = view.policy
    policy: Policy = before
    if not keep_policy:
        policy = {**policy_of(settings), "scheduler": before["scheduler"]}
    policy = policy_asked(policy, loaded)
    if dry_run:
        result = preview_apply(view, loaded, codec, policy=policy)
    else:
        result = apply_manifest(
            settings, loaded, codec=codec, policy=policy, view=view, timeout_s=timeout
        )
    _report(loaded, result, before, policy, dry_run=dry_run, as_json=as_json)
    if result.answer == "conflict":
        raise typer.Exit(1)


def _report(
    manifest: Manifest,
    result: ApplyResult,
    before: Policy,
    policy: Policy,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    changed = {name: [was, policy[name]] for name, was in before.items() if policy.get(name) != was}
    if result.answer != "published":
        changed = {}
    if as_json:
        typer.echo(json.dumps(_summary(manifest, result, changed, dry_run=dry_run)))
        return
    if result.answer == "conflict":
        notice(f"harn: {result.reason}")
        return
    verb = "would be" if dry_run else "is"
    if result.answer == "unchanged":
        typer.echo(f"unchanged: revision {result.revision} has namespace {manifest.namespace}")
    else:
        typer.echo(f"revision {result.revision} of namespace {manifest.namespace} {verb} in force")
    for key in result.added:
        typer.echo(f"  + {key}")
    for key in result.drained:
        typer.echo(f"  - {key} (drains)")
    for name, (was, now) in changed.items():
        typer.echo(f"  ~ {name}: {was} -> {now}")
    if result.position is not None:
        typer.echo(f"request {result.position}")
    if result.answer == "published" and not dry_run and not result.broadcast:
        notice("not every mailbox has the revision yet: events sent now may not meet it")


def _summary(
    manifest: Manifest, result: ApplyResult, changed: dict[str, Any], *, dry_run: bool
) -> dict[str, Any]:
    return {
        "answer": result.answer,
        "dry_run": dry_run,
        "namespace": manifest.namespace,
        "revision": result.revision,
        "reason": result.reason,
        "added": result.added,
        "drained": result.drained,
        "policy_changes": changed,
        "position": None if result.position is None else str(result.position),
        "broadcast": result.broadcast,
    }


@app.command()
def explain(
    event_id: Annotated[str, typer.Argument(help="The event's id, as ingest answered it.")],
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Show everything that happened to one event, from its envelope to its outcomes.

    Exit codes: 0 shown; 1 the log has nothing about it; 5 no broker, or this user may not read.
    """
    if not event_id.strip():
        raise ConfigError("the event's id is blank, expected what ingest answered")
    settings = cluster_of(settings_from(state_dir=state_dir))
    codec = codec_of(settings)
    with KafkaLog(settings) as log:
        require_readable(log.topic_names())
        story = explain_event(log, codec, event_id)
        tell_standings(log, codec, TOPOLOGY.stage("dispatch"), story)
        unseen = unseen_topics(log.topic_names(), story, read_registry(settings, codec).rows)
    if not story.known:
        notice(f"the log has nothing about event {event_id}")
        raise typer.Exit(1)
    if as_json:
        typer.echo(msgspec.json.encode({**story_json(story), "unseen_topics": unseen}).decode())
    else:
        print_story(screen(), story)
    if unseen:
        notice(f"not shown is what {', '.join(unseen)} hold: {UNSEEN}")


@app.command()
def emit(  # noqa: PLR0913, PLR0917 - typer takes options by position
    provider: Annotated[
        str | None, typer.Option("--provider", help="Who sends it, for example github.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="The provider's kind, for example issues.opened.")
    ] = None,
    payload: Annotated[
        str | None, typer.Option("--payload", help="JSON, or @file, or - for standard input.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="One event a line, as JSON: kind or event, payload, provider."),
    ] = None,
    dedupe_key: Annotated[
        str | None, typer.Option("--dedupe-key", help="Repeats with the same key are taken once.")
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Tenant it belongs to.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", help="name=value; may be given several times.")
    ] = None,
    trigger: Annotated[
        str | None, typer.Option("--trigger", help="Only this trigger receives it.")
    ] = None,
    channel: Annotated[
        str | None, typer.Option("--channel", help="Emit the payload to this channel instead.")
    ] = None,
    scope: Annotated[
        str, typer.Option("--scope", help="Whose channel: tenant, session or pipeline.")
    ] = TENANT_SCOPE,
    scope_id: Annotated[
        str | None,
        typer.Option("--scope-id", help="Which one; a tenant's channel has --tenant, or default."),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Send it this often.")] = 1,
    as_new: Annotated[
        bool, typer.Option("--as-new", help="Take lines of the file that were sent before, too.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only how many were sent.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Send an event, or a file of them, into the inbox.

    Prints each event's id and its envelope's position once the broker has it.  A line of a file is
    one delivery: sent again it is taken once, unless --as-new.  Exit codes: 0 all sent; 2 the event
    is wrong, or no such trigger; 3 topics are missing; 5 the broker did not take everything.
    """
    emit_events(
        settings_from(state_dir=state_dir),
        single={
            "provider": provider,
            "kind": kind,
            "payload": payload,
            "dedupe_key": dedupe_key,
            "tenant_id": tenant,
            "headers": header,
            "channel": None if channel is None else ChannelOptions(channel, scope, scope_id),
        },
        file=file,
        as_new=as_new,
        trigger_id=trigger,
        count=count,
        quiet=quiet,
        as_json=as_json,
    )
