"""The inbox against a model that says the same in the plainest words."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streams.core.wire import BindingDefinition, TriggerEvent
from streams.testing import envelope, event, policy
from tests.support.revisions import revision, versioned
from tests.support.stage_log import Out, StageLog

WINDOW_MS = 50
ROWS_MAX = 4

EVENTS = st.builds(
    event,
    st.sampled_from([f"e{number}" for number in range(6)]),
    provider=st.sampled_from(["github", "slack"]),
    kind=st.sampled_from(["opened", "closed"]),
    dedupe_key=st.none() | st.sampled_from(["x", "y"]),
)
BINDINGS = st.builds(
    versioned,
    st.sampled_from(["a", "b", "c"]),
    st.integers(1, 3),
    provider=st.sampled_from(["github", "slack"]),
    events=st.sampled_from([[], ["opened"], ["closed", "opened"]]),
)
TARGETS = st.none() | st.tuples(st.sampled_from(["a", "b"]), st.none() | st.integers(1, 3))


class InboxMachine(RuleBasedStateMachine):
    """One inbox partition; the model keeps seen ids with their end, and bindings in force."""

    def __init__(self) -> None:
        super().__init__()
        self.log = StageLog("inbox", partitions=2)
        self.seen: dict[Any, tuple[int, str]] = {}
        self.bindings: dict[str, BindingDefinition] = {}
        self.revision = 0
        self.repeats = self.remembered = 0
        self.publish([], set())

    @rule(added=st.lists(BINDINGS, max_size=3), drained=st.sets(st.integers(0, 5), max_size=2))
    def publish(self, added: list[BindingDefinition], drained: set[int]) -> None:
        keys = sorted(self.bindings)
        gone = sorted({keys[place % len(keys)] for place in drained} if keys else set())
        self.revision += 1
        in_force = policy(event_id_window_ms=WINDOW_MS, dedupe_rows_max=ROWS_MAX)
        value = revision(self.revision, added=added, drained=gone, in_force=in_force)
        outputs = self.log.add("revision_published", value)
        assert [out.partition for out in outputs] == [0, 1]
        assert {out.value["revision"] for out in outputs} == {self.revision}
        for key in gone:
            del self.bindings[key]
        self.bindings |= {each["binding_key"]: each for each in added}

    @rule(after_ms=st.integers(0, 40))
    def wait(self, after_ms: int) -> None:
        self.log.now_ms += after_ms

    @rule()
    def repeat_revision(self) -> None:
        stale = revision(self.revision, drained=sorted(self.bindings))
        assert self.log.add("revision_published", stale) == []

    @rule(found=EVENTS, aim=TARGETS, replay=st.booleans())
    def arrive(self, found: TriggerEvent, aim: Any, replay: bool) -> None:
        trigger_id, version = aim or (None, None)
        value = envelope(
            found,
            trigger_id=trigger_id,
            binding_version=version,
            replay_of_event_id="e-original" if replay else None,
        )
        outputs = self.log.add("event_ingested", value)
        by_id = replay or found["dedupe_key"] is None
        key = found["id"] if by_id else (found["provider"], found["dedupe_key"])
        ends_ms, first = self.seen.get(key, (0, ""))
        if ends_ms > self.log.now_ms:
            [out] = outputs
            assert (out.kind, out.value["first_event_id"]) == ("EventDeduplicated", first)
            self.repeats += 1
            return
        self.remembered += 1
        self.remember(key, found["id"])
        self.check_matches(outputs, found, trigger_id, version)

    def remember(self, key: Any, event_id: str) -> None:
        """Ids whose window is over may be forgotten already; of the others the oldest go."""
        now_ms = self.log.now_ms
        self.seen.pop(key, None)
        self.seen = {each: end for each, end in self.seen.items() if end[0] > now_ms}
        kept = sorted(self.seen, key=lambda each: (self.seen[each][0], row_key(each)))
        for each in kept[: max(0, len(kept) - ROWS_MAX + 1)]:
            del self.seen[each]
        self.seen[key] = (now_ms + WINDOW_MS, event_id)

    def check_matches(
        self, outputs: list[Out], found: TriggerEvent, trigger_id: str | None, version: int | None
    ) -> None:
        live = sorted(self.bindings.values(), key=lambda b: (b["trigger_id"], b["version"]))
        if trigger_id is not None:
            expected = [each for each in live if each["trigger_id"] == trigger_id]
            if version is None:
                expected = expected[-1:]
            else:
                expected = [each for each in expected if each["version"] == version]
        else:
            expected = [
                each
                for each in live
                if each["provider"] == found["provider"]
                and (not each["events"] or found["kind"] in each["events"])
            ]
        if not expected:
            assert [out.kind for out in outputs] == ["EventUnmatched"]
            return
        assert [out.value["binding_key"] for out in outputs] == [b["binding_key"] for b in expected]
        assert {out.kind for out in outputs} == {"event_matched"}
        assert len({out.value["dispatch_id"] for out in outputs}) == len(outputs)

    @invariant()
    def the_set_is_bounded_and_remembers_what_it_must(self) -> None:
        rows = {key for key in self.log.rows if key.startswith("s:")}
        assert len(rows) <= ROWS_MAX
        must = {
            row_key(key) for key, (ends_ms, _) in self.seen.items() if ends_ms > self.log.now_ms
        }
        assert must <= rows
        counted = self.log.rows.get("dedupe", {"duplicates": 0, "active": 0, "forgotten": 0})
        assert counted["duplicates"] == self.repeats
        assert counted["active"] == len(rows)
        assert counted["active"] + counted["forgotten"] == self.remembered

    def teardown(self) -> None:
        self.log.assert_replays([3, 1, 4], reload_at=frozenset({1, 3, 4, 8}))


def row_key(key: Any) -> str:
    return f"s::{key}" if isinstance(key, str) else f"s:{key[0]}:{key[1]}"


InboxMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestInbox = InboxMachine.TestCase
