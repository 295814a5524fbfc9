"""A provisioned cluster with a manifest in force, for tests that run the whole application."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from streams.codec import Codec
from streams.core.inbox import mailbox_key
from streams.core.record import Position
from streams.core.wire import TriggerEvent
from streams.edge.applier import apply_manifest, policy_of
from streams.edge.handlers import load_manifest
from streams.edge.publisher import Publisher
from streams.edge.topic_reader import ReadRecord, TopicReader
from streams.errors import BrokerError
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
    """Append events in order, as a sender does; returns when the broker has them all.

    What an outage kept from being acknowledged is sent again under its own id.
    """
    publisher = Publisher(settings, name="test")
    await publisher.start()
    try:
        upcoming: Iterable[dict[str, Any]] = events
        while True:
            sent, acks = [], []
            for found in upcoming:
                sent.append(found)
                acks.append(_append(publisher, found))
                if pause_s:
                    await asyncio.sleep(pause_s)  # the load's rate, not a wait for anything
            answers = await asyncio.gather(*acks, return_exceptions=True)
            failed = [answer for answer in answers if isinstance(answer, BaseException)]
            for answer in failed:
                if not isinstance(answer, BrokerError) or not answer.retryable:
                    raise answer
            upcoming = [
                found
                for found, answer in zip(sent, answers, strict=True)
                if isinstance(answer, BrokerError)
            ]
            if not upcoming:
                return
    finally:
        await publisher.stop()


def _append(publisher: Publisher, found: dict[str, Any]) -> asyncio.Future[Position]:
    return publisher.append_soon(
        ENVELOPES,
        kind="event_ingested",
        key=mailbox_key(cast(TriggerEvent, found)).encode(),
        value=envelope(found),
    )


def read(settings: Settings, topic: str, kinds: set[str] | None = None) -> list[Entry]:
    """Every committed record of a topic, decoded, partition by partition."""
    return _read_on(settings, topic, kinds, {})


def _read_on(
    settings: Settings, topic: str, kinds: set[str] | None, next_offsets: dict[int, int]
) -> list[Entry]:
    """Read on from these offsets, and move them behind what was read."""
    entries: list[Entry] = []
    with TopicReader(settings, topic) as reader:
        reader.start_at({p: next_offsets.get(p, 0) for p in range(reader.partitions)})
        while not reader.at_end:
            for record in reader.read(_READ_S):
                next_offsets[record.partition] = record.offset + 1
                if kinds is None or record.kind in kinds:
                    entries.append(_entry(topic, record))
    return entries


def _entry(topic: str, record: ReadRecord) -> Entry:
    _, value = _CODEC.decode(record.value or b"")
    headers = {name: content.decode(errors="replace") for name, content in record.headers}
    place = (topic, record.partition, record.offset, record.timestamp)
    return Entry(*place, record.kind, value, headers)


@dataclass
class _Terminal:
    """What was read of one application's terminal records so far: each is read once."""

    counts: Counter[str] = field(default_factory=Counter)
    outbox: dict[int, int] = field(default_factory=dict)
    dead: dict[int, int] = field(default_factory=dict)


_TERMINAL: dict[Path, _Terminal] = {}


def terminal_records(settings: Settings) -> Counter[str]:
    """How many terminal records each event has, by event id; cheap enough to ask all the time."""
    known = _TERMINAL.setdefault(settings.state_dir, _Terminal())
    for entry in _read_on(settings, "trigger.outbox", {"dispatch_succeeded"}, known.outbox):
        known.counts[entry.value["event_id"]] += 1
    for entry in _read_on(settings, "trigger.dlq", {"dlq_moved"}, known.dead):
        known.counts[entry.value["event"]["id"]] += 1
    return known.counts.copy()


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
