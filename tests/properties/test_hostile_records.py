"""Whatever decodable records somebody writes into a mailbox, no fold raises, and all can be loaded.

What a stage cannot use is quarantined.  A fold that raises halts its partition; rows that cannot be
loaded halt it for good; and what a memory that lived answers otherwise than one that was loaded no
auditor can judge.
"""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.testing import envelope, event
from tests.support.dispatch_log import completed, matched
from tests.support.gate_log import gated
from tests.support.hostile_records import HostileRecords
from tests.support.revisions import revision
from tests.support.scheduler_log import QUEUE, ready_job
from tests.support.stage_log import CODEC, StageLog

_RECORDS = 60
_WINDOW = {"period_ms": 1_000, "max": 2}
_FLOWS: tuple[dict[str, Any], ...] = (
    {},
    {"batch": {"size": 3, "timeout_ms": 1_000}},
    {"debounce": {"period_ms": 1_000, "max_wait_ms": 3_000}, "throttle": _WINDOW},
    {"rate_limit": _WINDOW, "singleton": {"release_on_retry": True}},
    {"concurrency": {"max": 2}, "priority": {"key": "event.kind", "order": ["a", "b"]}},
    {"when": "lib::judge"},
)


class Writer:
    """Writes what a stage expects, and what it does not, into its mailbox."""

    def __init__(self, stage: str, random: Random) -> None:
        self._random = random
        self._records = HostileRecords(random, random.choice((0.0, 0.02, 0.1)))
        self.log = StageLog(stage)
        self._kinds = [kind for kind in self.log.stage.kinds if kind != "revision_published"]
        self._next_offset = 0
        if stage != "registry":
            word = revision(1, added=[gated(random.choice(_FLOWS), backoff="svix")])
            self._records.note(word)
            self.log.add("revision_published", word)

    def write(self) -> None:
        """Append a record, and fold it."""
        random, log = self._random, self.log
        log.now_ms += random.choice((0, 0, 5, 1_000, random.randrange(100_000)))
        self._records.now_ms = log.now_ms
        kind, value = (random.random() < 0.5 and self._expected()) or self._any()
        self._records.note(value)
        headers = {"fold": "f"} if random.random() < 0.3 else {}
        for output in log.add(kind, cast("Any", value), headers=headers):
            self._records.note(output.value)

    def _any(self) -> tuple[str, Any]:
        """Return what fits its schema."""
        kind = self._random.choice(self._kinds)
        return kind, self._records.value(CODEC.schemas[self.log.stage.kinds[kind]].shape)

    def _expected(self) -> tuple[str, Any] | None:
        """Return what the stage lives on, if it is an event or a job."""
        number = self._random.randrange(1_000)
        match self.log.stage.declaration.name:
            case "inbox":
                return "event_ingested", envelope(event(f"e{number}"))
            case "dispatch" if number % 3:
                keys = dict.fromkeys(("throttle", "rate_limit", "singleton"), "x")
                return "event_matched", {**matched(f"d{number}"), "keys": keys}
            case "dispatch":
                outcome = self._random.choice(("success", "failed"))
                return "invocation_completed", completed(outcome, f"d{number - 1}")
            case "scheduler":
                first, self._next_offset = self._next_offset, self._next_offset + 3
                jobs = [ready_job(first + at, self._random.choice("ab")) for at in range(3)]
                place = {"queue": QUEUE, "shard": None, "shards": 1, "source_partition": 0}
                bounds = {"first_offset": first, "next_offset": self._next_offset}
                return "jobs_ready", {**place, **bounds, "jobs": jobs}
            case _:
                return None


@pytest.mark.parametrize("stage", ["registry", "inbox", "dispatch", "scheduler"])
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_no_record_stops_a_partition(stage: str, seed: int) -> None:
    random = Random(seed)
    writer = Writer(stage, random)
    for _ in range(_RECORDS):
        writer.write()
    reload_at = frozenset(random.randrange(_RECORDS) for _ in range(10))
    writer.log.assert_replays([random.randrange(1, 9) for _ in range(10)], reload_at)
