"""`harn trigger register` and `harn trigger drain`: triggers one by one, beside manifests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from streams.cli.cluster import cluster_of
from streams.cli.known_trigger import require_known
from streams.cli.options import StateDir, manifest_of, notice, settings_from
from streams.edge.codecs import codec_of
from streams.edge.handlers import MANIFEST_NAME
from streams.edge.registrar import drain_trigger
from streams.edge.registry_request import ANSWER_S
from streams.edge.registry_view import read_registry
from streams.triggers import register_declared

__all__ = ["drain", "register"]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=1, help="Seconds to wait for the registry's answer.")
]


def register(
    manifest: Annotated[
        Path | None,
        typer.Argument(
            help="Manifest, or the folder that holds harn.toml.", show_default=MANIFEST_NAME
        ),
    ] = None,
    timeout: Timeout = ANSWER_S,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Register the functions of a manifest's exports that are marked with @trigger.

    What is in force already stays.  Exit codes: 0 all are in force; 3 topics are missing; 4 a
    declaration is wrong, or its id exists; 5 no broker, or nobody answers.
    """
    settings = cluster_of(settings_from(state_dir=state_dir))
    path = manifest_of(settings, manifest)
    registered = register_declared(settings, path, timeout_s=timeout)
    for each in registered:
        if as_json:
            said = {"trigger_id": each.trigger_id, "binding_key": each.binding_key}
            typer.echo(json.dumps({**said, "is_new": each.is_new}))
        else:
            typer.echo(f"{'+' if each.is_new else '='} {each.binding_key}")
    if not registered:
        notice(f"no function of the exports of {path} is marked with @trigger")


def drain(
    trigger_id: Annotated[str, typer.Argument(help="The trigger's id.")],
    timeout: Timeout = ANSWER_S,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Let a trigger take no new event; it ends once it has finished what it has.

    One that a manifest holds comes back when that manifest is applied again.  Exit codes: 0 it
    drains; 2 there is no such trigger; 3 topics are missing; 5 no broker, or nobody answers.
    """
    settings = cluster_of(settings_from(state_dir=state_dir))
    require_known(read_registry(settings, codec_of(settings)).rows, trigger_id)
    answer = drain_trigger(settings, trigger_id, timeout_s=timeout)
    if as_json:
        said = {"answer": answer.answer, "revision": answer.revision, "drained": answer.drained}
        typer.echo(json.dumps({**said, "broadcast": answer.broadcast}))
    elif answer.answer == "unchanged":
        typer.echo(f"unchanged: {answer.reason}")
    else:
        for key in answer.drained:
            typer.echo(f"- {key} (drains)")
