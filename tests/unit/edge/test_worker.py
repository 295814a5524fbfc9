from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from streams.core.placement import partition_of
from streams.edge.worker.deliveries import Delivered
from streams.edge.worker.presence import APART_S
from streams.edge.worker.room import CLAIMS_MAX
from streams.errors import BrokerError
from streams.handler_api import Context, Event
from tests.support.virtual_time import VirtualLoop, virtual_time
from tests.support.worker_edge import CONSUMER_ID, TTL_MS, WorkerRig, body_of, settle, trigger

TTL_S = TTL_MS / 1_000


async def answer(event: Event, context: Context) -> Any:
    return {"payload": event.payload, "key": context.attempt_id, "attempt": context.attempt}


async def explode(_event: Event) -> None:
    raise RuntimeError("no")


async def never(_event: Event) -> None:
    await asyncio.get_running_loop().create_future()


async def sleep_an_hour(_event: Event) -> str:
    await asyncio.sleep(3_600)
    return "slept"


async def urgent(event: Event) -> bool:
    return bool(event.payload["urgent"])


async def emit(_event: Event, context: Context) -> None:
    context.emit("news", {})


FUNCTIONS = {
    "answer": answer,
    "explode": explode,
    "never": never,
    "sleep_an_hour": sleep_an_hour,
    "urgent": urgent,
    "emit": emit,
}


def rig(*names: str, **options: Any) -> WorkerRig:
    """A worker with one trigger for each handler, of its name."""
    triggers = [trigger(name, name) for name in names]
    return WorkerRig(*triggers, functions=FUNCTIONS, **options)


@virtual_time
async def test_a_job_is_answered_then_acked_under_its_claim() -> None:
    worker = await rig("answer").start()
    worker.grant((7, body_of("answer", 1, {"n": 1})), fence=2)
    await settle()
    appended = worker.place_of("job_response")
    assert (appended.topic, appended.key) == ("worker.triage.responses", b"7")
    assert appended.value == {
        "queue": "triage",
        "job_event_id": "7",
        "claim_id": "7.2",
        "consumer_id": CONSUMER_ID,
        "trigger_id": "answer",
        "event_id": "e1",
        "dispatch_id": "dispatch-1",
        "handled_at_ms": 1_700_000_000_000,
        "outcome": "succeeded",
        "result": '{"payload":{"n":1},"key":"worker.triage/7","attempt":2}',
        "error": None,
        "claim_lost": False,
        "skipped_by": None,
    }
    ack = worker.place_of("ack_requested")
    assert (ack.topic, ack.partition) == ("worker.requests", partition_of(b"triage", 4))
    assert ack.value["acks"] == [{"job_event_id": "7", "claim_id": "7.2"}]
    kinds = [each.kind for each in worker.log.records]
    assert kinds.index("job_response") < kinds.index("ack_requested")


@virtual_time
async def test_a_job_is_acked_only_once_its_response_is_in_the_log() -> None:
    worker = await rig("answer").start()
    worker.log.held = []
    worker.grant((1, body_of("answer", 1)))
    await settle()
    assert "1.1" in worker.responses
    assert worker.acked == []
    worker.log.release()
    await settle()
    assert worker.acked == ["1.1"]


@virtual_time
async def test_a_response_that_an_outage_kept_out_is_appended_again_before_the_ack() -> None:
    worker = await rig("answer").start()
    worker.log.failures = [BrokerError("away", retryable=True)]
    worker.grant((1, body_of("answer", 1)))
    await asyncio.sleep(1)
    assert worker.responses["1.1"]["outcome"] == "succeeded"
    assert worker.acked == ["1.1"]


@virtual_time
async def test_what_the_broker_refuses_for_good_fails_the_worker() -> None:
    worker = await rig("answer").start()
    worker.log.failures = [BrokerError("not allowed", retryable=False)]
    worker.grant((1, body_of("answer", 1)))
    with pytest.raises(BrokerError, match="not allowed"):
        await worker.worker.failed


@virtual_time
async def test_a_failure_is_answered_and_its_claim_kept_until_it_runs_out() -> None:
    worker = await rig("explode").start()
    worker.grant((1, body_of("explode", 1)))
    await asyncio.sleep(0.5)
    assert worker.responses["1.1"]["outcome"] == "failed"
    assert worker.responses["1.1"]["error"] == "RuntimeError: no"
    assert worker.listed == ["1.1"]
    assert worker.heartbeat["capacity"] >= 2, "a claim that only waits holds no slot"
    await asyncio.sleep(TTL_S - 2)
    assert worker.listed == ["1.1"]
    await asyncio.sleep(4)
    assert worker.listed == []
    assert (worker.acked, worker.released, worker.renewed) == ([], [], [])


