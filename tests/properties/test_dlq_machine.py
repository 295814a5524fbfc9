"""Entries of dead letters against a model: what a person would write on a list, and cross off."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streams.core import dlq
from streams.testing import policy, retry_policy
from tests.support.dispatch_log import completed, matched
from tests.support.revisions import revision, versioned
from tests.support.stage_log import Out, StageLog

TTL_MS = 1_000
ENTRIES_MAX = 3
NAMES = st.sampled_from([f"d{number}" for number in range(6)])
REPLAYS = st.sampled_from(["r1", "r2"])
OUTCOMES = st.sampled_from(["started", "succeeded", "skipped", "failed", "cancelled", "unmatched"])


@dataclass
class Line:
    """One line of the list."""

    due_ms: int
    replays: int = 0
    running: list[str] = field(default_factory=list)


class DlqMachine(RuleBasedStateMachine):
    """One dispatch partition; replays run elsewhere and send their words in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.bound = mock.patch.object(dlq, "ENTRIES_MAX", ENTRIES_MAX)
        self.bound.start()
        self.log = StageLog("dispatch")
        once = versioned(retry=retry_policy("immediate", max_attempts=1))
        in_force = policy(dlq_ttl_ms=TTL_MS)
        self.log.add("revision_published", revision(1, added=[once], in_force=in_force))
        self.lines: dict[str, Line] = {}
        self.failed: set[str] = set()

    def fold(self, kind: str, value: Any) -> list[str]:
        """Fold a record; return what became of entries.  Those that are due go first."""
        outputs: list[Out] = self.log.add(kind, value)
        statuses = [out.value["status"] for out in outputs if out.kind == "dlq_entry"]
        due = sorted(
            (line.due_ms, f"q:{name}")
            for name, line in self.lines.items()
            if line.due_ms <= self.log.now_ms
        )
        assert statuses[: len(due)] == ["expired"] * len(due)
        for _, key in due:
            del self.lines[key[2:]]
        return statuses[len(due) :]

    def write(self, name: str, line: Line) -> list[str]:
        """Write a line; say who had to go for it."""
        gone: list[str] = []
        if name not in self.lines and len(self.lines) == ENTRIES_MAX:
            oldest = min((each.due_ms, f"q:{other}") for other, each in self.lines.items())
            del self.lines[oldest[1][2:]]
            gone = ["evicted"]
        self.lines[name] = line
        return gone

    @rule(name=NAMES)
    def fail(self, name: str) -> None:
        if name in self.failed:
            return
        self.failed.add(name)
        self.settle()
        assert self.fold("event_matched", matched(name)) == []
        statuses = self.fold("invocation_completed", completed("denied", name, error="no"))
        assert statuses == self.write(name, Line(self.log.now_ms + TTL_MS))

    @rule(name=NAMES, replay=REPLAYS, outcome=OUTCOMES)
    def replay(self, name: str, replay: str, outcome: str) -> None:
        self.settle()
        line = self.lines.get(name)
        value = {
            "entry_id": f"dlq_0_{name}",
            "event_id": replay,
            "replay_of_event_id": f"event-of-{name}",
            "outcome": outcome,
            "trigger_id": "triage",
            "binding_key": "triage@v1",
            "provider": "github",
            "event_kind": "issues.opened",
            "attempts": 1,
            "reason": "denied",
            "error": "again",
            "error_class": "none",
        }
        statuses = self.fold("dlq_replayed", value)
        if outcome == "failed":
            before = line or Line(0, replays=1)
            running = [each for each in before.running if each != replay]
            again = Line(self.log.now_ms + TTL_MS, before.replays, running)
            assert statuses == [*self.write(name, again), "replay_dlq"]
        elif line is None:
            assert statuses == []
        elif outcome == "started":
            line.replays += 1
            line.running.append(replay)
            assert statuses == ["replay_started"]
        elif outcome in {"succeeded", "skipped"}:
            del self.lines[name]
            assert statuses == [f"replay_{outcome}"]
        else:
            line.running = [each for each in line.running if each != replay]
            assert statuses == [f"replay_{outcome}"]

    @rule(name=NAMES)
    def discard(self, name: str) -> None:
        self.settle()
        line = self.lines.get(name)
        request = {
            "entry_id": f"dlq_0_{name}",
            "requested_at": "",
            "requested_by": None,
            "audit_id": None,
        }
        statuses = self.fold("dlq_discard_requested", request)
        if line is None:
            assert statuses == []
        elif line.running:
            assert statuses == ["discard_refused"]
        else:
            del self.lines[name]
            assert statuses == ["discarded"]

    @rule(after_ms=st.sampled_from([1, 300, TTL_MS]))
    def wait(self, after_ms: int) -> None:
        self.log.now_ms += after_ms
        self.settle()

    def settle(self) -> None:
        """Let go what is due, so that it is not taken for a word's doing."""
        assert self.fold("tick", {"due_ms": self.log.now_ms}) == []

    @invariant()
    def rows_are_the_lines(self) -> None:
        rows = {key[2:]: row for key, row in self.log.rows.items() if key.startswith("q:")}
        assert {
            name: (row["expires_at_ms"], row["replays"], row["replaying"])
            for name, row in rows.items()
        } == {name: (line.due_ms, line.replays, line.running) for name, line in self.lines.items()}

    def teardown(self) -> None:
        self.log.assert_replays([2, 5, 1, 3], reload_at=frozenset({1, 2, 5, 9}))
        self.bound.stop()


DlqMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestDlq = DlqMachine.TestCase
