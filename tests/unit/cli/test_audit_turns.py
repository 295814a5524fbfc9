"""Turns as an audit shows them."""

from __future__ import annotations

from rich.console import Console

from streams.audit.turn_invariants import TurnVerdict, TurnViolation
from streams.cli.audit_turns import print_turns
from streams.core.record import Position


def shown(*verdicts: TurnVerdict) -> list[str]:
    console = Console(width=120, no_color=True)
    with console.capture() as captured:
        print_turns(console, verdicts)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_partitions_without_turns_are_not_shown() -> None:
    assert shown(TurnVerdict(0), TurnVerdict(1)) == []


def test_what_holds_and_what_does_not_is_shown_by_partition() -> None:
    wrong = TurnVerdict(1, turns=2, violations_count=22, committed=2, notes=["so far"])
    at = Position("agent_turns", 1, 0)
    wrong.violations = [TurnViolation(at, f"[{number}]") for number in range(22)]
    lines = shown(TurnVerdict(0, turns=1_200, words=2_400), wrong)
    assert lines[:3] == [
        "agent turns  verdict        turns  words  dead letters  committed",
        "0            holds          1,200  2,400  0             -",
        "1            22 violations  2      0      0             2",
    ]
    assert lines[3:5] == ["note: agent turns 1: so far", "agent_turns/1/0: [0]"]
    assert lines[-2:] == ["agent_turns/1/0: [19]", "2 more"]
