"""Producer and consumer in memory: an event becomes a job, a worker runs it, and answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from streams.core import scheduler_policy
from streams.core.manifest import Manifest, parse_manifest
from streams.core.shards import spread
from streams.core.wire import SchedulerPolicy
from streams.edge.handlers import Handlers
from streams.edge.worker.consumer import Consumer
from streams.errors import ManifestError
from streams.expressions import EXPRESSIONS
from streams.handler_api import Context, Event
from streams.testing import Chaos, PipelineDriver, event, policy
from tests.support import history
from tests.support.triggers import bindings_of

PRODUCER = """
[[triggers]]
id = "triage"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "worker://triage"
"""

RESPONSES, CLAIMS = "worker.triage.responses", "worker.triage.claims"


def consumer_of(functions: Mapping[str, Callable[..., Any]], **more: Any) -> Consumer:
    trigger = {
        "id": "triage",
        "kind": "webhook",
        "provider": "github",
        "match": {"events": ["issues.opened"]},
        "handler": "triage",
        **more,
    }
    parsed = parse_manifest({"triggers": [trigger]}, "harn.toml", EXPRESSIONS)
    assert isinstance(parsed, Manifest), parsed
    return Consumer(parsed.bindings, Handlers.of(functions))


def scheduled(**fields: Any) -> Any:
    return policy(scheduler=cast("SchedulerPolicy", {**scheduler_policy.DEFAULT, **fields}))


def driver_with(*events: str, tenants: int = 1, **options: Any) -> PipelineDriver:
    driver = PipelineDriver(**options)
    driver.apply(bindings_of(PRODUCER))
    for number, event_id in enumerate(events):
        tenant = f"tenant-{number % tenants}"
        driver.emit(event(event_id, kind="issues.opened", tenant_id=tenant))
    return driver


def answers(driver: PipelineDriver) -> list[tuple[str, str]]:
    return [
        (each.value["event_id"], each.value["outcome"])
        for each in driver.records(RESPONSES, "job_response")
    ]


def test_a_job_is_run_answered_and_acked() -> None:
    seen: list[tuple[str, int, str]] = []

    def triage(found: Event, context: Context) -> dict[str, Any]:
        seen.append((found.id, context.attempt, context.attempt_id))
        return {"labels": ["bug"]}

    driver = driver_with("e1")
    driver.work(consumer_of({"triage": triage}), "triage")
    driver.finish()
    [answer] = driver.records(RESPONSES, "job_response")
    assert (answer.value["outcome"], answer.value["result"]) == ("succeeded", '{"labels":["bug"]}')
    assert seen == [("e1", 1, "worker.triage/0")]
    assert [each.kind for each in driver.records(CLAIMS)] == ["job_claimed", "job_acked"]
    assert driver.audit().word == "verified"


def test_a_worker_that_is_there_first_gets_what_comes_however_much_later() -> None:
    driver = driver_with()
    driver.work(consumer_of({"triage": lambda _event: None}), "triage")
    driver.finish()
    for number in range(3):
        driver.advance(86_400_000)
        driver.emit(event(f"e{number}", kind="issues.opened"))
        driver.finish()
        assert answers(driver)[-1] == (f"e{number}", "succeeded")


def test_a_job_that_fails_comes_again_when_its_claim_runs_out_until_it_is_dead() -> None:
    def explode(_event: Event) -> None:
        raise RuntimeError("no")

    driver = driver_with("e1", policy=scheduled(max_deliveries=3))
    began_ms = driver.clock.now_ms
    driver.work(consumer_of({"triage": explode}), "triage", claim_ttl_ms=60_000)
    driver.finish()
    assert answers(driver) == [("e1", "failed")] * 3
    assert [each.context.attempt for each in driver.runs] == [1, 2, 3]
    [dead] = driver.records(CLAIMS, "job_dead")
    assert dead.value["reason"] == "max_deliveries"
    assert [run.started_ms - began_ms for run in driver.runs] == [0, 60_000, 120_000]


def test_a_claim_is_renewed_for_as_long_as_a_handler_runs() -> None:
    driver = driver_with("e1", duration_ms=3_600_000)
    driver.work(consumer_of({"triage": lambda _event: 1}), "triage", claim_ttl_ms=600_000)
    driver.finish()
    assert answers(driver) == [("e1", "succeeded")]
    assert len(driver.records(CLAIMS, "claim_renewed")) == 11
    assert driver.records(CLAIMS, "claim_expired") == []


def test_no_more_than_its_concurrency_runs_at_a_time_and_tenants_take_turns() -> None:
    events = [f"e{number}" for number in range(8)]
    driver = driver_with(*events, duration_ms=1_000, policy=scheduled(strategy="drr"), tenants=2)
    driver.work(consumer_of({"triage": lambda _event: 1}), "triage", concurrency=2)
    driver.finish()
    began = Counter(run.started_ms for run in driver.runs)
    assert sorted(began.values()) == [2, 2, 2, 2]
    assert len(driver.records(CLAIMS, "job_acked")) == 8


@pytest.mark.parametrize(
    ("more", "outcome", "error"),
    [
        ({"when": "cel: event.kind == 'x'"}, "skipped", None),
        ({"when": "never"}, "skipped", None),
        ({"timeout": "1s"}, "failed", "1000 ms"),
    ],
)
def test_predicates_and_timeouts_hold_as_in_a_live_worker(
    more: dict[str, Any], outcome: str, error: str | None
) -> None:
    driver = driver_with("e1", duration_ms=5_000, policy=scheduled(max_deliveries=1))
    functions = {"triage": lambda _event: 1, "never": lambda _event: False}
    driver.work(consumer_of(functions, **more), "triage")
    driver.finish()
    [answer] = driver.records(RESPONSES, "job_response")
    assert answer.value["outcome"] == outcome
    assert (error or "") in (answer.value["error"] or "")


def test_two_workers_share_a_queue_and_a_restart_takes_its_predecessors_place() -> None:
    driver = driver_with(*[f"e{number}" for number in range(6)], duration_ms=10_000)
    consumer = consumer_of({"triage": lambda _event: 1})
    driver.work(consumer, "triage", consumer_id="one", concurrency=2)
    driver.work(consumer, "triage", consumer_id="two", concurrency=2)
    driver.advance(1_000)
    assert Counter(run.invoker_id for run in driver.runs) == {"one": 2, "two": 2}
    driver.work(consumer, "triage", consumer_id="one", concurrency=2)
    driver.finish()
    acked = Counter(each.value["job_event_id"] for each in driver.records(CLAIMS, "job_acked"))
    assert list(acked.values()) == [1] * 6
    assert len(driver.records(CLAIMS, "job_released")) == 2, "what the one before held"


def test_a_consumer_manifest_is_loaded_as_a_worker_loads_it(tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text("def triage(event):\n    return event.id\n")
    manifest = tmp_path / "harn.toml"
    text = PRODUCER.replace("worker://triage", "lib::triage") + '[exports]\nlib = "lib.py"\n'
    manifest.write_text(text)
    driver = driver_with("e1")
    driver.work(manifest, "triage")
    driver.finish()
    assert answers(driver) == [("e1", "succeeded")]
    manifest.write_text(text.replace("[exports]", "retry = { max = 2 }\n[exports]"))
    with pytest.raises(ManifestError, match="retry is not used"):
        driver.work(manifest, "triage")


def sharded(driver: PipelineDriver, shards: int) -> None:
    partitions = driver.kafka.partitions("worker.requests")
    value = {
        "queue": "triage",
        "shards": shards,
        "shard_by": "tenant",
        "numbers": spread("triage", shards, partitions),
        "configured_at": "2026-01-01T00:00:00.000Z",
        "configured_by": "test",
    }
    driver.append("worker.queues", "queue_configured", value, key="\0triage")


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_worker_with_fewer_places_than_shards_does_the_jobs_of_all(concurrency: int) -> None:
    driver = PipelineDriver(partitions=4, duration_ms=700)
    sharded(driver, 12)
    driver.apply(bindings_of(PRODUCER))
    driver.work(consumer_of({"triage": lambda _event: 1}), "triage", concurrency=concurrency)
    for number in range(30):
        driver.emit(event(f"e{number}", kind="issues.opened", tenant_id=f"t{number % 10}"))
    driver.finish()
    places = {each.position.partition for each in driver.records("worker.requests", "jobs_ready")}
    assert len(places) > concurrency, "the test is about several partitions"
    acked = Counter(each.value["job_event_id"] for each in driver.records(CLAIMS, "job_acked"))
    assert list(acked.values()) == [1] * 30


def test_a_shard_with_a_backlog_does_not_keep_the_others_waiting() -> None:
    driver = PipelineDriver(partitions=4, duration_ms=1_000)
    sharded(driver, 4)
    driver.apply(bindings_of(PRODUCER), policy=scheduled(strategy="drr"))
    driver.work(consumer_of({"triage": lambda _event: 1}), "triage", concurrency=2)
    for number in range(60):
        driver.emit(event(f"old{number}", kind="issues.opened", tenant_id="t0"))
    driver.advance(5_000)
    late = [f"t{number}" for number in range(1, 8)]
    for tenant in late:
        driver.emit(event(f"new-{tenant}", kind="issues.opened", tenant_id=tenant))
    driver.finish()
    order = [event_id for event_id, _ in answers(driver)]
    assert len(order) == 67
    shards = {each.key for each in driver.records("worker.requests", "jobs_ready")}
    assert len(shards) > 2, "the test is about several shards"
    last = max(order.index(f"new-{tenant}") for tenant in late)
    assert last < 50, f"done after {last} others: some shard waited for the backlog of another one"


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_every_job_is_acked_once_in_any_weather(seed: int, shards: int) -> None:
    driver = PipelineDriver(partitions=3, chaos=Chaos.storm(seed), duration_ms=700)
    if shards > 1:
        sharded(driver, shards)
    driver.apply(bindings_of(PRODUCER), policy=scheduled(strategy="drr", max_deliveries=0))
    consumer = consumer_of({"triage": lambda _event: 1})
    for name in ("one", "two"):
        driver.work(consumer, "triage", consumer_id=name, concurrency=3, claim_ttl_ms=5_000)
    for number in range(25):
        driver.emit(event(f"e{number}", kind="issues.opened", tenant_id=f"t{number % 5}"))
    driver.finish()
    jobs = driver.records("worker.triage", "trigger_dispatch")
    acked = Counter(each.value["job_event_id"] for each in driver.records(CLAIMS, "job_acked"))
    assert len(jobs) == 25
    assert acked == {str(each.position.offset): 1 for each in jobs}
    answered = {each.value["job_event_id"] for each in driver.records(RESPONSES, "job_response")}
    assert answered == set(acked)
    places = {each.position.partition for each in driver.records("worker.requests", "jobs_ready")}
    assert len(places) == shards, "shards live apart"
    history.the_queues_hold(driver)
    assert driver.audit().word == "verified"


def test_runs_with_a_worker_are_the_same_run_by_the_same_seed() -> None:
    def log_of(seed: int) -> list[Any]:
        driver = PipelineDriver(chaos=Chaos.storm(seed), duration_ms=50)
        driver.apply(bindings_of(PRODUCER))
        driver.work(consumer_of({"triage": lambda _event: 1}), "triage", concurrency=2)
        for number in range(10):
            driver.emit(event(f"e{number}", kind="issues.opened"))
        driver.finish()
        return [(each.position, each.value) for each in driver.history(CLAIMS, RESPONSES)]

    assert log_of(3) == log_of(3)
