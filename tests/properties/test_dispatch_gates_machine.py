"""Gates of dispatches against their rules, whatever comes, ends, fails, is cancelled or waits."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.dispatch_gates_model import DispatchGatesModel
from tests.support.gate_log import GateLog

_COUNTS = st.integers(1, 3)
_PERIODS = st.sampled_from([1_000, 4_000])
_WINDOWS = st.fixed_dictionaries({"period_ms": _PERIODS, "max": _COUNTS})
_RELEASES = st.fixed_dictionaries({}, optional={"release_on_retry": st.just(True)})
_BATCH = st.fixed_dictionaries({"size": st.integers(1, 3), "timeout_ms": _PERIODS})
_ORDER = {"key": "k", "order": ["gold", "silver"]}
_GATES: dict[str, st.SearchStrategy[Any]] = {
    "debounce": st.fixed_dictionaries(
        {"period_ms": _PERIODS}, optional={"max_wait_ms": st.just(5_000)}
    ),
    "rate_limit": _WINDOWS,
    "throttle": _WINDOWS,
    "singleton": _RELEASES,
    "concurrency": st.builds(lambda most, more: {"max": most, **more}, _COUNTS, _RELEASES),
}
_FLOWS = st.one_of(
    st.fixed_dictionaries({}, optional=_GATES),
    *(st.fixed_dictionaries({gate: each}) for gate, each in {"batch": _BATCH, **_GATES}.items()),
)
_KEYS = st.fixed_dictionaries(
    {gate: st.sampled_from("xxxxy") for gate in ("batch", "debounce", "rate_limit", "throttle")}
    | {gate: st.sampled_from("xxxxy") for gate in ("singleton", "concurrency")}
    | {"priority": st.sampled_from(["gold", "silver", "?"])}
)


def _name(number: int) -> str:
    """Names are in another order than arrivals, as derived ids are."""
    return f"d{number * 7_919 % 10_007:05d}"


class DispatchGates(RuleBasedStateMachine):
    """One trigger with any gates; times are in ms after the start."""

    @initialize(flow=_FLOWS, ordered=st.booleans(), waiting_max=st.sampled_from([3, 100]))
    def begin(self, flow: dict[str, Any], ordered: bool, waiting_max: int) -> None:
        flow = {**flow, "max_waiting": waiting_max, "circuit": "off"}  # circuits have their own
        if ordered and "concurrency" in flow:
            flow["priority"] = _ORDER
        self.log = GateLog(flow, backoff="svix", max_attempts=2)
        self.model = DispatchGatesModel(flow, attempts_max=2)

    def _now_s(self) -> float:
        return self.model.now_ms / 1_000

    @rule(keys=_KEYS, count=st.integers(1, 6))
    def arrive(self, keys: dict[str, str], count: int) -> None:
        for _ in range(count):
            name = _name(self.model.arrivals)
            self.model.arrive(name, keys)
            self.log.arrive(name, self._now_s(), keys=keys)

    @rule(keys=_KEYS, after_ms=st.sampled_from([500, 900, 3_900]), count=st.integers(2, 8))
    def arrive_steadily(self, keys: dict[str, str], after_ms: int, count: int) -> None:
        for _ in range(count):
            self.arrive(keys, 1)
            self.wait(after_ms)

    @precondition(lambda self: self._at("running"))
    @rule(choice=st.integers(0, 99), success=st.booleans())
    def end(self, choice: int, success: bool) -> None:
        running = self._at("running")
        each = self.model.live[running[choice % len(running)]]
        fence = each.attempt
        self.model.end(each.name, success=success)
        self.log.end(each.name, self._now_s(), "success" if success else "failed", fence=fence)

    @precondition(lambda self: self._waiting())
    @rule(choice=st.integers(0, 99))
    def cancel(self, choice: int) -> None:
        waiting = self._waiting()
        name = waiting[choice % len(waiting)]
        self.model.cancel(name)
        self.log.cancel(name, self._now_s())

    @rule(after_ms=st.sampled_from([1, 999, 1_000, 4_000, 5_000]))
    def wait(self, after_ms: int) -> None:
        self.model.pass_time(self.model.now_ms + after_ms)
        self.log.pass_time(self._now_s())

    def _at(self, place: str) -> list[str]:
        return sorted(each.name for each in self.model.live.values() if each.at == place)

    def _waiting(self) -> list[str]:
        return sorted(each.name for each in self.model.live.values() if each.at != "running")

    @invariant()
    def agrees(self) -> None:
        model, log = self.model, self.log
        started = {name: [round(at * 1_000) for at in times] for name, times in log.started.items()}
        assert started == model.started
        assert log.skips == model.skips
        assert log.dead == model.dead
        assert {key[2:] for key in log.rows if key.startswith("d:")} == set(model.live)
        for leader, members in model.merged.items():
            texts = log.events[leader]["batch"]
            assert [json.loads(text)["id"] for text in texts] == members

    def teardown(self) -> None:
        """However the records are cut into batches, and wherever memory is rebuilt."""
        if hasattr(self, "log"):
            self.log.assert_replays([3, 1, 4], reload_at=frozenset({1, 3, 4}))


DispatchGates.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestDispatchGates = DispatchGates.TestCase
