"""Several processes come to the same verdicts as one."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import pytest

from streams.audit.divergence import Divergence, DivergenceKind
from streams.audit.log import LogReader
from streams.audit.plan import Plan, Scope, make_plan
from streams.audit.verdict import Report
from streams.audit.verify import verify
from streams.audit.workers import Opener, verify_in_processes
from streams.core.record import Position
from streams.engine import BoundStage
from streams.errors import BrokerError
from tests.support.recorded import Recording, recorded

Opened = tuple[LogReader, Mapping[str, BoundStage]]


def tampered(seed: int) -> Recording:
    recording = recorded(seed)
    recording.records(("notes", 1)).pop(4)
    recording.records(("first-seen-changelog", 0)).pop(0)
    headers = [("kind", b"seen"), ("cause", b"x"), ("fold", b"third@1")]
    recording.log.append(("notes", 0), 1, b"k", b"v", headers)
    return recording


@contextmanager
def opened(seed: int) -> Iterator[Opened]:
    recording = tampered(seed)
    yield recording.log, recording.stages


def out_of_reach() -> AbstractContextManager[Opened]:
    raise BrokerError("nobody answers", retryable=True, remedy="start it")


def killed() -> AbstractContextManager[Opened]:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the process is no more")


def plan_of(recording: Recording) -> Plan:
    return make_plan(recording.log, recording.stages, Scope())


def run(opener: Opener) -> tuple[Report, list[str]]:
    said: list[str] = []
    return verify_in_processes(opener, plan_of(tampered(4)), 2, said.append, 0.0), said


def test_several_processes_say_what_one_says() -> None:
    recording = tampered(4)
    alone = verify(recording.log, recording.stages).as_json()
    together, said = run(partial(opened, 4))
    assert alone["verdict"] == "diverges"
    assert {**together.as_json(), "seconds": 0, "records_per_second": 0} == {
        **alone,
        "seconds": 0,
        "records_per_second": 0,
    }
    assert len(said) == len(plan_of(recording).outputs) + len(together.verdicts)


def test_an_outage_in_a_process_is_an_outage() -> None:
    with pytest.raises(BrokerError, match="nobody answers") as raised:
        run(out_of_reach)
    assert raised.value.retryable
    assert raised.value.remedy == "start it"


def test_a_killed_process_is_told() -> None:
    with pytest.raises(BrokerError, match="a process of the audit was killed"):
        run(killed)


def test_a_divergence_travels_whole() -> None:
    position = Position("notes", 1, 4)
    kind = DivergenceKind.MISSING_OUTPUT
    found = Divergence(kind, position, "one thing", "another", cause="a/0/1/0", note="a note")
    again = pickle.loads(pickle.dumps(found))
    assert str(again) == str(found)
    assert again.as_json() == found.as_json()
