"""Which protocol the group of turns speaks, and members of both of them at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from streams.edge.group_members import memberships
from streams.edge.turns.kafka.group_protocol import CLASSIC, CONSUMER, Choice, chosen
from streams.edge.turns.kafka.membership import GROUP, Membership
from streams.errors import BrokerError
from streams.kafka import make_admin
from streams.settings import Settings
from tests.support.kafka_turns import PARTITIONS, Api, ServedWorker, until, worker
from tests.support.turn_runs import sessions_everywhere, waiting, words_about

pytestmark = [pytest.mark.broker]

ONCE = (("turn_claimed", ""), ("turn_finished", "completed"))


def times_of_group(settings: Settings, group: str) -> tuple[str, str]:
    """Its session timeout and the time between heartbeats, as the broker has them."""
    admin = make_admin(settings)
    resource = ConfigResource(ResourceType.GROUP, group)
    found = admin.describe_configs([resource])[resource].result(10)
    session = found["consumer.session.timeout.ms"].value
    return str(session), str(found["consumer.heartbeat.interval.ms"].value)


def spoken(settings: Settings) -> str:
    return memberships(make_admin(settings), [GROUP])[GROUP].protocol


def all_theirs(workers: Collection[ServedWorker]) -> bool:
    """Whether they share all partitions, evenly."""
    owned = [each.worker.doing().partitions for each in workers]
    fair = {PARTITIONS // len(owned), -(-PARTITIONS // len(owned))}
    return set().union(*owned) == set(range(PARTITIONS)) and {len(each) for each in owned} <= fair


def test_the_times_of_the_group_are_set_once_and_read_back(
    settings: Settings, run: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    wanted = replace(settings, session_timeout_ms=5_400, heartbeat_interval_ms=900)
    assert chosen(wanted, run) == Choice(CONSUMER, "the group's times are set", may_change=True)
    assert times_of_group(settings, run) == ("5400", "900")
    assert chosen(wanted, run).protocol == CONSUMER
    assert [each.message for each in caplog.records].count("turns_group_times_set") == 1


def test_a_time_that_the_cluster_refuses_is_told_and_classic_is_spoken(
    settings: Settings, run: str
) -> None:
    below = replace(settings, session_timeout_ms=999, heartbeat_interval_ms=300)
    choice = chosen(below, run)
    assert (choice.protocol, choice.may_change) == (CLASSIC, False)
    assert "consumer.session.timeout.ms=999" in choice.reason
    assert "group.consumer.min.session.timeout.ms" in choice.reason
    with pytest.raises(BrokerError, match=r"AGENT_GROUP_PROTOCOL is consumer, but .*=999"):
        chosen(replace(below, agent_group_protocol=CONSUMER), run)
    assert times_of_group(settings, run) == ("45000", "5000"), "nothing was set"


def test_a_worker_that_must_speak_consumer_is_told_which_setting_is_above_the_cluster_s_bound(
    settings: Settings, run: str
) -> None:
    above = replace(settings, session_timeout_ms=60_001, heartbeat_interval_ms=10_000)
    with pytest.raises(BrokerError) as caught:
        chosen(replace(above, agent_group_protocol=CONSUMER), run)
    assert not caught.value.retryable
    assert f"but group {run} cannot speak it: consumer.session.timeout.ms=60001" in str(
        caught.value
    )
    assert "group.consumer.max.session.timeout.ms" in str(caught.value), "the broker's own words"
    remedy = caught.value.remedy or ""
    assert remedy.startswith(
        "set HARN_HEARTBEAT_INTERVAL_MS and HARN_SESSION_TIMEOUT_MS to what the cluster lets"
    )
    assert remedy.endswith("or set AGENT_GROUP_PROTOCOL to auto")
    assert times_of_group(settings, run) == ("45000", "5000"), "nothing was set"


def test_where_a_dead_worker_would_be_missed_late_classic_is_spoken(
    settings: Settings, run: str
) -> None:
    at_most = replace(settings, session_timeout_ms=10_000)
    above = replace(settings, session_timeout_ms=10_001)
    assert chosen(at_most, run).protocol == CONSUMER
    assert chosen(above, run) == Choice(CLASSIC, "HARN_SESSION_TIMEOUT_MS is 10001, over 10000")
    assert chosen(replace(above, agent_group_protocol=CONSUMER), run).protocol == CONSUMER
    assert chosen(replace(settings, agent_group_protocol=CLASSIC), run).protocol == CLASSIC


async def test_members_of_both_protocols_share_partitions_and_hand_them_over(
    settings: Settings, run: str
) -> None:
    api, release = Api(settings), asyncio.Event()
    sessions = sessions_everywhere(run, settings)

    def enqueue(what: str) -> None:
        for each in sessions.values():
            api.enqueue(f"{each}-{what}", each)
        api.flush()

    older = replace(settings, agent_group_protocol=CLASSIC)
    enqueue("first")
    async with AsyncExitStack() as of_newer:
        newer = await of_newer.enter_async_context(worker(settings, waiting(release), name="new"))
        await until(lambda: len(newer.ran.started) == len(sessions), newer)
        async with worker(older, waiting(release), name="old") as old:
            await until(lambda: len(old.worker._assigned) == PARTITIONS // 2, old)
            assert spoken(settings) == CONSUMER
            assert newer.ran.ended == [], "who joins does not wait for turns"
            release.set()
            enqueue("second")
            await until(lambda: all_theirs([newer, old]), old)
            total = 2 * len(sessions)
            both = (newer.ran.outcomes, old.ran.outcomes)
            await until(lambda: sum(map(len, both)) == total, old)
            # With the last of its kind gone, the group is a classic one.
            await of_newer.aclose()
            enqueue("third")
            await until(lambda: all_theirs([old]), old)
            await until(lambda: sum(map(len, both)) == total + len(sessions), old)
            assert spoken(settings) == CLASSIC
    assert old.ran.outcomes
    assert set(map(tuple, words_about(settings, run).values())) == {ONCE}


async def test_a_classic_group_that_cannot_be_joined_otherwise_is_joined_so(
    settings: Settings,
) -> None:
    older = replace(settings, agent_group_protocol=CLASSIC)
    async with worker(older, name="older") as a, worker(older, name="another") as b:
        await until(lambda: all_theirs([a, b]) and spoken(settings) == CLASSIC, a)
        said = "it has 2 members of the classic protocol"
        assert chosen(settings, GROUP) == Choice(CLASSIC, said)
        with pytest.raises(BrokerError, match=said) as caught:
            chosen(replace(settings, agent_group_protocol=CONSUMER), GROUP)
        assert "stop all of them first" in (caught.value.remedy or "")
        async with worker(settings, name="newer") as c:
            await until(lambda: all_theirs([a, b, c]), c)
        assert spoken(settings) == CLASSIC


class Told:
    """What the group says to a member."""

    def __init__(self) -> None:
        self.partitions: list[int] = []
        self.errors: list[BaseException] = []

    def assigned(self, partitions: Sequence[int]) -> None:
        self.partitions += partitions

    async def revoked(self, partitions: Sequence[int]) -> None:
        for each in partitions:
            self.partitions.remove(each)

    def lost(self, partitions: Sequence[int]) -> None:
        raise AssertionError(partitions)

    def fail(self, error: BaseException) -> None:
        self.errors.append(error)


async def test_a_member_whose_first_word_is_refused_speaks_classic_unless_it_must_not(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    older = replace(settings, agent_group_protocol=CLASSIC)
    async with worker(older, name="older") as a, worker(older, name="another") as b:
        # While a member of the newer kind is there, if only a dead one, others of it may join.
        await until(lambda: all_theirs([a, b]) and spoken(settings) == CLASSIC, a)
        # It was asked before these two were there.
        strict, told = Told(), Told()
        must_not = Membership(settings, strict)
        must_not.start(Choice(CONSUMER, "asked earlier"))
        try:
            await until(lambda: bool(strict.errors), a)
        finally:
            await must_not.stop()
        assert "AGENT_GROUP_PROTOCOL is consumer" in str(strict.errors[0])
        may = Membership(settings, told)
        may.start(Choice(CONSUMER, "asked earlier", may_change=True))
        try:
            await until(lambda: bool(told.partitions), a)
        finally:
            await may.stop()
        assert (told.errors, told.partitions) == ([], [])
    spoke = [each for each in caplog.records if each.message == "turns_group_protocol"]
    (reason,) = [vars(each)["reason"] for each in spoke[-1:]]
    assert "group id does not exist" in reason
