"""`harn trigger list` and `show`: what the registry knows, now and at an earlier time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.table import Table

from streams.audit.kafka_log import KafkaLog
from streams.audit.log import LogReader
from streams.cli.cluster import cluster_of
from streams.cli.known_trigger import require_known
from streams.cli.moment import EXPECTED, read_moment
from streams.cli.operation import AsJson
from streams.cli.options import StateDir, screen, settings_from
from streams.cli.plain import escape
from streams.codec import Codec
from streams.core.binding_history import Told, version_as_of
from streams.core.webhook import path_of
from streams.core.wire import BindingDefinition, LifecycleStateTransition, RowRegisteredBinding
from streams.edge.codecs import codec_of
from streams.edge.registry_view import RegistryView, read_registry
from streams.errors import ConfigError
from streams.settings import Settings

__all__ = ["list_triggers", "show", "told_transitions"]

_LIFECYCLE = "triggers.lifecycle"


def list_triggers(as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """List every known binding version and its state."""
    view = _view(_settings(state_dir))
    if as_json:
        summary = {"revision": view.revision, "broadcast": view.broadcast, "policy": view.policy}
        typer.echo(json.dumps({**summary, "bindings": [_shown(row) for row in view.rows]}))
        return
    typer.echo(f"revision {view.revision} (broadcast {view.broadcast})")
    columns = ("binding", "state", "provider", "events", "handler", "retry", "namespace")
    table = Table(*columns, box=None, pad_edge=False)
    for row in view.rows:
        binding = row["binding"]
        retry = f"{binding['retry']['backoff']} {binding['retry']['max_attempts']}"
        cells = (binding["binding_key"], row["state"], binding["provider"], _events(binding))
        cells = (*cells, binding["target_uri"], retry, binding["namespace"])
        table.add_row(*(escape(cell) for cell in cells))
    screen().print(table)


def _events(binding: BindingDefinition) -> str:
    """Say which events a binding takes: kinds, a webhook's path, or a schedule."""
    definition: dict[str, Any] = json.loads(binding["definition"])
    schedule = definition.get("schedule")
    if isinstance(schedule, str):
        return f"{schedule} ({definition.get('timezone', 'UTC')})"
    path = path_of(definition)
    kinds = ", ".join(binding["events"]) or "every kind"
    return kinds if path is None else f"{kinds} at /webhooks/{path}"


def show(
    trigger_id: Annotated[str, typer.Argument(help="The trigger's id.")],
    at: Annotated[
        str | None,
        typer.Option("--at", help=f"Which version was in force then: {EXPECTED}."),
    ] = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Show every known version of one trigger, with its definition.

    With --at, the number of the version that was in force then.  Exit codes: 0 shown; 2 the trigger
    is unknown, or had no version in force then.
    """
    at_ms = read_moment("--at", at)
    settings = _settings(state_dir)
    if at is not None and at_ms is not None:
        _show_version(settings, trigger_id, at, at_ms, as_json=as_json)
        return
    view = _view(settings)
    require_known(view.rows, trigger_id)
    rows = [row for row in view.rows if row["binding"]["trigger_id"] == trigger_id]
    for row in rows:
        shown = _shown(row)
        if as_json:
            typer.echo(json.dumps(shown))
            continue
        typer.echo(f"{shown['binding_key']}  {shown['state']}  since revision {shown['revision']}")
        for name, value in shown.items():
            if name not in {"binding_key", "state", "revision"}:
                typer.echo(f"  {name}: {value if isinstance(value, str) else json.dumps(value)}")


def _show_version(
    settings: Settings, trigger_id: str, at: str, at_ms: int, *, as_json: bool
) -> None:
    with KafkaLog(settings) as log:
        version = version_as_of(told_transitions(log, codec_of(settings)), trigger_id, at_ms)
    if version is None:
        raise ConfigError(f"trigger {trigger_id!r} had no version in force at {at}")
    key = f"{trigger_id}@v{version}"
    answer = {"trigger_id": trigger_id, "at": at, "version": version, "binding_key": key}
    typer.echo(json.dumps(answer) if as_json else f"{key} was in force at {at}")


def told_transitions(log: LogReader, codec: Codec) -> list[Told]:
    """Return what the lifecycle says of versions' states, as far as its retention goes back."""
    places = [(_LIFECYCLE, partition) for partition in range(log.partitions(_LIFECYCLE))]
    told: list[Told] = []
    for place, span in log.spans(places).items() if places else ():
        for records in log.read(place, *span) if span.start < span.end else ():
            for record in records:
                if dict(record.headers).get("kind") != b"state_transition":
                    continue
                value = codec.decode_as("lifecycle_state_transition", record.value)
                if value is not None:
                    told.append(Told(record.timestamp, cast("LifecycleStateTransition", value)))
    return told


def _settings(state_dir: Path | None) -> Settings:
    return cluster_of(settings_from(state_dir=state_dir))


def _view(settings: Settings) -> RegistryView:
    return read_registry(settings, codec_of(settings))


def _shown(row: RowRegisteredBinding) -> dict[str, Any]:
    definition = json.loads(row["binding"]["definition"])
    shown: dict[str, Any] = {**row["binding"], "definition": definition, "state": row["state"]}
    shown["source"] = row["source"]
    return {**shown, "revision": row["revision"], "ended": row["ended"]}
