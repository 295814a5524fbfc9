"""Turns are put, claimed, acked, renewed, given back, buried and forgotten by several consumers, in
any order and at any time: the queue answers as the slow model does."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streams.edge.turns.sql_queue import SqlTaskQueue, deliveries_of
from streams.edge.turns.sqlite_file import SqliteFile
from streams.edge.turns.task_queue import VISIBILITY_MS, DeliveryId

SESSIONS = ("a", "b", "c")
CONSUMERS = 3


@dataclass
class Turn:
    """A turn that was put and is not gone."""

    session: str
    number: int
    deliveries: int = 0
    held: DeliveryId | None = None
    """The delivery that may ack it."""
    hidden_until_ms: int = -1


class Model:
    """The obviously correct one: a list in the order of being put."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.buried: list[int] = []

    def next_at(self, now_ms: int) -> Turn | None:
        """Return the first turn that is the oldest of its session and hidden no more."""
        for turn in self.turns:
            oldest = next(each for each in self.turns if each.session == turn.session)
            if oldest is turn and now_ms > turn.hidden_until_ms:
                return turn
        return None

    def holder_of(self, delivery: DeliveryId) -> Turn | None:
        return next((turn for turn in self.turns if turn.held == delivery), None)


class ClaimsMachine(RuleBasedStateMachine):
    """Consumers with connections of their own, on one file and one clock."""

    @initialize()
    def begin(self) -> None:
        self.opened = ExitStack()
        folder = Path(self.opened.enter_context(tempfile.TemporaryDirectory()))
        self.now_ms = 1_000_000
        self.put_so_far = 0
        self.model = Model()
        self.deliveries: list[DeliveryId] = []
        self.queues = [self._queue(folder / "t.db", number) for number in range(CONSUMERS)]

    def _queue(self, path: Path, number: int) -> SqlTaskQueue:
        file = SqliteFile(path, clock=lambda: self.now_ms)
        self.opened.callback(file.close)
        return SqlTaskQueue(file, consumer=f"w{number}")

    @rule(session=st.sampled_from(SESSIONS), by=st.integers(0, CONSUMERS - 1))
    def put(self, session: str, by: int) -> None:
        number = self.put_so_far = self.put_so_far + 1
        self.queues[by].put({"session_id": session, "number": number})
        self.model.turns.append(Turn(session, number))

    @rule(by=st.integers(0, CONSUMERS - 1))
    def get(self, by: int) -> None:
        wanted = self.model.next_at(self.now_ms)
        found = self.queues[by].get()
        if wanted is None:
            assert found is None
            return
        assert found is not None
        delivery, item = found
        assert (item["session_id"], item["number"]) == (wanted.session, wanted.number)
        wanted.deliveries += 1
        assert deliveries_of(delivery) == wanted.deliveries
        assert delivery not in self.deliveries
        wanted.held = delivery
        wanted.hidden_until_ms = self.now_ms + VISIBILITY_MS
        self.deliveries.append(delivery)

    @precondition(lambda self: self.deliveries)
    @rule(chance=st.randoms(use_true_random=False), by=st.integers(0, CONSUMERS - 1))
    def ack(self, chance: Random, by: int) -> None:
        delivery = self._some(chance)
        turn = self.model.holder_of(delivery)
        assert self.queues[by].ack(delivery) is (turn is not None)
        if turn is not None:
            self.model.turns.remove(turn)

    @precondition(lambda self: self.deliveries)
    @rule(chance=st.randoms(use_true_random=False), by=st.integers(0, CONSUMERS - 1))
    def renew(self, chance: Random, by: int) -> None:
        delivery = self._some(chance)
        turn = self.model.holder_of(delivery)
        assert self.queues[by].renew(delivery) is (turn is not None)
        if turn is not None:
            turn.hidden_until_ms = self.now_ms + VISIBILITY_MS

    @precondition(lambda self: self.deliveries)
    @rule(
        chance=st.randoms(use_true_random=False),
        by=st.integers(0, CONSUMERS - 1),
        delay_ms=st.sampled_from([0, 0, 1, 5_000]),
    )
    def release(self, chance: Random, by: int, delay_ms: int) -> None:
        delivery = self._some(chance)
        turn = self.model.holder_of(delivery)
        assert self.queues[by].release(delivery, delay_ms=delay_ms) is (turn is not None)
        if turn is not None:
            turn.held = None
            turn.hidden_until_ms = self.now_ms + delay_ms - 1

    @precondition(lambda self: self.deliveries)
    @rule(chance=st.randoms(use_true_random=False), by=st.integers(0, CONSUMERS - 1))
    def bury(self, chance: Random, by: int) -> None:
        delivery = self._some(chance)
        turn = self.model.holder_of(delivery)
        assert self.queues[by].bury(delivery, "x") is (turn is not None)
        if turn is not None:
            self.model.turns.remove(turn)
            self.model.buried.insert(0, turn.deliveries)

    @rule(ms=st.sampled_from([1, 4_999, VISIBILITY_MS, VISIBILITY_MS + 1]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "queues"):
            return
        assert self.queues[0].get_queue_size() == len(self.model.turns)
        letters = self.queues[1].dead_letters()
        assert [letter.deliveries for letter in letters] == self.model.buried

    def _some(self, chance: Random) -> DeliveryId:
        """Return a recent delivery more often than an old one."""
        return chance.choice(self.deliveries[-4:] if chance.random() < 0.8 else self.deliveries)

    def teardown(self) -> None:
        if hasattr(self, "opened"):
            self.opened.close()


TestClaims = ClaimsMachine.TestCase
TestClaims.settings = settings(max_examples=60, stateful_step_count=40)
