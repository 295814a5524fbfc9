"""Dispatch against its model, and its history against what it promises."""

from collections import defaultdict
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streams.core.event_json import SMALL_CHARS_MAX
from streams.core.wire import InvocationOutcome, RetryPolicy
from streams.testing import event, policy, retry_policy
from tests.support.dispatch_log import completed, matched, running
from tests.support.dispatch_model import DispatchModel
from tests.support.revisions import revision, versioned
from tests.support.stage_log import Out, StageLog

LEASE_MS = 100
RETRIES: dict[str, RetryPolicy] = {
    "a": retry_policy("svix", max_attempts=3),
    "b": retry_policy("immediate", max_attempts=2),
    "c": retry_policy("linear", max_attempts=4, delay_ms=30),
}
OUTCOMES: list[InvocationOutcome] = [
    "success",
    "failed",
    "failed",
    "timeout",
    "denied",
    "interrupted",
    "unresolved",
    "unknown",
]
SIZES = {f"d{number}": SMALL_CHARS_MAX * (number % 2) + 1 for number in range(5)}
"""Characters of their events' payloads: some are kept apart."""

DISPATCHES = st.sampled_from(sorted(SIZES))
FENCES = st.sampled_from([0, 0, 0, -1, 1])  # beside the current one
PARTITIONS = 2


