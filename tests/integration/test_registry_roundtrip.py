"""A manifest's way into force, on a real broker: applied, published, broadcast, drained, ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from streams.app import Application, Plan
from streams.codec import Codec
from streams.edge.applier import ApplyResult, apply_manifest, policy_of
from streams.edge.handlers import load_manifest
from streams.edge.registry_view import RegistryView, read_registry
from streams.errors import BrokerError, ManifestError, TopologyError
from streams.roles import Role
from streams.settings import Settings
from tests.support.app_cluster import (
    assert_audit_is_clean,
    provision,
    read,
    settings_for_app,
    write_manifest,
)
from tests.support.broker import PrivateBroker
from tests.support.eventually import eventually

pytestmark = [pytest.mark.broker]

ROLES = (Role.REGISTRY, Role.INBOX, Role.DISPATCH)
MAILBOXES = ("trigger.dispatches", "trigger.inbox.envelopes")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    folder = tmp_path_factory.mktemp("registry")
    broker = PrivateBroker(folder / "broker")
    try:
        yield settings_for_app(broker.start(), folder)
    finally:
        broker.stop()


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Application]:
    application = Application(Plan(settings=settings, roles=ROLES))
    await application.start()
    try:
        yield application
    finally:
        await application.stop()


def manifest(
    folder: Path, *trigger_ids: str, kind: str = "push", namespace: str = "default"
) -> Path:
    tables = [
        f'[[triggers]]\nid = "{trigger_id}"\nkind = "webhook"\nprovider = "github"\n'
        f'match = {{ events = ["{kind}"] }}\nhandler = "fn"\n'
        for trigger_id in trigger_ids
    ]
    text = f'[orchestrator]\nname = "{namespace}"\n' + "".join(tables)
    return write_manifest(folder, text, "def fn(event): ...")


async def apply(settings: Settings, path: Path, *, view: RegistryView | None = None) -> ApplyResult:
    def body() -> ApplyResult:
        policy = policy_of(settings)
        return apply_manifest(settings, load_manifest(path), policy=policy, view=view, timeout_s=60)

    return await asyncio.to_thread(body)


def states(settings: Settings, trigger_id: str) -> dict[str, str]:
    rows = read_registry(settings, Codec()).rows
    return {
        row["binding"]["binding_key"]: row["state"]
        for row in rows
        if row["binding"]["trigger_id"] == trigger_id
    }


def becomes(settings: Settings, trigger_id: str, expected: dict[str, str]) -> Callable[[], bool]:
    return lambda: states(settings, trigger_id) == expected


def test_without_topics_the_remedy_is_told(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"topic triggers\.registry is missing") as caught:
        apply_manifest(settings, load_manifest(manifest(tmp_path, "a")))
    assert (caught.value.remedy or "").startswith("run `harn topology apply`")
    provision(settings)


def test_without_a_registry_the_request_waits_and_is_answered_later(
    settings: Settings, tmp_path: Path
) -> None:
    provision(settings)
    path = manifest(tmp_path, "waits", namespace="waits")
    with pytest.raises(BrokerError, match=r"nobody answered the apply at triggers\.registry/0/"):
        apply_manifest(settings, load_manifest(path), timeout_s=1)

    async def later() -> None:
        async with running(settings):
            await eventually(
                lambda: bool(read(settings, "triggers.registry", {"revision_broadcast"})),
                "the request that waited is answered and broadcast",
            )

    asyncio.run(later())
    assert states(settings, "waits") == {"waits@v1": "active"}


async def test_a_manifest_comes_into_force_changes_and_ends(
    settings: Settings, tmp_path: Path
) -> None:
    await asyncio.to_thread(provision, settings)
    async with running(settings):
        first = await apply(settings, manifest(tmp_path, "a", "b"))
        assert (first.answer, first.broadcast) == ("published", True)
        assert (first.added, first.drained) == (("a@v1", "b@v1"), ())
        again = await apply(settings, manifest(tmp_path, "a", "b"))
        assert (again.answer, again.revision) == ("unchanged", first.revision)
        changed = await apply(settings, manifest(tmp_path, "a", kind="ping"))
        assert (changed.answer, changed.revision) == ("published", first.revision + 1)
        assert (changed.added, changed.drained) == (("a@v2",), ("a@v1", "b@v1"))
        await eventually(
            becomes(settings, "a", {"a@v1": "terminated", "a@v2": "active"}), "a@v1 ended"
        )
        await eventually(becomes(settings, "b", {"b@v1": "terminated"}), "b@v1 ended")
        back = await apply(settings, manifest(tmp_path, "a"))
        assert back.added == ("a@v1",), "the version that had this definition before"
    for topic in MAILBOXES:
        for partition in range(settings.partitions):
            seen = [
                entry.value["revision"]
                for entry in read(settings, topic, {"revision_published"})
                if entry.partition == partition
            ]
            assert sorted(set(seen)) == list(range(1, back.revision + 1)), "no revision is missing"
    await asyncio.to_thread(assert_audit_is_clean, settings)


async def test_the_loser_of_a_race_and_a_foreign_trigger_are_told(
    settings: Settings, tmp_path: Path
) -> None:
    await asyncio.to_thread(provision, settings)
    async with running(settings):
        looked_at = await asyncio.to_thread(read_registry, settings, Codec())
        mine = manifest(tmp_path / "mine", "raced", namespace="race")
        assert (await apply(settings, mine)).answer == "published"
        lost = await apply(settings, manifest(tmp_path / "late", "late"), view=looked_at)
        assert lost.answer == "conflict"
        assert "somebody else applied one meanwhile" in lost.reason
        assert await asyncio.to_thread(states, settings, "late") == {}
        foreign = manifest(tmp_path / "foreign", "raced", namespace="thief")
        with pytest.raises(ManifestError, match="belongs to namespace 'race'"):
            await apply(settings, foreign)


async def test_roles_that_start_again_go_on_from_the_log(
    settings: Settings, tmp_path: Path
) -> None:
    await asyncio.to_thread(provision, settings)
    async with running(settings):
        first = await apply(settings, manifest(tmp_path, "stays", namespace="again"))
    async with running(settings):
        again = await apply(settings, manifest(tmp_path, "stays", namespace="again"))
        assert (again.answer, again.revision) == ("unchanged", first.revision)
        later = await apply(settings, manifest(tmp_path, "stays", "new", namespace="again"))
        assert (later.added, later.broadcast) == (("new@v1",), True)
    await asyncio.to_thread(assert_audit_is_clean, settings)
