"""The gates of a trigger as their rules say it: each question is answered by looking at all of it.

Whatever ever started stays in a list; nothing is packed, expired, indexed or kept in a heap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GATES = ("batch", "debounce", "rate_limit", "throttle", "singleton", "concurrency")
RETRY_MS = 5_000
"""The svix schedule's first delay."""

_Starts = dict[str, list[int]]


@dataclass
class Passing:
    """A live dispatch; `at` is the gate it waits at, `running`, or `retrying`."""

    name: str
    keys: Mapping[str, str]
    rank: int
    arrival: int
    at: str = ""
    due_ms: int | None = None
    since_ms: int = 0
    attempt: int = 1
    holds: list[str] = field(default_factory=list)

    def key(self, gate: str) -> str:
        return self.keys.get(gate, "_global")


@dataclass
class DispatchGatesModel:
    """One trigger's dispatches in one partition; times in ms."""

    flow: Mapping[str, Any]
    attempts_max: int
    now_ms: int = 0
    live: dict[str, Passing] = field(default_factory=dict)
    started: dict[str, list[int]] = field(default_factory=dict)
    skips: dict[str, str] = field(default_factory=dict)
    dead: dict[str, str] = field(default_factory=dict)
    merged: dict[str, list[str]] = field(default_factory=dict)
    delays: dict[str, int] = field(default_factory=dict)
    """What a throttle says to those who have to wait."""
    arrivals: int = 0
    hits: _Starts = field(default_factory=lambda: defaultdict(list))
    happened: _Starts = field(default_factory=lambda: defaultdict(list))

    # ------------------------------------------------------------------ what happens
    def pass_time(self, until_ms: int) -> None:
        while True:
            self._call_throttled()
            due = [(each.due_ms, each.name) for each in self.live.values() if each.due_ms]
            if not due or min(due)[0] > until_ms:
                break
            due_ms, name = min(due)
            self.now_ms = max(self.now_ms, due_ms)
            self._due(self.live[name])
        self.now_ms = until_ms

    def arrive(self, name: str, keys: Mapping[str, str]) -> None:
        order = self.flow.get("priority", {}).get("order", [])
        value = keys.get("priority", "")
        rank = order.index(value) if value in order else len(order)
        self.live[name] = Passing(name, keys, rank, self.arrivals)
        self.arrivals += 1
        self._go_on(self.live[name], "")

    def end(self, name: str, *, success: bool) -> None:
        each = self.live[name]
        if success or each.attempt == self.attempts_max:
            if not success:
                self.dead[name] = "retry_exhausted"
            self._gone(each)
            return
        each.attempt += 1
        each.at, each.due_ms = "retrying", self.now_ms + RETRY_MS
        each.holds = [gate for gate in each.holds if not self.flow[gate].get("release_on_retry")]
        self._deal()

    def cancel(self, name: str) -> None:
        each = self.live[name]
        heirs = self._waiting("batch", each.key("batch")) if each.at == "batch" else []
        if each.due_ms and len(heirs) > 1:
            heirs[1].due_ms = each.due_ms
        self._gone(each)

    def in_line(self) -> list[str]:
        """Who waits, for a gate or a retry, by arrival."""
        return [each.name for each in self.live.values() if each.at != "running"]

    # ------------------------------------------------------------------ through the gates
    def _go_on(self, each: Passing, passed: str) -> None:
        behind = GATES[GATES.index(passed) + 1 :] if passed else GATES
        each.at, each.due_ms = "", None
        for gate in behind:
            if gate in self.flow and not getattr(self, f"_meet_{gate}")(each, self.flow[gate]):
                return
        self._start(each)

    def _start(self, each: Passing) -> None:
        each.at, each.due_ms = "running", None
        self.started.setdefault(each.name, []).append(self.now_ms)

    def _due(self, each: Passing) -> None:
        if each.at == "retrying":
            self._again(each)
        elif each.at == "batch":
            self._fire(each.key("batch"))
        elif each.at == "debounce":
            self._go_on(each, "debounce")
        else:
            assert self._has_room("throttle", each.key("throttle"), self.happened)
            self.happened[each.key("throttle")].append(self.now_ms)
            self._go_on(each, "throttle")

    def _again(self, each: Passing) -> None:
        """Start an attempt, or queue for the first slot that was given up."""
        missing = [gate for gate in GATES[4:] if gate in self.flow and gate not in each.holds]
        if not missing:
            self._start(each)
            return
        each.at, each.due_ms = missing[0], None
        self._deal()

    def _wait(self, each: Passing, gate: str, due_ms: int | None) -> bool:
        if len(self._waiting(gate, each.key(gate))) >= self.flow["max_waiting"]:
            self.dead[each.name] = "gate_full"
            self._gone(each)
            return False
        each.at, each.due_ms = gate, due_ms
        return False

    def _waiting(self, gate: str, key: str) -> list[Passing]:
        found = [each for each in self.live.values() if each.at == gate and each.key(gate) == key]
        if gate == "throttle":  # first come, first served
            return sorted(found, key=lambda each: (each.since_ms, each.arrival))
        return sorted(found, key=lambda each: (each.rank, each.arrival))

    def _has_room(self, gate: str, key: str, hits: _Starts) -> bool:
        since_ms = self.now_ms - self.flow[gate]["period_ms"]
        return sum(1 for at_ms in hits[key] if at_ms > since_ms) < self.flow[gate]["max"]

    def _call_throttled(self) -> None:
        """Give the first one at each throttle, and nobody else, the time when it may start."""
        for each in list(self.live.values()):
            if each.at == "throttle":
                key, gate = each.key("throttle"), self.flow["throttle"]
                is_first = self._waiting("throttle", key)[0] is each
                free_ms = self.happened[key][-gate["max"]] + gate["period_ms"]
                each.due_ms = free_ms if is_first else None

    def _skip(self, each: Passing, code: str) -> bool:
        self.skips[each.name] = code
        self._gone(each)
        return False

    # ------------------------------------------------------------------ each gate
    def _meet_batch(self, each: Passing, gate: Mapping[str, Any]) -> bool:
        first = not self._waiting("batch", each.key("batch"))
        self._wait(each, "batch", self.now_ms + gate["timeout_ms"] if first else None)
        if len(self._waiting("batch", each.key("batch"))) == gate["size"]:
            self._fire(each.key("batch"))
        return False

    def _fire(self, key: str) -> None:
        leader, *others = self._waiting("batch", key)
        self.merged[leader.name] = [each.name for each in (leader, *others)]
        for each in others:
            self._skip(each, "batch_merged")
        self._start(leader)

    def _meet_debounce(self, each: Passing, gate: Mapping[str, Any]) -> bool:
        earlier = self._waiting("debounce", each.key("debounce"))
        each.since_ms = min([self.now_ms, *(other.since_ms for other in earlier)])
        for other in earlier:
            self._skip(other, "debounced")
        due_ms = self.now_ms + gate["period_ms"]
        if "max_wait_ms" in gate:
            due_ms = min(due_ms, each.since_ms + gate["max_wait_ms"])
        return self._wait(each, "debounce", due_ms)

    def _meet_rate_limit(self, each: Passing, _gate: Mapping[str, Any]) -> bool:
        key = each.key("rate_limit")
        if not self._has_room("rate_limit", key, self.hits):
            return self._skip(each, "rate_limited")
        self.hits[key].append(self.now_ms)
        return True

    def _meet_throttle(self, each: Passing, _gate: Mapping[str, Any]) -> bool:
        key = each.key("throttle")
        if not self._waiting("throttle", key) and self._has_room("throttle", key, self.happened):
            self.happened[key].append(self.now_ms)
            return True
        ahead = self._waiting("throttle", key)
        each.since_ms = self.now_ms
        self._wait(each, "throttle", None)
        if each.name in self.live:
            self.delays[each.name] = self._planned(self.happened[key], ahead) - self.now_ms
        return False

    def _planned(self, happened: list[int], ahead: list[Passing]) -> int:
        """When a throttle lets one start behind others, if all of them do as soon as they may."""
        most, period_ms = self.flow["throttle"]["max"], self.flow["throttle"]["period_ms"]
        starts = list(happened)
        for _ in (*ahead, None):
            free_ms = starts[-most] + period_ms if len(starts) >= most else 0
            starts.append(max(self.now_ms, free_ms))
        return starts[-1]

    def held(self) -> dict[tuple[str, str], int]:
        """How many hold a slot, by gate and key."""
        found: dict[tuple[str, str], int] = {}
        for each in self.live.values():
            for gate in each.holds:
                found[gate, each.key(gate)] = self._held(gate, each.key(gate))
        return found

    def _meet_singleton(self, each: Passing, _gate: Mapping[str, Any]) -> bool:
        key = each.key("singleton")
        if self._held("singleton", key) or self._waiting("singleton", key):
            return self._skip(each, "singleton_active")
        each.holds.append("singleton")
        return True

    def _meet_concurrency(self, each: Passing, gate: Mapping[str, Any]) -> bool:
        key = each.key("concurrency")
        if self._held("concurrency", key) < gate["max"] and not self._waiting("concurrency", key):
            each.holds.append("concurrency")
            return True
        return self._wait(each, "concurrency", None)

    # ------------------------------------------------------------------ slots
    def _held(self, gate: str, key: str) -> int:
        return sum(gate in each.holds and each.key(gate) == key for each in self.live.values())

    def _gone(self, each: Passing) -> None:
        del self.live[each.name]
        self._deal()

    def _deal(self) -> None:
        """Give free slots to those who wait for them, singletons first, until none is left."""
        for gate in GATES[4:]:
            for each in sorted(self.live.values(), key=lambda each: (each.rank, each.arrival)):
                limit = 1 if gate == "singleton" else self.flow.get(gate, {}).get("max", 0)
                if each.at == gate and self._held(gate, each.key(gate)) < limit:
                    each.holds.append(gate)
                    self._again(each)
                    return self._deal()
        return None
