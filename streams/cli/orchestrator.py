"""`harn orchestrator`: run the roles of the application."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from streams.app import Plan, run
from streams.cli.cluster import cluster_of
from streams.edge.applier import apply_manifest, policy_of
from streams.edge.handlers import Handlers, load_manifest
from streams.observe import logs
from streams.provision import provision_topics
from streams.roles import Role, parse_roles
from streams.settings import Settings
from streams.supervisor import Supervisor

app = typer.Typer()

_DEFAULT_MANIFEST = Path("harn.toml")


@app.callback()
def _group() -> None:
    """Run the roles of the application."""


@app.command()
def serve(
    manifest: Annotated[
        Path | None,
        typer.Option(
            "--manifest",
            "-m",
            help="Manifest whose triggers are applied and whose handlers run here.",
        ),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option("--role", help="Run only this role; may be given several times."),
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", help="Where the embedded broker and stores keep their files."),
    ] = None,
    provision: Annotated[
        bool,
        typer.Option(
            help="Create missing topics first; off where `harn topology apply` is its own step."
        ),
    ] = True,
    apply: Annotated[
        bool, typer.Option(help="Apply the manifest's triggers once the registry answers.")
    ] = True,
    supervise: Annotated[
        bool, typer.Option(help="Start again after a failure; off where something else does it.")
    ] = True,
) -> None:
    """Run roles until SIGTERM: ingest, registry, inbox, dispatch, invoker.

    Without KAFKA_BOOTSTRAP_SERVERS a Kafka of its own is started in the state directory and left
    running.

    Exit codes: 0 stopped on request; 2 settings, 3 topology, 4 manifest; 5 broker.
    """
    if supervise:
        raise typer.Exit(
            Supervisor(
                [sys.executable, "-m", "streams.cli.main", *_unsupervised(sys.argv[1:])]
            ).run()
        )
    roles = parse_roles(role)
    path = _manifest_path(manifest, roles)
    overrides: dict[str, Any] = {} if state_dir is None else {"state_dir": state_dir}
    settings = Settings.from_env(**overrides)
    logs.configure(settings.log_level, settings.log_format)
    if path is not None:
        Handlers.load(load_manifest(path))
    settings = cluster_of(settings)
    if provision:
        provision_topics(settings)
    asyncio.run(_serve(Plan(settings=settings, roles=roles, manifest=path), apply=apply))


async def _serve(plan: Plan, *, apply: bool) -> None:
    applying: set[asyncio.Task[None]] = set()

    def apply_soon() -> None:
        if apply and plan.manifest is not None and Role.REGISTRY in plan.roles:
            applying.add(
                asyncio.get_running_loop().create_task(_apply(plan.settings, plan.manifest))
            )

    await run(plan, on_ready=apply_soon)


async def _apply(settings: Settings, manifest: Path) -> None:
    """Make the manifest the truth of its namespace; a refusal is logged, the roles go on."""
    log = logs.logger(__name__)
    try:
        result = await asyncio.to_thread(
            apply_manifest, settings, load_manifest(manifest), policy=policy_of(settings)
        )
    except Exception as error:  # noqa: BLE001 - the roles serve what is in force, whatever keeps a manifest out
        log.error("manifest_not_applied", extra={"manifest": str(manifest), "reason": str(error)})  # noqa: TRY400
        return
    log.info(
        "manifest_applied",
        extra={"manifest": str(manifest), "answer": result.answer, "revision": result.revision},
    )


def _manifest_path(manifest: Path | None, roles: tuple[Role, ...]) -> Path | None:
    if manifest is not None:
        return manifest
    if _DEFAULT_MANIFEST.exists() and {Role.INVOKER, Role.REGISTRY} & set(roles):
        return _DEFAULT_MANIFEST
    return None


def _unsupervised(arguments: list[str]) -> list[str]:
    return [*(word for word in arguments if word != "--supervise"), "--no-supervise"]
