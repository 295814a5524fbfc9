"""Records that no stage can use are quarantined, counted and passed; the good ones flow."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from streams.codec import Codec
from streams.edge.broker.ports import pick_ports
from streams.kafka import make_admin, make_producer
from streams.settings import Settings
from tests.support.app_cluster import (
    ENVELOPES,
    apply,
    assert_audit_is_clean,
    assert_one_outcome_each,
    cli,
    emit,
    envelope,
    event,
    provision,
    read,
    settings_for_app,
    terminal_records,
    write_manifest,
)
from tests.support.broker import PrivateBroker
from tests.support.fleet import Fleet, Member, wait_until

pytestmark = [pytest.mark.broker]

EXAMPLES = Path(__file__).parents[1] / "data" / "github-webhooks.jsonl.gz"
MANIFEST = """
[[triggers]]
id = "all"
kind = "webhook"
provider = "github"
match = { events = [] }
handler = "seen"
"""

HANDLERS = """
async def seen(event):
    return event.kind
"""


def test_undecodable_oversized_and_unknown_records_are_quarantined(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    [metrics_port] = pick_ports(tmp_path, 1)
    settings = replace(settings, metrics_port=metrics_port)
    provision(settings)
    manifest = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    good = [f"trigger_evt_{number}" for number in range(8)]
    tick = Codec().encode(
        "revision_reached", {"revision": 1, "inbox_partition": 0, "inbox_partitions": 4}
    )
    with Fleet([_member(settings, tmp_path, manifest)], supervise=False) as fleet:
        fleet.wait_ready()
        apply(settings, manifest)
        _append_raw(settings, [(b"garbage", "event_ingested"), (b"", "event_ingested")])
        _append_raw(
            settings, [(envelope(event("x"))[:-3], "event_ingested"), (tick, "revision_reached")]
        )
        _append_raw(settings, [(envelope(event("y")), "no_such_kind")])
        _append_raw(
            settings, [(envelope(event("z", provider_payload="z" * 700_000)), "event_ingested")]
        )
        asyncio.run(emit(settings, [event(number) for number in range(8)]))
        wait_until("outcomes", lambda: set(good) <= set(terminal_records(settings)))
        wait_until("all are quarantined", lambda: len(_quarantined(settings)) >= 6)
        # It counts once the transaction has ended, which readers of the log may see before it does.
        wait_until("all are counted", lambda: _quarantined_count(settings) >= 6)
        assert _quarantined_count(settings) == 6
        assert set(fleet.terminate().values()) == {0}
    found = _quarantined(settings)
    codes = sorted(entry.value["code"] for entry in found)
    assert codes == ["oversized", *["undecodable"] * 3, *["unknown_kind"] * 2]
    for entry in found:
        assert entry.value["topic"] == ENVELOPES
        assert entry.value["raw_size"] >= len(entry.value["raw"] or b"")
        assert entry.value["reason"], "it says what was expected"
    assert_one_outcome_each(settings, good)
    assert_audit_is_clean(settings)


def test_a_missing_or_wrong_topic_is_refused_at_start_with_the_remedy(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    manifest = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    serve = ["orchestrator", "serve", "--no-supervise", "--no-provision", "-m", str(manifest)]
    nothing = cli(settings, *serve)
    assert nothing.returncode == 3
    assert "trigger.dispatches" in nothing.stderr
    assert "harn topology apply" in nothing.stderr
    admin = make_admin(settings)
    for future in admin.create_topics([NewTopic("trigger.dispatches", 3, 1)]).values():
        future.result(30)
    refused = cli(settings, "topology", "apply")
    assert refused.returncode == 3
    assert "trigger.dispatches" in refused.stderr
    wrong = cli(settings, *serve)
    assert wrong.returncode == 3
    assert "3" in wrong.stderr
    assert "trigger.dispatches" in wrong.stderr


def test_github_deliveries_sent_twice_are_dispatched_once(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    provision(settings)
    manifest = write_manifest(tmp_path / "app", MANIFEST, HANDLERS)
    deliveries = _deliveries()
    with Fleet([_member(settings, tmp_path, manifest, "ingest,")], supervise=False) as fleet:
        fleet.wait_ready()
        apply(settings, manifest)
        url = f"{fleet['all'].http_url}/v1/events"
        accepted = [_post(url, delivery) for _ in range(2) for delivery in deliveries]
        wait_until("outcomes", lambda: sum(terminal_records(settings).values()) >= len(deliveries))
        wait_until(
            "repeats are told",
            lambda: (
                len(read(settings, "triggers.lifecycle", {"EventDeduplicated"})) >= len(deliveries)
            ),
        )
        assert set(fleet.terminate().values()) == {0}
    assert_one_outcome_each(settings, accepted[: len(deliveries)])
    kinds = [
        entry.value["result"] for entry in read(settings, "trigger.outbox", {"dispatch_succeeded"})
    ]
    assert sorted(kinds) == sorted(json.dumps(delivery["kind"]) for delivery in deliveries)
    assert_audit_is_clean(settings)


def _deliveries() -> list[dict[str, object]]:
    """GitHub's published examples, as events."""
    with gzip.open(EXAMPLES, "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    return [
        {
            "provider": "github",
            "kind": delivery["event"],
            "dedupe_key": f"delivery-{number}",
            "payload": delivery["payload"],
        }
        for number, delivery in enumerate(found)
    ]


def _post(url: str, body: dict[str, object]) -> str:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 202
        return json.load(answer)["event_id"]


def _member(settings: Settings, folder: Path, manifest: Path, more: str = "") -> Member:
    roles = f"{more}registry,inbox,dispatch,invoker"
    return Member("all", roles, settings, folder, ["--manifest", str(manifest)])


def _append_raw(settings: Settings, records: list[tuple[bytes, str]]) -> None:
    producer = make_producer(settings)
    for value, kind in records:
        producer.produce(ENVELOPES, value, b"raw", headers=[("kind", kind.encode())])
    assert producer.flush(30) == 0


def _quarantined(settings: Settings) -> list:
    return read(settings, "trigger.dlq", {"record_quarantined"})


def _quarantined_count(settings: Settings) -> float:
    """What the inbox stage's metric says."""
    url = f"http://127.0.0.1:{settings.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        metrics = answer.read().decode()
    counted = re.search(r'harn_stage_quarantined_total{stage="inbox"} (\S+)', metrics)
    assert counted is not None
    return float(counted[1])
