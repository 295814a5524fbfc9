from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streams.engine import MemoryStore
from streams.engine.rows import PartitionRows, prefix_of
from tests.support.toy import toy_stage

KEYS = st.sampled_from(["t:a", "t:b", "t", "l:a", "l:b", "p:a", "p:b", "p"])
DUE = st.none() | st.integers(0, 5)
TEXT = st.sampled_from(["x", "y"])
POSITION = b""


def row(due_ms: int | None = None, text: str = "x") -> dict[str, Any]:
    return {"due_ms": due_ms, "text": text}


class RowsMachine(RuleBasedStateMachine):
    """Rows under random changes, commits and reloads, against a plain dict."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = toy_stage()
        self.rows = PartitionRows(self.stage, MemoryStore())
        self.expected: dict[str, dict[str, Any]] = {}
        self.committed: dict[str, dict[str, Any]] = {}
        self.disarmed: set[str] = set()

    @rule(key=KEYS, due_ms=DUE, text=TEXT)
    def put(self, key: str, due_ms: int | None, text: str) -> None:
        self.rows.put(key, row(due_ms, text))
        self.expected[key] = row(due_ms, text)
        self.disarmed.discard(key)

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        self.rows.delete(key)
        self.expected.pop(key, None)

    @rule(now_ms=st.integers(0, 5), ticking=st.booleans())
    def fire(self, now_ms: int, ticking: bool) -> None:
        due = [entry for entry in self.armed("t" if ticking else "l") if entry[0] <= now_ms]
        assert self.rows.any_due(now_ms) or not due
        assert self.rows.pop_due(now_ms, ticking=ticking) == (due[0] if due else None)
        if due:  # whoever fires must change or delete the row
            self.rows.delete(due[0][1])
            self.expected.pop(due[0][1])

    @rule()
    def commit(self) -> None:
        changes = self.rows.changes()
        keys = [key for (key, _), _ in changes]
        assert len(set(keys)) == len(keys)
        for (key, after), before in changes:
            assert before != after
            assert before == self.rows.store.get(key)
        changed = {key.decode() for key in keys}
        differing = {
            key
            for key in {*self.expected, *self.committed}
            if self.expected.get(key) != self.committed.get(key)
        }
        assert changed == differing
        self.rows.store.apply([change for change, _ in changes], POSITION)
        self.rows.settle()
        self.committed = dict(self.expected)

    @rule()
    def reload(self) -> None:
        self.commit()
        self.rows = PartitionRows(self.stage, MemoryStore(dict(self.rows.store.items())))

    def armed(self, prefix: str) -> list[tuple[int, str]]:
        return sorted(
            (found["due_ms"], key)
            for key, found in self.expected.items()
            if prefix_of(key) == prefix and found["due_ms"] is not None
        )

    @invariant()
    def rows_with_due_times_are_known_by_their_prefix(self) -> None:
        for prefix, count in self.rows.counts().items():
            expected = {k: v for k, v in self.expected.items() if prefix_of(k) == prefix}
            assert count == len(expected)
            assert list(self.rows.of_prefix(prefix)) == sorted(expected.items())
        assert list(self.rows.of_prefix("p")) == []

    @invariant()
    def rows_are_counted_by_what_they_say(self) -> None:
        said = [found["text"] for key, found in self.expected.items() if prefix_of(key) == "t"]
        assert self.rows.standing() == {"t": Counter(said)}

    @invariant()
    def every_answer_is_that_of_a_dict(self) -> None:
        for prefix in ("t", "l"):
            armed = self.armed(prefix)
            kept = [key for key in self.expected if prefix_of(key) == prefix]
            assert self.rows.count(prefix) == len(kept)
            assert self.rows.oldest(prefix) == (armed[0][1] if armed else None)
        ticking = self.armed("t")
        assert self.rows.next_tick_ms() == (ticking[0][0] if ticking else None)
        assert list(self.rows.scan("p:")) == sorted(
            (key, found) for key, found in self.expected.items() if key.startswith("p:")
        )
        assert self.rows.get("p:a") == self.expected.get("p:a")


RowsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestRows = RowsMachine.TestCase


@pytest.fixture
def rows() -> PartitionRows:
    return PartitionRows(toy_stage(), MemoryStore())


def test_a_prefix_that_the_stage_does_not_declare_is_refused(rows: PartitionRows) -> None:
    with pytest.raises(KeyError, match="the stage declares no rows of prefix 'x'"):
        rows.put("x:1", row())
    with pytest.raises(KeyError, match="the stage declares no rows of prefix 'x'"):
        rows.delete("x:1")
    with pytest.raises(KeyError):
        rows.count("p")


def test_rows_can_be_changed_while_they_are_scanned(rows: PartitionRows) -> None:
    for key in ("p:a", "p:b", "p:c"):
        rows.put(key, row())
    seen: list[str] = []
    for key, _ in rows.scan("p:"):
        seen.append(key)
        rows.delete("p:b")
        rows.put("p:d", row())
    assert seen == ["p:a", "p:c"]


def test_timers_of_all_types_fire_in_one_order(rows: PartitionRows) -> None:
    for key, due_ms in (("t:b", 2), ("t:a", 2), ("l:a", 1), ("t:c", 1)):
        rows.put(key, row(due_ms))
    order = (True, True, True, True, False, False)
    fired = [rows.pop_due(9, ticking=ticking) for ticking in order]
    assert fired == [(1, "t:c"), (2, "t:a"), (2, "t:b"), None, (1, "l:a"), None]
