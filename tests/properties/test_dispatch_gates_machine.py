"""Gates of dispatches against their rules, whatever comes, ends, fails, is cancelled or waits."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streams.core.gate.slots import SLOT_GATES
from tests.support.dispatch_gates_model import DispatchGatesModel
from tests.support.gate_log import GateLog

_COUNTS = st.integers(1, 3)
_PERIODS = st.sampled_from([1_000, 4_000])
_WINDOWS = st.fixed_dictionaries({"period_ms": _PERIODS, "max": _COUNTS})
_RELEASES = st.fixed_dictionaries({}, optional={"release_on_retry": st.just(True)})
_BATCH = st.fixed_dictionaries({"size": st.sampled_from([1, 3, 6]), "timeout_ms": _PERIODS})
_ORDER = {"key": "k", "order": ["gold", "silver"]}
_GATES: dict[str, st.SearchStrategy[Any]] = {
    "debounce": st.fixed_dictionaries(
        # With the shorter one, bursts of two keys may end in another order than they came.
        {"period_ms": _PERIODS},
        optional={"max_wait_ms": st.sampled_from([600, 5_000])},
    ),
    "rate_limit": _WINDOWS,
    "throttle": _WINDOWS,
    "singleton": _RELEASES,
    "concurrency": st.builds(lambda most, more: {"max": most, **more}, _COUNTS, _RELEASES),
}
_NAMES = ("batch", *_GATES)
_KEYS = st.fixed_dictionaries(
    {gate: st.sampled_from("xxxxy") for gate in _NAMES}
    | {"debounce": st.sampled_from("wxyz"), "priority": st.sampled_from(["gold", "silver", "?"])}
)
_PLACES = st.lists(st.integers(0, 5), max_size=2)


def _alone(*gates: str) -> st.SearchStrategy[dict[str, Any]]:
    """One gate, as a lone one shows what others hide."""
    every = {"batch": _BATCH, **_GATES}
    return st.one_of(*(st.fixed_dictionaries({gate: every[gate]}) for gate in gates))


def _with(gate: str, *others: str) -> st.SearchStrategy[dict[str, Any]]:
    optional = {other: _GATES[other] for other in others}
    return st.fixed_dictionaries({gate: _GATES[gate]}, optional=optional)


def _name(number: int) -> str:
    """Names are in another order than arrivals, as derived ids are."""
    return f"d{number * 7_919 % 10_007:05d}"


class DispatchGates(RuleBasedStateMachine):
    """One trigger with any gates; times are in ms after the start."""

    flows = st.one_of(st.fixed_dictionaries({}, optional=_GATES), _alone(*_NAMES))

    @initialize(data=st.data(), ordered=st.booleans(), waiting_max=st.sampled_from([3, 100]))
    def begin(self, data: st.DataObject, ordered: bool, waiting_max: int) -> None:
        flow = data.draw(self.flows)
        flow = {**flow, "max_waiting": waiting_max, "circuit": "off"}  # circuits have their own
        if ordered and "concurrency" in flow:
            flow["priority"] = _ORDER
        self.log = GateLog(flow, backoff="svix", max_attempts=2)
        self.model = DispatchGatesModel(flow, attempts_max=2)

    def _now_s(self) -> float:
        return self.model.now_ms / 1_000

    @rule(each=st.lists(_KEYS, min_size=1, max_size=6), withdrawn=_PLACES)
    def arrive(self, each: list[dict[str, str]], withdrawn: list[int]) -> None:
        """Several come at once; then some of those that wait are cancelled."""
        for keys in each:
            name = _name(self.model.arrivals)
            self.model.arrive(name, keys)
            self.log.arrive(name, self._now_s(), keys=keys)
        for place in withdrawn:
            self._cancel(place)

    @rule(
        each=st.lists(_KEYS, min_size=2, max_size=8),
        after_ms=st.sampled_from([100, 500, 900, 3_900]),
        withdrawn=_PLACES,
    )
    def arrive_steadily(
        self, each: list[dict[str, str]], after_ms: int, withdrawn: list[int]
    ) -> None:
        for keys in each:
            self.arrive([keys], [])
            self.wait(after_ms)
        for place in withdrawn:
            self._cancel(place)

    @precondition(lambda self: self._at("running"))
    @rule(choice=st.integers(0, 99), success=st.booleans())
    def end(self, choice: int, success: bool) -> None:
        running = self._at("running")
        each = self.model.live[running[choice % len(running)]]
        fence = each.attempt
        self.model.end(each.name, success=success)
        self.log.end(each.name, self._now_s(), "success" if success else "failed", fence=fence)

    @precondition(lambda self: self.model.in_line())
    @rule(place=st.integers(0, 99))
    def cancel(self, place: int) -> None:
        self._cancel(place)

    def _cancel(self, place: int) -> None:
        """Cancel one of those that wait, counted from whoever waits longest."""
        waiting = self.model.in_line()
        if waiting:
            name = waiting[place % len(waiting)]
            self.model.cancel(name)
            self.log.cancel(name, self._now_s())

    @rule(after_ms=st.sampled_from([1, 999, 1_000, 4_000, 5_000]))
    def wait(self, after_ms: int) -> None:
        self.model.pass_time(self.model.now_ms + after_ms)
        self.log.pass_time(self._now_s())

    def _at(self, place: str) -> list[str]:
        return sorted(each.name for each in self.model.live.values() if each.at == place)

    @invariant()
    def agrees(self) -> None:
        model, log = self.model, self.log
        started = {name: [round(at * 1_000) for at in times] for name, times in log.started.items()}
        assert started == model.started
        assert log.skips == model.skips
        assert log.dead == model.dead
        assert {key[2:] for key in log.rows if key.startswith("d:")} == set(model.live)
        assert self._delays() == model.delays
        assert self._held() == model.held()
        for leader, members in model.merged.items():
            texts = log.events[leader]["batch"]
            assert [json.loads(text)["id"] for text in texts] == members

    def _delays(self) -> dict[str, int]:
        waits = [each.value for each in self.log.decisions if each.kind == "throttle_wait"]
        return {each["dispatch_id"]: each["delay_ms"] for each in waits}

    def _held(self) -> dict[tuple[str, str], int]:
        """What the gates' topics say of slots: acquired, and not released since."""
        held: Counter[tuple[str, str]] = Counter()
        for each in self.log.decisions:
            gate, _, what = each.kind.rpartition("_")
            if gate in {"singleton", "concurrency"} and what in {"acquired", "released"}:
                key = each.value["gate"].rpartition(":")[2]
                held[gate, key] += 1 if what == "acquired" else -1
        return {key: count for key, count in held.items() if count}

    def teardown(self) -> None:
        """However the records are cut into batches, and wherever memory is rebuilt."""
        if hasattr(self, "log"):
            self.log.assert_replays([3, 1, 4], reload_at=frozenset(range(1, 1_000, 2)))


