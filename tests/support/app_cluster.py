"""A provisioned cluster with a manifest in force, for tests that run the whole application."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from streams.codec import Codec
from streams.core.inbox import mailbox_key
from streams.core.wire import TriggerEvent
from streams.edge.applier import apply_manifest, policy_of
from streams.edge.handlers import load_manifest
from streams.edge.publisher import Publisher
from streams.edge.topic_reader import TopicReader
from streams.provision import provision_topics
from streams.settings import Settings
from tests.support.broker import Kafka

ENVELOPES = "trigger.inbox.envelopes"
_READ_S = 1.0
_CODEC = Codec()


class Entry(NamedTuple):
    """One decoded record."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    kind: str
    value: dict[str, Any]
    headers: dict[str, str]


def settings_for_app(kafka: Kafka, folder: Path, **changes: Any) -> Settings:
    """Settings of one test's application: free ports, its own state, quick failure detection."""
    return replace(
        kafka.settings,
        state_dir=folder / "state",
        http_port=0,
        metrics_port=0,
        partitions=4,
        replication_factor=1,
        min_insync_replicas=1,
        **changes,
    )


def provision(settings: Settings) -> None:
    """Create every topic of the application on an empty cluster."""
    provision_topics(settings)


def apply(settings: Settings, manifest: Path) -> None:
    """Put a manifest in force; a registry runs."""
    result = apply_manifest(
        settings, load_manifest(manifest), policy=policy_of(settings), timeout_s=60
    )
    assert result.answer in {"published", "unchanged"}, result


def write_manifest(folder: Path, manifest: str, handlers: str) -> Path:
    """A manifest with its handlers in `lib.py` beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lib.py").write_text(handlers)
    path = folder / "harn.toml"
    path.write_text(manifest)
    return path


def event(
    number: int | str, *, kind: str = "issues.opened", provider: str = "github", **changes: Any
) -> dict[str, Any]:
    """A normalized event."""
    return {
        "id": f"trigger_evt_{number}",
        "provider": provider,
        "kind": kind,
        "received_at": "2026-01-01T00:00:00.000Z",
        "occurred_at": None,
        "dedupe_key": f"delivery-{number}",
        "trace_id": f"trace_{number}",
        "tenant_id": None,
        "headers": {},
        "raw_body": None,
        "provider_payload": f'{{"number": "{number}"}}',
        "signature_state": "unsigned",
        "signature_reason": None,
        **changes,
    }


def envelope(found: dict[str, Any]) -> bytes:
    """An event as the inbox takes it."""
    return _CODEC.encode(
        "event_ingested",
        {"trigger_id": None, "binding_version": None, "replay_of_event_id": None, "event": found},
    )


async def emit(
    settings: Settings, events: Iterable[dict[str, Any]], *, pause_s: float = 0.0
) -> None:
    """Append events in order, as ingest does; returns when the broker has them all."""
    publisher = Publisher(settings, name="test")
    await publisher.start()
    try:
        acks = []
        for found in events:
            ack = publisher.append_soon(
                ENVELOPES,
                kind="event_ingested",
                key=mailbox_key(cast(TriggerEvent, found)).encode(),
                value=envelope(found),
            )
            acks.append(ack)
            if pause_s:
                await asyncio.sleep(pause_s)  # the load's rate, not a wait for anything
        await asyncio.gather(*acks)
    finally:
        await publisher.stop()


def read(settings: Settings, topic: str, kinds: set[str] | None = None) -> list[Entry]:
    """Every committed record of a topic, decoded, partition by partition."""
    entries: list[Entry] = []
    with TopicReader(settings, topic) as reader:
        reader.start_at(dict.fromkeys(range(reader.partitions), 0))
        while not reader.at_end:
            for record in reader.read(_READ_S):
                if kinds is not None and record.kind not in kinds:
                    continue
                _, value = _CODEC.decode(record.value or b"")
                headers = {
                    name: content.decode(errors="replace") for name, content in record.headers
                }
                entries.append(
                    Entry(
                        topic,
                        record.partition,
                        record.offset,
                        record.timestamp,
                        record.kind,
                        value,
                        headers,
                    )
                )
    return entries


def terminal_records(settings: Settings) -> Counter[str]:
    """How many terminal records each event has, by event id."""
    found: Counter[str] = Counter()
    for entry in read(settings, "trigger.outbox", {"dispatch_succeeded"}):
        found[entry.value["event_id"]] += 1
    for entry in read(settings, "trigger.dlq", {"dlq_moved"}):
        found[entry.value["event"]["id"]] += 1
    return found


def cli(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `harn` as an operator would; settings come from the environment."""
    return subprocess.run(
        [sys.executable, "-m", "streams.cli.main", *arguments],
        env={**settings.environment(), "PATH": "/usr/bin:/bin", "HOME": str(settings.state_dir)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def assert_audit_is_clean(settings: Settings) -> None:
    """Every decision on the log can be recomputed from it."""
    verdict = cli(settings, "audit", "verify")
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr


def assert_one_outcome_each(settings: Settings, events: Iterable[str]) -> None:
    """Each event id has exactly one terminal record, and nothing else has any."""
    found = terminal_records(settings)
    expected = Counter(dict.fromkeys(events, 1))
    missing, extra = expected - found, found - expected
    assert not missing, f"{len(missing)} without an outcome: {sorted(missing)[:5]}"
    assert not extra, f"{len(extra)} with too many: {sorted(extra)[:5]}"
