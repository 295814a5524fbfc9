"""What an audit says: one verdict per stage partition, and the report that holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from streams.audit.divergence import Divergence

__all__ = ["Judged", "Report", "Unjudged", "Verdict"]


@dataclass(slots=True)
class Judged:
    """A range of mailbox offsets that was recomputed: [`first_offset`, `next_offset`).

    `began` says from which state; times are the stream time at both ends, ms since epoch.
    """

    began: str
    first_offset: int
    next_offset: int
    first_ms: int
    last_ms: int


@dataclass(slots=True)
class Unjudged:
    """A range of mailbox offsets that could not be recomputed, and why."""

    first_offset: int
    next_offset: int
    reason: str


@dataclass(slots=True)
class Verdict:
    """What was found for one stage partition.

    `records`, `outputs` and `rows` count what was recomputed and compared.  `unjudged` makes the
    audit incomplete; `notes` do not.
    """

    stage: str
    mailbox: str
    partition: int
    mailbox_end: int
    judged: list[Judged] = field(default_factory=list[Judged])
    unjudged: list[Unjudged] = field(default_factory=list[Unjudged])
    notes: list[str] = field(default_factory=list[str])
    divergence: Divergence | None = None
    transactions: int = 0
    records: int = 0
    outputs: int = 0
    rows: int = 0

    @property
    def word(self) -> str:
        """`diverges`, `unjudged` or `verified`."""
        if self.divergence is not None:
            return "diverges"
        return "unjudged" if self.unjudged else "verified"

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as a JSON object."""
        return {
            "stage": self.stage,
            "mailbox": self.mailbox,
            "partition": self.partition,
            "verdict": self.word,
            "judged": [
                {
                    "began": each.began,
                    "first_offset": each.first_offset,
                    "next_offset": each.next_offset,
                    "first_ms": each.first_ms,
                    "last_ms": each.last_ms,
                }
                for each in self.judged
            ],
            "unjudged": [
                {
                    "first_offset": each.first_offset,
                    "next_offset": each.next_offset,
                    "reason": each.reason,
                }
                for each in self.unjudged
            ],
            "mailbox_end": self.mailbox_end,
            "transactions": self.transactions,
            "records": self.records,
            "outputs": self.outputs,
            "rows": self.rows,
            "divergence": None if self.divergence is None else self.divergence.as_json(),
            "notes": self.notes,
        }


@dataclass(slots=True)
class Report:
    """Every verdict, by stage and partition, and the records that no stage can have written."""

    verdicts: list[Verdict]
    strays: list[Divergence]
    strays_count: int
    records_read: int
    seconds: float

    @property
    def records(self) -> int:
        """Mailbox records recomputed."""
        return sum(verdict.records for verdict in self.verdicts)

    @property
    def divergences(self) -> list[Divergence]:
        """The first divergence of every partition that has one, then the strays."""
        found = [verdict.divergence for verdict in self.verdicts if verdict.divergence is not None]
        return [*found, *self.strays]

    @property
    def unjudged(self) -> list[tuple[Verdict, Unjudged]]:
        """Every range that could not be judged."""
        return [(verdict, each) for verdict in self.verdicts for each in verdict.unjudged]

    def as_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "verdict": self.word,
            "partitions": [verdict.as_json() for verdict in self.verdicts],
            "strays": [stray.as_json() for stray in self.strays],
            "strays_count": self.strays_count,
            "records": self.records,
            "records_read": self.records_read,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.records / self.seconds) if self.seconds else None,
        }

    @property
    def word(self) -> str:
        """`diverges`, `unjudged` or `verified`."""
        if self.divergences:
            return "diverges"
        return "unjudged" if self.unjudged else "verified"