class Throttles(DispatchGates):
    """A throttle, and what comes before and after it."""

    flows = st.one_of(_alone("throttle"), _with("throttle", "debounce", "rate_limit", *SLOT_GATES))


class SlotGates(DispatchGates):
    """Slots: one or more at a time, kept through retries or not."""

    flows = st.one_of(_alone(*SLOT_GATES), _with("concurrency", "throttle", "singleton"))


class Gatherings(DispatchGates):
    """Batches and bursts."""

    flows = st.one_of(_alone("batch"), _with("debounce", "concurrency"))


# As many examples each as find every mistake that was tried, whatever the seed.
for machine, count in (
    (DispatchGates, 30),
    (Throttles, 30),
    (SlotGates, 30),
    (Gatherings, 60),
):
    machine.TestCase.settings = settings(max_examples=count, stateful_step_count=30, deadline=None)
TestDispatchGates = DispatchGates.TestCase
TestThrottles = Throttles.TestCase
TestSlotGates = SlotGates.TestCase
TestGatherings = Gatherings.TestCase


@settings(max_examples=200)
@given(
    debounce=st.fixed_dictionaries(
        {"period_ms": st.just(1_000)}, optional={"max_wait_ms": st.just(400)}
    ),
    most=st.integers(1, 2),
    arrivals=st.lists(
        st.tuples(st.sampled_from("wxyz"), st.sampled_from([0, 0, 200, 300, 1_000])), min_size=5
    ),
)
def test_a_throttle_that_dispatches_come_to_in_another_order_than_they_arrived(
    debounce: dict[str, Any], most: int, arrivals: list[tuple[str, int]]
) -> None:
    throttle = {"period_ms": 2_000, "max": most}
    flow = {"debounce": debounce, "throttle": throttle, "max_waiting": 100}
    log, model = GateLog(flow), DispatchGatesModel(flow, attempts_max=1)
    for number, (key, after_ms) in enumerate(arrivals):
        model.arrive(_name(number), {"debounce": key})
        log.arrive(_name(number), model.now_ms / 1_000, keys={"debounce": key})
        model.pass_time(model.now_ms + after_ms)
        log.pass_time(model.now_ms / 1_000)
    model.pass_time(1_000_000)
    log.pass_time(1_000)
    assert log.starts() == {name: at / 1_000 for name, [at] in model.started.items()}
    log.assert_replays([3, 1, 4], reload_at=frozenset(range(1, 1_000, 2)))
