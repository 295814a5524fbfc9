"""How far the start of a broker has come, told to whoever shows it to a person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Progress", "Step", "silent"]


@dataclass(frozen=True, slots=True)
class Step:
    """What is going on now; when `total_bytes` is not 0 it is a download that far along."""

    text: str
    done_bytes: int = 0
    total_bytes: int = 0


Progress = Callable[[Step], None]


def silent(step: Step) -> None:
    """Show nothing."""
    del step
