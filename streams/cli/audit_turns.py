"""What an audit says of agent turns: for people, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from streams.audit.turn_invariants import TurnVerdict
from streams.cli.plain import escape

__all__ = ["print_turns", "turns_as_json"]

_SHOWN_MAX = 20


def turns_as_json(verdicts: Sequence[TurnVerdict]) -> list[dict[str, Any]]:
    """Return verdicts as JSON objects."""
    return [
        {
            "partition": each.partition,
            "turns": each.turns,
            "words": each.words,
            "dead_letters": each.dead_letters,
            "committed": each.committed,
            "notes": each.notes,
            "violations": [
                {"position": str(found.position), "what": found.what} for found in each.violations
            ],
            "violations_count": each.violations_count,
        }
        for each in verdicts
    ]


def print_turns(console: Console, verdicts: Sequence[TurnVerdict]) -> None:
    """Print a line a partition that had any turns, then notes, then what is wrong."""
    judged = [each for each in verdicts if each.turns or each.words or each.violations_count]
    if not judged:
        return
    names = ("agent turns", "verdict", "turns", "words", "dead letters", "committed")
    table = Table(*names, box=None, pad_edge=False)
    for each in judged:
        count = each.violations_count
        word = f"{count:,} violations" if count else "holds"
        committed = "-" if each.committed is None else str(each.committed)
        counts = [f"{number:,}" for number in (each.turns, each.words, each.dead_letters)]
        table.add_row(str(each.partition), word, *counts, committed)
    console.print(table)
    for each in judged:
        for note in each.notes:
            console.print(escape(f"note: agent turns {each.partition}: {note}"))
        for found in each.violations[:_SHOWN_MAX]:
            console.print(escape(f"{found.position}: {found.what}"))
        if each.violations_count > _SHOWN_MAX:
            console.print(f"{each.violations_count - _SHOWN_MAX:,} more")
