"""Runs roles in this process: what `harn orchestrator serve` does under its supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from streams.app import Plan, run
from streams.aside import aside
from streams.cli.cluster import cluster_of
from streams.cli.options import manifest_of
from streams.edge.applier import apply_manifest, policy_of
from streams.edge.handlers import Handlers, load_manifest
from streams.observe import logs
from streams.provision import provision_topics
from streams.roles import Role
from streams.settings import Settings
from streams.triggers import register_declared

_log = logs.logger(__name__)


def serve_roles(
    settings: Settings,
    roles: Sequence[Role],
    manifest: Path | None,
    *,
    provision: bool,
    apply: bool,
    lifeline: int | None,
    restarts: int,
) -> None:
    """Run roles until they are asked to stop.

    Args:    lifeline, restarts: see `Plan`.
    Raises:  HarnError when they cannot start or something fails while they run.
    """
    path = _manifest_path(manifest, roles, settings)
    if path is not None:
        Handlers.load(load_manifest(path))
    settings = cluster_of(settings)
    if provision:
        provision_topics(settings)
    plan = Plan(settings=settings, roles=roles, manifest=path, lifeline=lifeline, restarts=restarts)
    asyncio.run(_serve(plan, apply=apply))


async def _serve(plan: Plan, *, apply: bool) -> None:
    applying: set[asyncio.Task[None]] = set()

    def apply_soon() -> None:
        if apply and plan.manifest is not None and Role.REGISTRY in plan.roles:
            applying.add(
                asyncio.get_running_loop().create_task(_apply(plan.settings, plan.manifest))
            )

    await run(plan, on_ready=apply_soon)


async def _apply(settings: Settings, manifest: Path) -> None:
    """Make the manifest the truth of its namespace, and register what its exports are marked with.

    A refusal is logged, the roles go on.  Roles that stop do not wait for its answer: the next
    start asks again.
    """
    try:
        declared = load_manifest(manifest)
        result = await aside(
            partial(apply_manifest, settings, declared, policy=policy_of(settings)),
            name="manifest",
        )
    except Exception as error:  # noqa: BLE001 - the roles serve what is in force, whatever keeps a manifest out
        _log.error("manifest_not_applied", extra={"manifest": str(manifest), "reason": str(error)})
        return
    _log.info(
        "manifest_applied",
        extra={"manifest": str(manifest), "answer": result.answer, "revision": result.revision},
    )
    try:
        registered = await aside(partial(register_declared, settings, manifest), name="manifest")
    except Exception as error:  # noqa: BLE001 - as above
        extra = {"manifest": str(manifest), "reason": str(error)}
        _log.error("triggers_not_registered", extra=extra)
        return
    for each in registered:
        extra = {"binding_key": each.binding_key, "is_new": each.is_new}
        _log.info("trigger_registered", extra=extra)


def _manifest_path(manifest: Path | None, roles: Sequence[Role], settings: Settings) -> Path | None:
    if manifest is not None:
        return manifest
    readers = {Role.INVOKER, Role.REGISTRY}
    if settings.serves_turns and settings.runs_turns_inline:
        readers.add(Role.INGEST)
    if not readers & set(roles):
        return None
    path = manifest_of(settings, None)
    # What was named must be there; without a manifest the roles serve what is in force.
    return path if settings.manifest is not None or path.exists() else None
