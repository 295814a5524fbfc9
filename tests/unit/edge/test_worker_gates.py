"""A worker asks the gates before it starts: what is admitted runs, the rest is not its own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streams.core.expression import KEY_CHARS_MAX
from streams.edge.worker.consumer import Consumer
from streams.edge.worker.gate_asks import ASK_AGAIN_S, JOBS_PER_ASK_MAX
from streams.engine import MAX_INPUT_BYTES
from streams.errors import BrokerError, ManifestError
from streams.handler_api import Event
from tests.support.invoker_edge import CODEC
from tests.support.virtual_time import virtual_time
from tests.support.worker_edge import TTL_MS, WorkerRig, body_of, settle, trigger

RAN: list[str] = []
PREDICATES: list[str] = []


async def note(event: Event) -> None:
    RAN.append(event.id)


async def urgent(event: Event) -> bool:
    PREDICATES.append(event.id)
    return bool(event.payload["urgent"])


async def slow(event: Event) -> None:
    RAN.append(event.id)
    await asyncio.sleep(1)


FUNCTIONS = {"note": note, "urgent": urgent, "slow": slow}
GATES = {
    "concurrency": {"max": 1, "key": "event.payload.repo"},
    "throttle": {"period": "1s", "max": 5},
}


def rig(concurrency: int = 2, once: bool = False, **more: Any) -> WorkerRig:
    RAN.clear()
    PREDICATES.clear()
    gated = trigger("gated", "note", **{**GATES, **more})
    others = trigger("free", "note"), trigger("slow", "slow")
    return WorkerRig(gated, *others, functions=FUNCTIONS, concurrency=concurrency, once=once)


def job(number: int, **payload: Any) -> tuple[int, bytes]:
    return number, body_of("gated", number, {"repo": "r", **payload})


@virtual_time
async def test_jobs_are_asked_for_together_with_the_values_of_their_keys() -> None:
    worker = await rig(priority={"key": "event.kind", "order": ["x"]}).start()
    worker.grant(job(1), job(2), job(3, repo="other"))
    await settle()
    (asked,) = worker.values("gates_requested")
    assert worker.asked == ["1.1", "2.1", "3.1"], "more of them than handlers run"
    assert asked["jobs"][2] == {
        "job_event_id": "3",
        "claim_id": "3.1",
        "trigger_id": "gated",
        "dispatch_id": "dispatch-3",
        "keys": {
            "throttle": "_global",
            "concurrency": "other",
            "priority": asked["jobs"][0]["keys"]["priority"],
        },
    }
    assert RAN == []
    await asyncio.sleep(2)
    assert worker.listed == ["1.1", "2.1", "3.1"], "what waits for its answer is held"


@virtual_time
async def test_what_is_admitted_runs_and_what_is_not_is_forgotten_without_a_word() -> None:
    worker = await rig().start()
    worker.grant(job(1), job(2), job(3), job(4))
    await settle()
    worker.gates_answer(j2="admitted", j1="delayed", j3="skipped", j4="lost")
    await settle()
    assert RAN == ["e2"]
    assert worker.acked == ["2.1"]
    assert list(worker.responses) == ["2.1"], "the scheduler answers for the skipped one"
    await asyncio.sleep(2)
    assert worker.listed == []
    assert (worker.released, worker.heartbeat["capacity"] >= 2) == ([], True)


@virtual_time
async def test_what_was_admitted_begins_before_what_merely_waits() -> None:
    worker = await rig(concurrency=1).start()
    worker.grant(job(1))
    await settle()
    worker.grant((2, body_of("slow", 2)), (3, body_of("slow", 3)))
    await settle()
    worker.gates_answer(j1="admitted")
    await asyncio.sleep(5)
    assert RAN == ["e2", "e1", "e3"]


@virtual_time
async def test_a_job_without_gates_asks_nothing() -> None:
    worker = await rig().start()
    worker.grant((1, body_of("free", 1)))
    await settle()
    assert (worker.acked, worker.asked) == (["1.1"], [])


@virtual_time
async def test_a_job_that_was_admitted_before_its_grant_starts_at_once() -> None:
    worker = await rig(when="urgent").start()
    worker.grant(job(1, urgent=False), admitted=True)
    await settle()
    assert (worker.acked, worker.asked, PREDICATES) == (["1.1"], [], [])


@pytest.mark.parametrize("when", ["urgent", "cel:event.payload.urgent == true"])
def test_the_predicate_comes_before_the_gates(when: str) -> None:
    @virtual_time
    async def run() -> None:
        worker = await rig(concurrency=1, when=when).start()
        worker.grant(job(1, urgent=False), job(2, urgent=True))
        await settle()
        assert worker.responses["1.1"]["outcome"] == "skipped"
        assert worker.asked == ["2.1"]
        worker.gates_answer(j2="admitted")
        await settle()
        assert worker.acked == ["1.1", "2.1"]
        assert PREDICATES in (["e1", "e2"], [])

    run()


@virtual_time
async def test_a_key_that_cannot_be_found_fails_the_job() -> None:
    worker = await rig(singleton={"key": "int(event.payload.repo)"}).start()
    worker.grant(job(1, repo="no number"))
    await settle()
    assert worker.responses["1.1"]["outcome"] == "failed"
    assert "singleton.key" in worker.responses["1.1"]["error"]
    assert (worker.acked, worker.asked) == ([], [])


@virtual_time
async def test_what_has_no_answer_is_asked_for_again() -> None:
    worker = await rig().start()
    worker.grant(job(1))
    await asyncio.sleep(ASK_AGAIN_S + 2)
    assert worker.asked == ["1.1", "1.1"]
    worker.gates_answer(j1="admitted")
    worker.gates_answer(j1="admitted")
    await asyncio.sleep(ASK_AGAIN_S + 2)
    assert worker.acked == ["1.1"]
    assert (RAN, len(worker.asked)) == (["e1"], 2)


@virtual_time
async def test_a_question_that_an_outage_kept_out_is_asked_with_the_next_beat() -> None:
    worker = await rig().start()
    worker.log.failures = [BrokerError("away", retryable=True)]
    worker.grant(job(1))
    await asyncio.sleep(2)
    assert worker.asked == ["1.1"]


@virtual_time
async def test_what_the_broker_refuses_for_good_ends_the_worker() -> None:
    worker = await rig().start()
    worker.log.failures = [BrokerError("not allowed", retryable=False)]
    worker.grant(job(1))
    with pytest.raises(BrokerError, match="not allowed"):
        await worker.worker.failed


@virtual_time
async def test_claims_of_jobs_that_ask_are_renewed_and_released_at_a_stop() -> None:
    worker = await rig().start()
    worker.grant(job(1), job(2))
    await asyncio.sleep(0.75 * TTL_MS / 1_000)
    assert sorted(worker.renewed) == ["1.1", "2.1"]
    worker.gates_answer(j2="admitted")
    await worker.worker.stop()
    assert (worker.released, worker.acked) == (["1.1"], ["2.1"])
    worker.gates_answer(j1="admitted")
    await settle()
    assert RAN == ["e2"], "it came too late"


@virtual_time
async def test_a_claim_that_runs_out_while_it_asks_is_given_up() -> None:
    worker = await rig().start()
    worker.log.failures = [BrokerError("away", retryable=True)] * 10_000
    worker.grant(job(1))
    await asyncio.sleep(2 * TTL_MS / 1_000)
    worker.log.failures = []
    worker.gates_answer(j1="admitted")
    await asyncio.sleep(2)
    assert (RAN, worker.listed) == ([], [])


@virtual_time
async def test_many_are_asked_for_in_records_of_a_bounded_size() -> None:
    worker = await rig().start()
    worker.grant(*(job(number) for number in range(JOBS_PER_ASK_MAX + 1)))
    await settle()
    assert [len(each["jobs"]) for each in worker.values("gates_requested")] == [
        JOBS_PER_ASK_MAX,
        1,
    ]


@virtual_time
async def test_jobs_with_the_longest_keys_are_asked_for_in_records_that_the_mailbox_takes() -> None:
    key = "event.payload.repo"
    gates: dict[str, Any] = {
        "debounce": {"key": key, "period": "1s"},
        "rate_limit": {"key": key, "period": "1s", "max": 5},
        "throttle": {"key": key, "period": "1s", "max": 5},
        "singleton": {"key": key},
        "priority": {"key": key, "order": ["x"]},
    }
    worker = await rig(**gates).start()
    repo = "\N{GRINNING FACE}" * KEY_CHARS_MAX
    worker.grant(*(job(number, repo=repo) for number in range(JOBS_PER_ASK_MAX)))
    await settle()
    assert len(worker.asked) == JOBS_PER_ASK_MAX
    words = worker.values("gates_requested")
    assert words[0]["jobs"][0]["keys"]["concurrency"] == repo
    sizes = [len(CODEC.encode("gates_requested", each)) for each in words]
    assert max(sizes) <= MAX_INPUT_BYTES


@virtual_time
async def test_gates_of_another_worker_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    def warned() -> list[str]:
        return [
            each.__dict__["digest"]
            for each in caplog.records
            if each.message == "worker_gates_differ"
        ]

    worker = await rig().start()
    worker.grant(job(1), digest=worker.values("consumer_registered")[0]["digest"])
    assert warned() == []
    worker.grant(job(2), digest="other")
    worker.grant(job(3), digest="other")
    assert warned() == ["other"]


@virtual_time
async def test_a_drain_ends_though_jobs_wait_at_gates() -> None:
    worker = await rig(once=True).start()
    worker.grant(job(1))
    await settle()
    worker.gates_answer(j1="delayed")
    await asyncio.sleep(1)
    worker.nothing_ready(worker.heartbeat["seq"])
    await settle()
    assert worker.worker.emptied.done()


def test_batch_is_refused_by_name(tmp_path: Path) -> None:
    manifest = tmp_path / "harn.toml"
    manifest.write_text(
        '[exports]\nhandlers = "lib.py"\n[[triggers]]\nid = "gated"\nkind = "webhook"\n'
        'provider = "github"\nmatch = {}\nhandler = "handlers::answer"\n'
        'batch = { size = 2, timeout = "1s" }\n'
    )
    (tmp_path / "lib.py").write_text("def answer(event):\n    return None\n")
    with pytest.raises(ManifestError, match="trigger 'gated': batch is not used") as caught:
        Consumer.load(manifest)
    assert "a job is run and answered by itself" in str(caught.value)