class DispatchMachine(RuleBasedStateMachine):
    """One dispatch partition; its bindings drain and come back meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.log = StageLog("dispatch", partitions=PARTITIONS)
        self.model = DispatchModel(LEASE_MS, self.log.now_ms)
        self.outputs: list[tuple[int, Out]] = []
        self.started: set[str] = set()
        self.revision = 0
        self.draining: dict[str, tuple[int, set[int]]] = {}
        self.publish_all(set())

    def fold(self, kind: str, value: Any) -> list[Out]:
        self.model.moves_time(self.log.now_ms)
        outputs = self.log.add(kind, value)
        self.outputs += [(self.log.now_ms, output) for output in outputs]
        return outputs

    def fence(self, dispatch_id: str) -> int:
        live = self.model.live.get(dispatch_id)
        return 1 if live is None else live.fence

    # ------------------------------------------------------------------ bindings
    def publish_all(self, drained: set[str]) -> None:
        """The next revision: these bindings drain, all others are in force."""
        self.revision += 1
        known = {row["binding"]["trigger_id"] for row in self.bindings()}
        missing = [
            versioned(trigger_id, retry=policy_of)
            for trigger_id, policy_of in RETRIES.items()
            if trigger_id not in drained
            and (trigger_id not in known or trigger_id in self.draining)
        ]
        gone = [f"{each}@v1" for each in sorted(drained) if each in known - set(self.draining)]
        in_force = policy(lease_ms=LEASE_MS)
        self.fold(
            "revision_published",
            revision(self.revision, added=missing, drained=gone, in_force=in_force),
        )
        for binding in missing:
            self.draining.pop(binding["trigger_id"], None)
        for key in gone:
            self.draining[key.partition("@")[0]] = (self.revision, set())

    def bindings(self) -> list[dict[str, Any]]:
        return [row for key, row in self.log.rows.items() if key.startswith("b:")]

    @rule(drained=st.sets(st.sampled_from(sorted(RETRIES))))
    def publish(self, drained: set[str]) -> None:
        self.publish_all(drained)

    @rule(inbox_partition=st.integers(0, PARTITIONS - 1), late=st.sampled_from([0, 0, 1, 2]))
    def reach(self, inbox_partition: int, late: int) -> None:
        number = max(self.revision - late, 1)
        word = {
            "revision": number,
            "inbox_partition": inbox_partition,
            "inbox_partitions": PARTITIONS,
        }
        for drained_at, reached in self.draining.values():
            if number >= drained_at:
                reached.add(inbox_partition)
        self.fold("revision_reached", word)

    # ------------------------------------------------------------------ work
    @rule(dispatch_id=DISPATCHES, trigger_id=st.sampled_from(sorted(RETRIES)))
    def match(self, dispatch_id: str, trigger_id: str) -> None:
        known = {row["binding"]["binding_key"] for row in self.bindings()}
        key = f"{trigger_id}@v1"
        all_reached = len(self.draining.get(trigger_id, (0, set[int]()))[1]) == PARTITIONS
        if dispatch_id in self.started or key not in known or all_reached:
            return  # no inbox partition would send it
        self.started.add(dispatch_id)
        found = event(f"event-of-{dispatch_id}", payload="x" * SIZES[dispatch_id])
        self.fold("event_matched", matched(dispatch_id, binding_key=key, found=found))
        self.model.match(dispatch_id, RETRIES[trigger_id])

    @rule(dispatch_id=DISPATCHES, beside=FENCES)
    def run(self, dispatch_id: str, beside: int) -> None:
        fence = self.fence(dispatch_id) + beside
        self.fold("invocations_running", running(dispatch_id, fence=fence))
        self.model.running(dispatch_id, fence)

    @rule(
        dispatch_id=DISPATCHES,
        outcome=st.sampled_from(OUTCOMES),
        beside=FENCES,
        terminal=st.sampled_from([False, False, True]),
        retry_after_ms=st.none() | st.sampled_from([1, 10**9]),
    )
    def complete(
        self,
        dispatch_id: str,
        outcome: InvocationOutcome,
        beside: int,
        terminal: bool,
        retry_after_ms: int | None,
    ) -> None:
        word = completed(
            outcome,
            dispatch_id,
            fence=self.fence(dispatch_id) + beside,
            error_class="terminal" if terminal and outcome == "failed" else "none",
            retry_after_ms=retry_after_ms,
        )
        self.fold("invocation_completed", word)
        self.model.completed(word)

    @rule(after_ms=st.sampled_from([1, 30, LEASE_MS - 1, LEASE_MS, 1_000]))
    def wait(self, after_ms: int) -> None:
        self.log.now_ms += after_ms
        self.tick()

    @rule()
    def wait_until_due(self) -> None:
        due_ms = self.log.memory.rows.next_tick_ms()
        if due_ms is not None:
            self.log.now_ms = max(self.log.now_ms, due_ms)
            self.tick()

    def tick(self) -> None:
        self.fold("tick", {"due_ms": self.log.now_ms})

    # ------------------------------------------------------------------ what always holds
    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        rows = self.log.rows
        found = {
            key[2:]: (row["attempt"], row["fence"], row["status"], row["due_ms"], row["losses"])
            for key, row in rows.items()
            if key.startswith("d:")
        }
        expected = {
            key: (each.attempt, each.fence, each.status, each.due_ms, each.losses)
            for key, each in self.model.live.items()
        }
        assert found == expected
        large = {key for key in expected if SIZES[key] > SMALL_CHARS_MAX}
        assert {key[2:] for key in rows if key.startswith("e:")} == large

    @invariant()
    def a_binding_is_forgotten_when_all_have_moved_on_and_nothing_is_live(self) -> None:
        known = {row["binding"]["trigger_id"] for row in self.bindings()}
        live = {row["trigger_id"] for key, row in self.log.rows.items() if key.startswith("d:")}
        for trigger_id in [*self.draining]:
            done = len(self.draining[trigger_id][1]) == PARTITIONS and trigger_id not in live
            assert (trigger_id not in known) == done
            if done:
                del self.draining[trigger_id]

    def teardown(self) -> None:
        self.log.assert_replays([2, 5, 1, 3], reload_at=frozenset({1, 2, 5, 9}))
        values = [(at_ms, output.kind, output.value) for at_ms, output in self.outputs]
        refused = [value for _, kind, value in values if kind == "OutcomeRefused"]
        assert len(refused) == self.model.refusals
        endings: dict[str, list[str]] = defaultdict(list)
        attempts: dict[str, list[int]] = defaultdict(list)
        fences: dict[str, list[int]] = defaultdict(list)
        for _, kind, value in values:
            if kind in {"dispatch_succeeded", "dlq_moved"}:
                endings[value["dispatch_id"]].append(kind)
            elif kind == "dispatch_started":
                attempts[value["dispatch_id"]].append(value["attempt"])
            elif kind == "invoke":
                fences[value["dispatch_id"]].append(value["fence"])
        names = {"succeeded": ["dispatch_succeeded"], "dlq": ["dlq_moved"]}
        assert dict(endings) == {key: names[how] for key, how in self.model.ended.items()}
        for numbers in attempts.values():
            assert numbers == list(range(1, len(numbers) + 1))
        for numbers in fences.values():
            assert numbers == sorted(set(numbers))
        self.check_times(values)

    def check_times(self, values: list[tuple[int, str, Any]]) -> None:
        """No retry starts early; what a lost lease held is issued at its end and not before."""
        planned: dict[tuple[str, int], int] = {}
        for at_ms, kind, value in values:
            if kind == "retry_scheduled":
                planned[value["dispatch_id"], value["attempt"]] = at_ms + value["delay_ms"]
            elif kind == "dispatch_started" and value["attempt"] > 1:
                assert at_ms >= planned[value["dispatch_id"], value["attempt"]]


DispatchMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=50)
TestDispatch = DispatchMachine.TestCase
