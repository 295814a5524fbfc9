"""Roles that a command runs itself, for as long as it takes, where nobody else does.

Only beside a broker of our own: on a cluster that is named, whoever runs it runs the roles.  Where
somebody does, the application is not even loaded: that is half of what a command takes.

Source: DESIGN "The embedded broker"; seed worker-dispatch, "CLI workflow".
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from streams.cli.cluster import cluster_with_topics
from streams.cli.options import notice
from streams.edge.group_members import memberships
from streams.edge.queue_catalog import queue_topics
from streams.edge.topic_reader import topic_names
from streams.errors import BrokerError
from streams.kafka import make_admin
from streams.observe import logs
from streams.roles import Role
from streams.settings import Settings
from topology import TOPOLOGY
from topology.edges import RELAY

__all__ = ["with_queues_served"]

_STOP_S = 15.0
"""What work may take to end after a Ctrl-C, besides the time that its handlers have."""

_Result = TypeVar("_Result")


def with_queues_served(
    settings: Settings,
    work: Callable[[Settings], _Result],
    interrupt: Callable[[], object] = lambda: None,
) -> _Result:
    """Return what `work` comes to, called where relay and scheduler run.

    Args:   interrupt: called from another thread at a Ctrl-C, so that `work` ends soon; relay and
            scheduler run until it has.
    Raises: what it raises; HarnError when roles cannot start here.
    """
    if not settings.embedded:
        return work(settings)
    running = cluster_with_topics(settings)
    missing = _unserved(running)
    try:
        return _served(running, missing, work, interrupt)
    except BrokerError:
        # A member that was killed counts until its session ends: then there is more to host.
        still_missing = _unserved(running)
        if set(still_missing) <= set(missing):
            raise
        return _served(running, still_missing, work, interrupt)


def _served(
    settings: Settings,
    missing: list[Role],
    work: Callable[[Settings], _Result],
    interrupt: Callable[[], object],
) -> _Result:
    if not missing:
        return work(settings)
    notice(f"nobody runs {' and '.join(missing)} here: this command does, while it works")
    logs.configure("error", settings.log_format)
    return asyncio.run(_hosted(replace(settings, metrics_port=0), missing, work, interrupt))


def _unserved(settings: Settings) -> list[Role]:
    """Return those of relay and scheduler that have no member."""
    groups = {Role.RELAY: RELAY.group, Role.SCHEDULER: TOPOLOGY.stage("scheduler").group}
    if not queue_topics(topic_names(settings)):
        del groups[Role.RELAY]  # it joins its group with the first queue, wherever it runs
    found = memberships(make_admin(settings), list(groups.values()))
    return [role for role, group in groups.items() if not found[group].members]


async def _hosted(
    settings: Settings,
    roles: list[Role],
    work: Callable[[Settings], _Result],
    interrupt: Callable[[], object],
) -> _Result:
    from streams.app import Application, Plan

    application = Application(Plan(settings=settings, roles=roles))
    working: asyncio.Future[_Result] | None = None
    try:
        await application.start()
        working = asyncio.ensure_future(asyncio.to_thread(work, settings))
        failing = asyncio.ensure_future(application.failed())
        await asyncio.wait({working, failing}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise failing.result()
        failing.cancel()
        return working.result()
    except asyncio.CancelledError:
        # Its thread cannot be cancelled, and would wait in vain once nobody schedules.
        if working is not None:
            interrupt()
            await asyncio.wait({working}, timeout=settings.drain_ms / 1_000 + _STOP_S)
        raise
    finally:
        await application.stop()