@pytest.mark.parametrize(
    ("trigger_id", "error"),
    [
        ("unknown", "failed to resolve consumer binding 'unknown'"),
        ("relayed", "a drain needs a non-worker binding"),
    ],
)
def test_a_job_that_nothing_here_can_run_is_answered_and_not_acked(
    trigger_id: str, error: str
) -> None:
    @virtual_time
    async def run() -> None:
        triggers = [trigger("answer", "answer"), trigger("relayed", "worker://other")]
        worker = await WorkerRig(*triggers, functions=FUNCTIONS).start()
        worker.grant((1, body_of(trigger_id, 1)), (2, body_of("answer", 2)))
        await settle()
        response = worker.responses["1.1"]
        assert (response["outcome"], response["trigger_id"]) == ("none", trigger_id)
        assert error in response["error"]
        assert worker.acked == ["2.1"]

    run()


@virtual_time
async def test_a_body_that_is_no_job_is_answered_and_blocks_nothing() -> None:
    worker = await rig("answer").start()
    worker.grant((1, b"garbage"), (2, body_of("answer", 2)))
    await settle()
    assert worker.responses["1.1"]["outcome"] == "none"
    assert "the body cannot be read" in worker.responses["1.1"]["error"]
    assert worker.acked == ["2.1"]


@pytest.mark.parametrize("when", ["urgent", "cel:event.provider_payload.urgent == true"])
def test_a_predicate_that_says_no_skips_and_acks(when: str) -> None:
    # SEMANTICS 5-16.
    @virtual_time
    async def run() -> None:
        worker = await WorkerRig(
            trigger("answer", "answer", when=when), functions=FUNCTIONS
        ).start()
        bodies = [body_of("answer", n, {"urgent": n == 1}) for n in (1, 2)]
        worker.grant(*enumerate(bodies, start=1))
        await settle()
        outcomes = {claim: each["outcome"] for claim, each in worker.responses.items()}
        assert outcomes == {"1.1": "succeeded", "2.1": "skipped"}
        assert sorted(worker.acked) == ["1.1", "2.1"]

    run()


@virtual_time
async def test_a_predicate_that_raises_fails_the_job() -> None:
    worker = await WorkerRig(
        trigger("answer", "answer", when="urgent"), functions=FUNCTIONS
    ).start()
    worker.grant((1, body_of("answer", 1, {})))
    await settle()
    assert worker.responses["1.1"]["outcome"] == "failed"
    assert "KeyError" in worker.responses["1.1"]["error"]
    assert worker.acked == []


@virtual_time
async def test_a_handler_of_a_job_cannot_emit() -> None:
    worker = await rig("emit").start()
    worker.grant((1, body_of("emit", 1)))
    await settle()
    assert worker.responses["1.1"]["outcome"] == "failed"
    assert "cannot emit" in worker.responses["1.1"]["error"]


@virtual_time
async def test_no_more_than_the_concurrency_runs_and_the_rest_waits_in_order() -> None:
    began: list[str] = []

    async def note(event: Event) -> None:
        began.append(event.id)
        await asyncio.sleep(1)

    worker = await WorkerRig(
        trigger("note", "note"), functions={"note": note}, concurrency=2
    ).start()
    worker.grant(*((number, body_of("note", number)) for number in range(5)))
    await asyncio.sleep(0.5)
    assert began == ["e0", "e1"]
    await asyncio.sleep(1)
    assert began == ["e0", "e1", "e2", "e3"]
    await asyncio.sleep(2)
    assert sorted(worker.acked) == ["0.1", "1.1", "2.1", "3.1", "4.1"]


@virtual_time
async def test_a_claim_is_renewed_at_half_its_time_for_as_long_as_the_handler_runs() -> None:
    worker = await rig("sleep_an_hour").start()
    worker.grant((1, body_of("sleep_an_hour", 1)))
    await asyncio.sleep(TTL_S / 2 - 2)
    assert worker.renewed == []
    await asyncio.sleep(4)
    assert worker.renewed == ["1.1"]
    await asyncio.sleep(3_600)
    assert worker.acked == ["1.1"]
    assert 100 <= len(worker.renewed) <= 130


@virtual_time
async def test_a_claim_lost_while_its_handler_runs_flips_the_token_and_is_never_acked() -> None:
    reasons: list[str | None] = []

    async def wait(_event: Event, context: Context) -> str:
        reasons.append(await context.cancelled)
        return "too late"

    worker = await WorkerRig(trigger("wait", "wait"), functions={"wait": wait}).start()
    worker.grant((1, body_of("wait", 1)))
    await settle()
    # No renewal arrives any more.
    worker.log.failures = [BrokerError("away", retryable=True)] * 10_000
    await asyncio.sleep(TTL_S + 2)
    worker.log.failures = []
    await asyncio.sleep(5)
    assert reasons == ["cancelled"]
    assert worker.responses["1.1"]["result"] == '"too late"'
    assert worker.responses["1.1"]["claim_lost"] is True
    assert worker.acked == []
    assert worker.counts.lost == 1
    assert worker.listed == []


