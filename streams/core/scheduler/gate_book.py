"""What is known of the gates of a queue's consumers: their limits, and the jobs that have met them.

Who holds a slot and who waits is derived from the rows of jobs, never counted apart from them, so
that no slot can leak.

Invariants: a job that waits has no claim; one that has passed every gate holds a slot of each slot
gate that it passed; what a registration says was checked when it was folded.

Source: DESIGN "A job"; SEMANTICS 3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from streams.core.bounds import DURATION_MS_MAX
from streams.core.flow import GATES, NO_FLOW, Flow, flow_of_table
from streams.core.gate.slots import GateKey, Slots
from streams.core.wire import RowConsumer, RowGated, RowReturned

COUNT_MAX: Final = 1_000_000
WINDOW_MAX: Final = 10_000
"""What a limit may be at most, as a manifest's reader has it."""

_NUMBERS: Final[Mapping[str, Mapping[str, int]]] = {
    "debounce": {"period_ms": DURATION_MS_MAX},
    "rate_limit": {"period_ms": DURATION_MS_MAX, "max": WINDOW_MAX},
    "throttle": {"period_ms": DURATION_MS_MAX, "max": WINDOW_MAX},
    "singleton": {},
    "concurrency": {"max": COUNT_MAX},
}
"""Numbers that each gate of a job must have, each with its greatest value."""


_FIELDS: Final = (*_NUMBERS, "priority", "max_waiting")

_SHOWN_MAX: Final = 80
"""Characters of a value that a problem shows."""


@dataclass(slots=True)
class GateBook:
    """Gates of one queue, or of a shard of it."""

    digest: str = ""
    flows: dict[str, Flow] = field(default_factory=dict[str, Flow])
    jobs: dict[str, RowGated] = field(default_factory=dict[str, RowGated])
    slots: Slots = field(default_factory=Slots)

    def adopt(self, row: RowConsumer, /) -> None:
        """Go by what a worker has registered."""
        self.digest = row["digest"]
        self.flows = {each["trigger_id"]: _flow(each["definition"]) for each in row["gates"]}

    def flow(self, row: RowGated, /) -> Flow:
        """Return the gates in force for a job."""
        return self.flow_of(row["trigger_id"])

    def flow_of(self, trigger_id: str, /) -> Flow:
        """Return the gates in force for the jobs of a trigger."""
        return self.flows.get(trigger_id, NO_FLOW)

    def may_go_on(self, job: str, /) -> bool:
        """Whether a job's gates have nothing against its last claim."""
        row = self.jobs.get(job)
        return row is None or row["gate"] is None

    def enter(self, job: str, row: RowGated, returned: RowReturned | None, /) -> None:
        """Enter a job's row, at load; `returned` is what is remembered of it when nobody has it."""
        self.jobs[job] = row
        for each in row["passed"]:
            if each["period_ms"] is None:
                self.slots.hold(key_of(row, each["gate"]), job)
        if returned is not None and waits(row, returned):
            gate = row["gate"]
            assert gate is not None, "what waits is before a gate"
            self.slots.wait(key_of(row, gate), job, row["rank"], row["arrival"])


def waits(row: RowGated, returned: RowReturned, /) -> bool:
    """Whether a job that nobody has counts among those that wait at its gate.

    One that lost its slots with its claim is before a gate and waits only once it finds it full.
    """
    return returned["gated"] or row["gate"] in ("debounce", "throttle")


def key_of(row: RowGated, gate: str, /) -> GateKey:
    """Return the gate key that a job meets at a gate."""
    return gate, row["trigger_id"], row["keys"].get(gate, "_global")


def _flow(definition: str) -> Flow:
    """Read a definition that was found usable: what it says besides of gates is nothing to us."""
    table: dict[str, Any] = json.loads(definition)
    return flow_of_table({name: table[name] for name in _FIELDS if name in table}, None)


def gates_problem(definition: str, /) -> str | None:
    """Return what makes a registered definition unusable, or None."""
    try:
        table = json.loads(definition)
    except (ValueError, RecursionError):
        return "is no JSON"
    if not isinstance(table, dict):
        return "is no JSON object"
    found = cast("dict[str, Any]", table)
    if "batch" in found:
        return "declares batch: a job is answered by itself"
    for gate in GATES:
        if gate in found and (problem := _gate_problem(gate, found[gate])) is not None:
            return problem
    if not _is_within(found.get("max_waiting", 1), COUNT_MAX):
        return f"max_waiting is {_shown(found['max_waiting'])}, expected 1 to {COUNT_MAX}"
    priority = found.get("priority")
    if isinstance(priority, dict) and not _are_texts(cast("dict[str, Any]", priority).get("order")):
        return "priority has no order, expected a list of texts"
    return None


def _gate_problem(gate: str, table: object) -> str | None:
    if not isinstance(table, dict):
        return f"{gate} is {_shown(table)}, expected an object"
    found = cast("dict[str, Any]", table)
    for name, most in _NUMBERS[gate].items():
        if not _is_within(found.get(name), most):
            return f"{gate}.{name} is {_shown(found.get(name))}, expected 1 to {most}"
    wait_ms = found.get("max_wait_ms")
    if wait_ms is not None and not _is_within(wait_ms, DURATION_MS_MAX):
        return f"{gate}.max_wait_ms is {_shown(wait_ms)}, expected 1 to {DURATION_MS_MAX}"
    return None


def _shown(value: object) -> str:
    return json.dumps(value)[:_SHOWN_MAX]


def _is_within(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, str) for each in cast("list[object]", value)
    )
