"""What every operator's command shares: its options, its audit record, and its report.

Source: SEMANTICS 2.5 (report and audit record).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import typer

from streams.cli.options import notice, screen
from streams.cli.plain import plain
from streams.codec import Codec
from streams.core.clock import rfc3339
from streams.core.expression import Failed
from streams.edge.applier import who
from streams.edge.operator import Rate, Request, new_audit_id, operate
from streams.errors import ConfigError
from streams.expression_names import Seen
from streams.expressions import Where
from streams.settings import Settings

__all__ = [
    "AsJson",
    "Chooser",
    "DryRun",
    "Item",
    "Operation",
    "Progress",
    "RateLimit",
    "WhereText",
    "condition",
    "now_ms",
    "print_report",
    "rate_of",
]

_TARGETS_MAX = 1_000

WhereText = Annotated[
    str | None,
    typer.Option("--where", help="Condition in CEL, such as event.payload.action == 'opened'."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
RateLimit = Annotated[
    str | None, typer.Option("--rate-limit", help="Requests at most, such as 10/s or 100/m.")
]
Progress = Annotated[bool, typer.Option("--progress", help="Say on standard error how far it is.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that matched: what is known of it, and the request that it needs, if any.

    `target` names it in the audit record; `status` says why there is no request.
    """

    target: str
    fields: Mapping[str, Any]
    request: Callable[[str], Request] | None
    status: str = ""


@dataclass(slots=True)
class Operation:
    """An operation on what an operator chose."""

    name: str
    requested: str
    """Status of an item that a request was sent for."""
    settings: Settings
    codec: Codec
    where: str | None
    dry_run: bool
    rate: Rate | None
    progress: bool = False
    accepted_from_ms: int | None = None
    accepted_before_ms: int | None = None
    only_for: str | None = None
    """What narrowed the choice besides a condition, as it was asked for."""
    audit_id: str = field(default_factory=new_audit_id)
    remedy: str = "give the command again"
    """How to go on after it was interrupted."""

    def run(self, items: Sequence[Item]) -> dict[str, Any]:
        """Carry it out, unless it is a dry run; return its report.  Raises BrokerError."""
        wanted = [item for item in items if item.request is not None]
        audit = {
            "audit_id": self.audit_id,
            "operation": self.name,
            "dry_run": self.dry_run,
            "filter": self.where,
            "requested_at": rfc3339(now_ms()),
            "requested_by": who(),
            "matched_count": len(items),
            "requested_count": 0 if self.dry_run else len(wanted),
            "skipped_count": len(items) - len(wanted),
            "rate_limit": None if self.rate is None else str(self.rate),
            "targets": [item.target for item in items[:_TARGETS_MAX]],
            "accepted_from": _moment(self.accepted_from_ms),
            "accepted_before": _moment(self.accepted_before_ms),
            "only_for": self.only_for,
        }
        requests = () if self.dry_run else self._requests(wanted)
        sending = operate(self.settings, self.codec, audit, requests, self.rate, remedy=self.remedy)
        try:
            asyncio.run(sending)
        except KeyboardInterrupt:
            notice(f"interrupted, to go on {self.remedy}")
            raise
        return {
            "operation": self.name,
            "dry_run": self.dry_run,
            "filter": self.where,
            "matched_count": audit["matched_count"],
            "requested_count": audit["requested_count"],
            "skipped_count": audit["skipped_count"],
            "audit_id": self.audit_id,
            "items": [{**item.fields, "status": self._status(item)} for item in items],
        }

    def _requests(self, items: Sequence[Item]) -> Iterable[Request]:
        for number, item in enumerate(items, 1):
            assert item.request is not None, "only these are sent"
            if self.progress:
                notice(f"{number}/{len(items)} {item.target}")
            yield item.request(self.audit_id)

    def _status(self, item: Item) -> str:
        if item.request is None:
            return item.status
        return "dry_run" if self.dry_run else self.requested


def _moment(time_ms: int | None) -> str | None:
    return None if time_ms is None else rfc3339(time_ms)


def now_ms() -> int:
    """Return the operator's time, for the record; nothing is decided by it."""
    return time.time_ns() // 1_000_000


def condition(text: str | None, seen: Seen) -> Where | None:
    """Compile `--where` over documents with these names.  Raises ConfigError."""
    if text is None:
        return None
    try:
        return Where(text, seen)
    except ValueError as error:
        raise ConfigError(f"--where is no CEL condition: {error}") from error


def rate_of(text: str | None) -> Rate | None:
    """Read `--rate-limit`.  Raises ConfigError."""
    if text is None:
        return None
    try:
        return Rate.parse(text)
    except ValueError as error:
        raise ConfigError(f"--rate-limit is {error}") from error


class Chooser:
    """Decides what a condition chooses, and says once what it could not be asked of."""

    def __init__(self, where: Where | None) -> None:
        self._where = where
        self._failures = 0
        self._first = ""

    def takes(self, document: Mapping[str, Any]) -> bool:
        """Whether the condition holds; without one everything is chosen."""
        if self._where is None:
            return True
        verdict = self._where.verdict(document)
        if isinstance(verdict, Failed):
            self._failures += 1
            self._first = self._first or verdict.reason
            return False
        return verdict

    def report(self) -> None:
        """Say on standard error how often the condition could not be evaluated, and why."""
        if self._failures:
            notice(f"--where could not be evaluated {self._failures} times: {self._first}")


def print_report(report: Mapping[str, Any], columns: Sequence[str], *, as_json: bool) -> None:
    """Print an operation's report."""
    if as_json:
        typer.echo(msgspec.json.encode(report).decode())
        return
    for item in report["items"]:
        shown = "  ".join(str(item[name]) for name in columns if item.get(name) is not None)
        screen().print(plain(f"{item['status']}  {shown}"), markup=False)
    did = "would be asked for" if report["dry_run"] else "asked for"
    count = report["matched_count"] - report["skipped_count"]
    notice(
        f"{report['matched_count']} matched, {count} {did}, {report['skipped_count']} skipped; "
        f"audit record {report['audit_id']}"
    )
