"""A worker's claims: what it asks for, renews, bears and loses."""

from __future__ import annotations

import asyncio
import itertools

from streams.core.placement import partition_of
from streams.edge.worker.presence import APART_S
from streams.edge.worker.room import CLAIMS_MAX
from streams.errors import BrokerError
from streams.handler_api import Context, Event
from tests.support.virtual_time import VirtualLoop, virtual_time
from tests.support.worker_edge import CONSUMER_ID, TTL_MS, WorkerRig, body_of, settle, trigger
from tests.support.worker_handlers import TTL_S, rig


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
    began: list[str] = []

    async def note(event: Event) -> None:
        began.append(event.id)
        await asyncio.sleep(2)

    worker = await WorkerRig(trigger("note", "note"), functions={"note": note}).start()
    worker.grant((1, body_of("note", 1)))
    worker.grant((1, body_of("note", 1)))
    await asyncio.sleep(1.5)
    assert (began, worker.listed) == (["e1"], ["1.1"])
    await asyncio.sleep(2)
    assert (began, worker.acked) == (["e1"], ["1.1"])


@virtual_time
async def test_a_claim_that_was_lost_is_not_renewed_though_its_handler_runs_on() -> None:
    worker = await rig("sleep_an_hour").start()
    worker.grant((1, body_of("sleep_an_hour", 1)))
    await settle()
    worker.log.failures = [BrokerError("away", retryable=True)] * 10_000
    await asyncio.sleep(TTL_S + 2)
    worker.log.failures = []
    await asyncio.sleep(2 * TTL_S)
    assert worker.renewed == [], "another worker may have it by now"
    assert worker.listed == []


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
        "divided": False,
        "seq": 1,
        "granted_at_ms": 0,
    }
    worker.grant((1, body_of("never", 1)))
    await asyncio.sleep(1.5)
    assert worker.listed == ["1.1"]
    assert worker.heartbeat["capacity"] == 3
    assert worker.heartbeat["seq"] > 1
    assert worker.heartbeat["granted_at_ms"] == 1, "the grant that has come"


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
    assert (worker.worker.held.busy, worker.worker.held.failed) == (0, 0)
