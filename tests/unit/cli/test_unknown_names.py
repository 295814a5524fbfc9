"""What there is not is answered alike by every command.

A name that a command is given (a trigger, a version, a dead letter, a stage, a role, a topic) and
that nothing has is a usage error, 2.  An id that the log may only have let go of (an event, a job)
is a "no", 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streams.cli.main import main
from streams.kafka import make_producer
from streams.settings import Settings
from tests.support.mock_cluster import mock_cluster
from topology import TOPOLOGY


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A cluster in memory that has every topic, and nothing in them."""
    with mock_cluster() as address:
        producer = make_producer(Settings(bootstrap=address))
        for topic in TOPOLOGY.topics:
            producer.list_topics(topic.name, timeout=30)
        yield address


@pytest.fixture(autouse=True)
def _environment(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", cluster)
    monkeypatch.setenv("HARN_PARTITIONS", "4")  # which the cluster in memory makes of each topic


def ended(command: str) -> int | str | None:
    """Run `harn` with these words; return its exit code."""
    with pytest.raises(SystemExit) as stopped:
        main(command.split())
    return stopped.value.code


EMIT = "trigger emit --provider github --kind push"


@pytest.mark.parametrize(
    "command",
    [
        "trigger show nosuch",
        "trigger show nosuch --at 2026-03-01",
        "trigger drain nosuch",
        f"{EMIT} --trigger nosuch",
        "trigger replay trigger_evt_1 --trigger nosuch",
        "trigger cancel trigger_evt_1 --binding nosuch@v1",
        "trigger dlq show nosuch",
        "trigger dlq replay nosuch",
        "trigger dlq discard nosuch",
        "stage resume nosuch 0",
        "stage resume dispatch 4",
        "stage skip nosuch/0/1",
        "stage skip trigger.dispatches/4/1",
        "log tail nosuch",
        "log tail trigger.outbox --partition 4",
        "audit verify --stage nosuch",
        "audit verify --stage dispatch --partition 4",
        "orchestrator serve --no-supervise --role nosuch",
    ],
)
def test_a_name_that_nothing_has_is_a_usage_error(command: str) -> None:
    assert ended(command) == 2


@pytest.mark.parametrize(
    "command",
    [
        "trigger explain trigger_evt_1",
        "trigger replay trigger_evt_1",
        "trigger cancel trigger_evt_1",
        "audit explain job-1",
    ],
)
def test_an_id_that_the_log_does_not_hold_is_a_no(command: str) -> None:
    assert ended(command) == 1