@virtual_time
async def test_a_process_stopped_beyond_its_claims_begins_anew_and_acks_nothing_of_before() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    gate = asyncio.Event()

    async def wait(_event: Event) -> None:
        await gate.wait()

    worker = await WorkerRig(
        trigger("wait", "wait"), functions={"wait": wait}, concurrency=1
    ).start()
    before = worker.worker.incarnation
    worker.grant((1, body_of("wait", 1)), (2, body_of("wait", 2)))
    await settle()
    loop.jump(TTL_S + 5)
    gate.set()  # the handler ends at the same moment as the process goes on
    await asyncio.sleep(2)
    assert worker.worker.incarnation != before
    assert worker.heartbeat["incarnation"] == worker.worker.incarnation
    assert worker.listed == []
    assert worker.acked == []
    assert worker.responses["1.1"]["claim_lost"] is True
    assert "2.1" not in worker.responses, "what had not begun is another's"
    # What was granted to it meanwhile is not run.
    worker.grant((3, body_of("wait", 3)), incarnation=before)
    await settle()
    assert "3.1" not in worker.responses


@virtual_time
async def test_a_grant_that_comes_twice_is_run_once() -> None:
    worker = await rig("never", "answer").start()
    worker.grant((1, body_of("never", 1)))
    worker.grant((1, body_of("never", 1)))
    await asyncio.sleep(2)
    assert worker.listed == ["1.1"]


@virtual_time
async def test_heartbeats_name_partition_claims_and_capacity() -> None:
    worker = await rig("never", "answer", concurrency=4).start()
    first = worker.heartbeat
    assert first == {
        "consumer_id": CONSUMER_ID,
        "incarnation": worker.worker.incarnation,
        "deliveries_partition": 3,
        "queues": ["triage"],
        "capacity": 4,
        "claims": [],
        "claim_ttl_ms": TTL_MS,
        "draining": False,
        "once": False,
        "seq": 1,
    }
    worker.grant((1, body_of("never", 1)))
    await asyncio.sleep(1.5)
    assert worker.listed == ["1.1"]
    assert worker.heartbeat["capacity"] == 3
    assert worker.heartbeat["seq"] > 1


@virtual_time
async def test_queues_of_several_partitions_share_the_capacity() -> None:
    keys = [f"q{number}" for number in range(12)]
    worker = await rig("never", queue_keys=keys, concurrency=10).start()
    beats = {each.partition: each.value for each in worker.log.of_kind("worker_heartbeat")}
    assert set(beats) == {partition_of(key.encode(), 4) for key in keys}
    assert sum(beat["capacity"] for beat in beats.values()) == 10
    for partition, beat in beats.items():
        assert {partition_of(key.encode(), 4) for key in beat["queues"]} == {partition}
    worker.grant((1, body_of("never", 1)), queue_key="q1")
    await asyncio.sleep(1.5)
    for each in worker.log.of_kind("worker_heartbeat")[-len(beats) :]:
        claims = [claim["queue"] for claim in each.value["claims"]]
        assert claims == (["q1"] if each.partition == partition_of(b"q1", 4) else [])


@virtual_time
async def test_quick_jobs_let_it_ask_ahead_and_slow_ones_do_not() -> None:
    async def quick(_event: Event) -> None:
        await asyncio.sleep(0.001)

    async def slow(_event: Event) -> None:
        await asyncio.sleep(10)

    for function, least, most in ((quick, 20, 200), (slow, 2, 2)):
        worker = await WorkerRig(
            trigger("t", "t"), functions={"t": function}, concurrency=2
        ).start()
        worker.grant(*((number, body_of("t", number)) for number in range(2)))
        await asyncio.sleep(15)
        assert least <= worker.heartbeat["capacity"] <= most


@virtual_time
async def test_heartbeats_leave_a_grant_the_time_to_arrive_between_two_of_them() -> None:
    # A claim that two heartbeats leave out is released by the scheduler.
    worker = await rig("explode", concurrency=4).start()
    loop = asyncio.get_running_loop()
    said_s: list[float] = []
    for number in range(200):
        before = len(worker.log.of_kind("worker_heartbeat"))
        worker.grant((number, body_of("explode", number)))
        await asyncio.sleep(0.02)
        if len(worker.log.of_kind("worker_heartbeat")) > before:
            said_s.append(loop.time())
    assert len(said_s) >= 8, "what frees a slot is said before the next beat"
    assert min(b - a for a, b in itertools.pairwise(said_s)) > APART_S - 0.03


