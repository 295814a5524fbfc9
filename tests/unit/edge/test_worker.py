"""What a worker makes of a job: its response, and whether it is acked."""

from __future__ import annotations

import asyncio

import pytest

from streams.core.placement import partition_of
from streams.edge.worker.deliveries import Delivered
from streams.errors import BrokerError
from streams.handler_api import Event
from tests.support.virtual_time import virtual_time
from tests.support.worker_edge import CONSUMER_ID, WorkerRig, body_of, settle, trigger
from tests.support.worker_handlers import FUNCTIONS, TTL_S, rig


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
async def test_jobs_that_end_together_are_acked_together_and_counted_each() -> None:
    worker = await rig("answer", "explode").start()
    jobs = [(number, body_of("answer", number)) for number in range(1, 6)]
    worker.grant(*jobs, (6, body_of("explode", 6)))
    await asyncio.sleep(0.1)
    assert sorted(worker.acked) == ["1.1", "2.1", "3.1", "4.1", "5.1"]
    assert len(worker.values("ack_requested")) == 1
    assert worker.counts.settlements == {True: 5, False: 1}
    assert [held.claim_id for held in worker.worker.held] == ["6.1"]
    assert worker.worker.held.running == 0


@virtual_time
async def test_a_response_that_an_outage_kept_out_is_appended_again_before_the_ack() -> None:
    worker = await rig("answer").start()
    worker.log.failures = [BrokerError("away", retryable=True)]
    worker.grant((1, body_of("answer", 1)))
    await asyncio.sleep(1)
    assert worker.responses["1.1"]["outcome"] == "succeeded"
    assert worker.acked == ["1.1"]


@virtual_time
async def test_jobs_that_ended_together_are_all_acked_though_one_response_is_late() -> None:
    worker = await rig("answer").start()
    worker.log.failures = [BrokerError("away", retryable=True)]
    worker.grant((1, body_of("answer", 1)), (2, body_of("answer", 2)))
    await asyncio.sleep(1)
    assert sorted(worker.acked) == ["1.1", "2.1"]
    assert worker.counts.settlements == {True: 2}


async def outage_before_the_ack() -> WorkerRig:
    """A worker whose response is in the log, and whose broker is away from then on."""
    worker = await rig("answer").start()
    worker.log.held = []
    worker.grant((1, body_of("answer", 1)))
    await settle()
    assert "1.1" in worker.responses
    worker.log.failures = [BrokerError("away", retryable=True)] * 10_000
    worker.log.release()
    return worker


@virtual_time
async def test_an_ack_that_an_outage_kept_out_is_appended_again() -> None:
    worker = await outage_before_the_ack()
    await asyncio.sleep(5)
    worker.log.failures = []
    await asyncio.sleep(5)
    assert worker.acked == ["1.1"]
    assert worker.counts.settlements == {True: 1}


@virtual_time
async def test_an_ack_that_an_outage_kept_out_for_longer_than_its_claim_is_given_up() -> None:
    worker = await outage_before_the_ack()
    await asyncio.sleep(TTL_S + 2)
    worker.log.failures = []
    await asyncio.sleep(5)
    assert worker.acked == [], "another worker may have the job by now"
    assert worker.counts.settlements == {False: 1}


@virtual_time
async def test_what_the_broker_refuses_for_good_fails_the_worker() -> None:
    worker = await rig("answer").start()
    worker.log.failures = [BrokerError("not allowed", retryable=False)]
    worker.grant((1, body_of("answer", 1)))
    with pytest.raises(BrokerError, match="not allowed"):
        await worker.worker.failed


@virtual_time
async def test_a_predicate_that_takes_too_long_lets_nothing_pass() -> None:
    ran: list[str] = []

    async def note(event: Event) -> None:
        ran.append(event.id)

    async def ponder(_event: Event) -> bool:
        await asyncio.sleep(60)
        return True

    gated = trigger("note", "note", when="ponder", when_budget={"timeout": "1s"})
    worker = await WorkerRig(gated, functions={"note": note, "ponder": ponder}).start()
    worker.grant((1, body_of("note", 1)))
    await asyncio.sleep(5)
    assert (ran, worker.acked) == ([], [])
    assert worker.responses["1.1"]["outcome"] == "failed"


@virtual_time
async def test_a_job_of_a_shard_is_known_by_its_queue() -> None:
    worker = await rig("answer", queue_keys=("bulk#3",)).start()
    worker.grant((1, body_of("answer", 1)), queue_key="bulk#3")
    await settle()
    assert worker.place_of("job_response").topic == "worker.bulk.responses"
    response = worker.responses["1.1"]
    assert (response["queue"], '"key":"worker.bulk/1"' in response["result"]) == ("bulk", True)
    assert worker.place_of("ack_requested").value["queue"] == "bulk#3"


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


@pytest.mark.parametrize(
    ("job_id", "queue_key", "reason"),
    [
        (1, "nobody's", 'queue "nobody\'s" is none that it asks for'),
        (1, "triage#1", "queue 'triage#1' is none that it asks for"),
        (10**400, "triage", "job_event_id has 401 characters, expected at most 256"),
    ],
)
@virtual_time
async def test_a_grant_that_no_answer_could_be_given_to_is_passed_over(
    job_id: int, queue_key: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await rig("answer").start()
    worker.grant((job_id, body_of("answer", 1)), queue_key=queue_key)
    worker.grant((2, body_of("answer", 2)))
    await settle()
    assert worker.acked == ["2.1"]
    assert list(worker.responses) == ["2.1"]
    (told,) = [each for each in caplog.records if each.message == "worker_unusable_delivery"]
    assert told.__dict__["reason"] == reason
