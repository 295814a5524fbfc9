"""A worker whose queues are in several partitions: no queue waits for the others to be empty."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.placement import partition_of
from streams.edge.worker.presence import APART_S
from streams.edge.worker.shares import Shares
from streams.errors import ConfigError
from tests.support.virtual_time import virtual_time
from tests.support.worker_edge import CONSUMER_ID, WorkerRig, body_of, settle
from tests.support.worker_handlers import rig

KEYS = ("q1", "q2", "q5")  # one in each of three partitions


def place(queue_key: str) -> int:
    return partition_of(queue_key.encode(), 4)


def offered(worker: WorkerRig) -> dict[int, int]:
    """What each partition was offered last."""
    return {each.partition or 0: each.value["capacity"] for each in worker.log.of_kind(BEAT)[-3:]}


BEAT = "worker_heartbeat"


def waiting(worker: WorkerRig, queue_key: str, weight: int = 1) -> None:
    worker.deliver(
        "jobs_waiting",
        {
            "consumer_id": CONSUMER_ID,
            "incarnation": worker.worker.incarnation,
            "partition": place(queue_key),
            "weight": weight,
        },
    )


def test_the_queues_of_these_tests_are_in_partitions_of_their_own() -> None:
    assert len({place(each) for each in KEYS}) == 3


@virtual_time
async def test_a_single_place_goes_round_while_nothing_is_known() -> None:
    worker = await rig("never", queue_keys=KEYS, concurrency=1).start()
    seen: Counter[int] = Counter()
    for _ in range(6):
        found = offered(worker)
        assert sorted(found.values()) == [0, 0, 1]
        seen.update(partition for partition, capacity in found.items() if capacity)
        await asyncio.sleep(1)
    assert seen == {place(each): 2 for each in KEYS}
    assert all(each["divided"] for each in worker.values(BEAT))


@pytest.mark.parametrize("queue_key", KEYS)
def test_a_free_place_goes_to_where_jobs_wait(queue_key: str) -> None:
    @virtual_time
    async def run() -> None:
        worker = await rig("never", queue_keys=KEYS, concurrency=1).start()
        waiting(worker, queue_key)
        await asyncio.sleep(APART_S + 0.1)
        others = {place(each): 0 for each in KEYS}
        assert offered(worker) == {**others, place(queue_key): 1}

    run()


@virtual_time
async def test_a_queue_with_a_backlog_gives_places_back_to_one_whose_jobs_wait() -> None:
    worker = await rig("sleep_an_hour", queue_keys=KEYS, concurrency=4).start()
    jobs = [(number, body_of("sleep_an_hour", number)) for number in range(4)]
    worker.grant(*jobs[:3], queue_key="q1")
    await asyncio.sleep(1_800)
    worker.grant(jobs[3], queue_key="q1")
    await settle()
    waiting(worker, "q1", 3)
    waiting(worker, "q2", 1)
    await asyncio.sleep(1.1)
    others = {place("q2"): 0, place("q5"): 0}
    assert offered(worker) == {place("q1"): -1, **others}, "none is free, so none is offered"
    await asyncio.sleep(1_800)
    waiting(worker, "q1", 3)
    waiting(worker, "q2", 1)
    await asyncio.sleep(1.1)
    assert sorted(worker.acked) == ["0.1", "1.1", "2.1"]
    assert offered(worker) == {place("q1"): 2, place("q2"): 1, place("q5"): 0}


@virtual_time
async def test_a_worker_of_one_partition_has_nothing_to_divide() -> None:
    worker = await rig("never", concurrency=3).start()
    assert (worker.heartbeat["capacity"], worker.heartbeat["divided"]) == (3, False)


@virtual_time
async def test_a_worker_whose_name_was_taken_ends_and_says_why() -> None:
    worker = await rig("never").start()
    said = {"consumer_id": CONSUMER_ID, "incarnation": worker.worker.incarnation}
    worker.deliver("worker_replaced", {**said, "incarnation": "another"})
    await settle()
    assert not worker.worker.failed.done(), "it was another one's"
    worker.deliver("worker_replaced", said)
    with pytest.raises(ConfigError, match="another worker has started as 'worker-a'"):
        await worker.worker.failed


@virtual_time
async def test_a_worker_that_leaves_does_not_mind_that_its_name_is_taken() -> None:
    worker = await rig("never", drain_ms=1_000).start()
    worker.grant((1, body_of("never", 1)))
    await settle()
    stopping = asyncio.ensure_future(worker.worker.stop())
    await settle()
    said = {"consumer_id": CONSUMER_ID, "incarnation": worker.worker.incarnation}
    worker.deliver("worker_replaced", said)
    await stopping
    assert not worker.worker.failed.done()


PARTITIONS: tuple[int, ...] = (2, 3, 5, 7)


@given(
    st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 50)),
    st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 40)),
    st.integers(0, 40),
    st.sampled_from([0, 1, 7, 200]),
)
def test_whatever_is_free_is_offered_and_nothing_else(
    weights: dict[int, int], has: dict[int, int], free: int, ending: int
) -> None:
    shares = Shares(PARTITIONS, 10.0)
    for partition, weight in weights.items():
        shares.waiting(partition, weight, 0.0)
    found = shares.divide(1.0, free=free, ending=ending, has=has)
    assert set(found) == set(PARTITIONS)
    offered = sum(max(each, 0) for each in found.values())
    assert free <= offered <= free + ending, "whatever is free is offered, and no more than comes"
    assert all(has.get(partition, 0) + each >= 0 for partition, each in found.items())
    if ending == 200 or not weights:
        assert sum(found.values()) == free, "what is taken from one is offered to another"


@given(
    st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 9), min_size=1),
    st.integers(1, 60),
    st.integers(0, 3),
)
def test_where_all_have_a_backlog_each_soon_has_its_part_by_weight(
    weights: dict[int, int], places: int, first: int
) -> None:
    shares = Shares(PARTITIONS, 10.0)
    has = dict.fromkeys(PARTITIONS, 0)
    has[PARTITIONS[first]] = places  # one had all of them, since the others were empty
    served: Counter[int] = Counter()
    for now in range(4 * len(PARTITIONS)):
        for partition, weight in weights.items():
            shares.waiting(partition, weight, float(now))
        free = places - sum(has.values())
        said = shares.divide(float(now), free=free, ending=0, has=has)
        for partition, more in said.items():
            slots = has[partition] + more
            # Every job ends at each step, and its place is granted anew as far as it may be.
            has[partition] = max(slots, 0) if partition in weights else 0
            if has[partition] > 0 and partition in weights:
                shares.granted(partition, float(now))
                served[partition] += 1
        assert sum(has.values()) <= places
    assert set(served) == set(weights), "none waits for ever"
    if places >= 10 * len(weights):
        whole = sum(weights.values())
        for partition, weight in weights.items():
            ideal = places * weight / whole
            assert abs(has[partition] - max(ideal, 1)) <= len(weights)


def test_a_partition_whose_jobs_waited_long_ago_weighs_nothing() -> None:
    shares = Shares((0, 1), 10.0)
    shares.waiting(0, 5, 0.0)
    assert shares.divide(10.0, free=4, ending=0, has={}) == {0: 4, 1: 0}
    assert not shares.waits(10.1)
    assert shares.divide(10.1, free=4, ending=0, has={}) == {0: 2, 1: 2}