@virtual_time
async def test_failed_jobs_are_borne_up_to_the_bound_on_claims() -> None:
    worker = await rig("explode", concurrency=64).start()
    for first in range(0, CLAIMS_MAX, 64):
        last = min(first + 64, CLAIMS_MAX)
        worker.grant(*((n, body_of("explode", n)) for n in range(first, last)))
        await settle()
    await asyncio.sleep(1.5)
    assert len(worker.listed) == CLAIMS_MAX
    assert worker.heartbeat["capacity"] == 0
    await asyncio.sleep(TTL_S)
    assert worker.heartbeat["capacity"] >= 64


@virtual_time
async def test_stopping_releases_what_waits_and_lets_what_runs_end() -> None:
    async def clean_up(_event: Event, context: Context) -> str:
        return f"saw {await context.cancelled}"

    worker = await WorkerRig(
        trigger("clean_up", "clean_up"), functions={"clean_up": clean_up}, concurrency=1
    ).start()
    worker.grant((1, body_of("clean_up", 1)), (2, body_of("clean_up", 2)))
    await settle()
    await worker.worker.stop()
    assert worker.released == ["2.1"]
    assert worker.acked == ["1.1"]
    assert worker.responses["1.1"]["result"] == '"saw shutdown"'
    assert worker.heartbeat["draining"] is True
    assert worker.heartbeat["capacity"] == 0
    assert worker.listed == []
    assert worker.deliveries.stopped


@virtual_time
async def test_what_does_not_end_while_stopping_is_cut_off_and_released() -> None:
    worker = await rig("never", drain_ms=5_000).start()
    worker.grant((1, body_of("never", 1)))
    await settle()
    began_s = asyncio.get_running_loop().time()
    await worker.worker.stop()
    assert 5 <= asyncio.get_running_loop().time() - began_s < 8
    assert worker.responses["1.1"]["outcome"] == "interrupted"
    assert worker.released == ["1.1"]
    assert worker.acked == []


@virtual_time
async def test_a_grant_that_comes_while_stopping_is_released() -> None:
    worker = await rig("never", drain_ms=5_000).start()
    worker.grant((1, body_of("never", 1)))
    await settle()
    stopping = asyncio.ensure_future(worker.worker.stop())
    await settle()
    worker.grant((2, body_of("never", 2)))
    await stopping
    assert "2.1" in worker.released
    assert "2.1" not in worker.responses


@virtual_time
async def test_once_ends_when_nothing_is_ready_after_all_was_done() -> None:
    worker = await rig("answer", "explode", once=True).start()
    assert worker.heartbeat["once"] is True
    worker.grant((1, body_of("answer", 1)), (2, body_of("explode", 2)))
    worker.nothing_ready(1)  # said before these were done: it says nothing of them
    await asyncio.sleep(0.5)
    assert not worker.worker.emptied.done()
    worker.nothing_ready(worker.heartbeat["seq"])
    await asyncio.wait_for(worker.worker.emptied, 1)
    assert worker.counts.settlements == {True: 1, False: 1}


@virtual_time
async def test_once_on_an_empty_queue_ends_at_the_first_word() -> None:
    worker = await rig("answer", once=True, queue_keys=("a", "b")).start()
    worker.nothing_ready(1, "a")
    await settle()
    assert not worker.worker.emptied.done(), "one of two queues says nothing of the other"
    worker.nothing_ready(1, "b")
    await asyncio.wait_for(worker.worker.emptied, 1)


@virtual_time
async def test_an_unusable_delivery_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    worker = await rig("answer").start()
    worker.worker.take([Delivered(9, "jobs_granted", b"garbage")])
    worker.grant((1, body_of("answer", 1)))
    await settle()
    assert worker.acked == ["1.1"]
    assert any(record.message == "worker_unusable_delivery" for record in caplog.records)


@virtual_time
async def test_the_gates_of_the_consumer_manifest_are_registered_before_the_first_heartbeat() -> (
    None
):
    worker = await WorkerRig(
        trigger("gated", "answer", concurrency={"max": 2}),
        trigger("free", "answer"),
        functions=FUNCTIONS,
    ).start()
    kinds = [each.kind for each in worker.log.records]
    assert kinds[:2] == ["consumer_registered", "worker_heartbeat"]
    (registered,) = worker.values("consumer_registered")
    assert [gates["trigger_id"] for gates in registered["gates"]] == ["gated"]
    assert '"concurrency":{"max":2}' in registered["gates"][0]["definition"]
    assert registered["digest"] == worker.worker._consumer.digest
