"""What an environment wants of the scheduler, on a real broker: proposed once, and in force."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from streams.app import Application, Plan
from streams.core import scheduler_policy
from streams.core.wire import SchedulerPolicy
from streams.edge.codecs import codec_of
from streams.edge.registry_view import read_registry
from streams.edge.scheduler_proposal import propose_policy
from streams.roles import Role
from streams.settings import Settings
from tests.support.app_cluster import assert_audit_is_clean, provision, read, settings_for_app
from tests.support.broker import PrivateBroker
from tests.support.eventually import eventually

pytestmark = [pytest.mark.broker]


def in_force(settings: Settings) -> SchedulerPolicy:
    return scheduler_policy.in_force(read_registry(settings, codec_of(settings)).policy)


async def test_an_environment_proposes_when_it_changes_and_not_again(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    kafka = await asyncio.to_thread(private_broker.start)
    plain = settings_for_app(kafka, tmp_path)
    await asyncio.to_thread(provision, plain)
    fair = replace(plain, scheduler_strategy="drr", scheduler_weights="a:3")
    application = Application(Plan(settings=fair, roles=[Role.REGISTRY, Role.SCHEDULER]))
    await application.start()
    try:
        wanted = {**scheduler_policy.DEFAULT, "strategy": "drr", "weights": {"a": 3}}
        await eventually(lambda: in_force(fair) == wanted, "the policy in force")
        # Its broadcast reaches every partition of the scheduler's mailbox, as it does all others.
        mailbox = "worker.requests"
        await eventually(
            lambda: len(read(fair, mailbox, {"revision_published"})) == fair.partitions,
            "a word in each partition",
        )
        codec = codec_of(fair)
        assert await asyncio.to_thread(propose_policy, fair, codec) is None
        changed = await asyncio.to_thread(propose_policy, plain, codec)
        assert changed is not None
        assert (changed.answer, in_force(plain)) == ("published", scheduler_policy.DEFAULT)
        proposals = read(fair, "triggers.registry", {"scheduler_policy_proposed"})
        assert len(proposals) == 2
    finally:
        await application.stop()
    await asyncio.to_thread(assert_audit_is_clean, plain)
