"""Where a group stands is asked for while its coordinator is not there: nobody ends of it."""

from __future__ import annotations

import multiprocessing
import time
from contextlib import closing, suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from streams.agents.backlog import KafkaBacklog
from streams.audit.kafka_log import KafkaLog
from streams.errors import BrokerError
from streams.provision import provision_topics
from streams.settings import Settings
from tests.support.broker import PrivateBroker
from tests.support.fleet import wait_until
from topology.edges import INVOKER

pytestmark = [pytest.mark.broker]

TOPIC, PARTITIONS = INVOKER.reads_in_group[0], 2
ANSWERS = 5


def ask(settings: Settings, asked: multiprocessing.Queue[int]) -> None:
    """Ask for groups that nobody has heard of, until the process is ended."""
    for number in count():
        with suppress(BrokerError), KafkaLog(settings) as log:
            log.committed(f"group-{number}", TOPIC, range(PARTITIONS))
            with closing(KafkaBacklog(settings, PARTITIONS, group=f"other-{number}")) as backlog:
                backlog.measure()
            asked.put(number)
        time.sleep(0.005)  # so as not to take the machine


def test_groups_are_asked_for_while_their_coordinator_starts_and_after_it_was_killed(
    tmp_path: Path,
) -> None:
    broker = PrivateBroker(tmp_path / "state")
    settings = broker.start().settings
    provision_topics(settings)
    spawn = multiprocessing.get_context("spawn")
    asked = spawn.Queue()
    process = spawn.Process(target=ask, args=(settings, asked), daemon=True)
    process.start()
    try:
        for _ in range(2):
            wanted = asked.qsize() + ANSWERS
            wait_until("groups answer", partial(_answered, asked, wanted))
            assert process.is_alive(), process.exitcode
            broker.kill()
            broker.start()
    finally:
        process.kill()
        process.join()
        broker.stop()


def _answered(asked: multiprocessing.Queue[int], wanted: int) -> bool:
    return asked.qsize() >= wanted
