"""`harn trigger dlq`: look at dead letters, deliver them once more, or let them be.

Source: SEMANTICS 2.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer
from rich.table import Table

from streams.audit.dead_letters import Body, bodies_of, entries
from streams.audit.kafka_log import KafkaLog
from streams.audit.log import LogReader
from streams.cli.cluster import cluster_of
from streams.cli.known_trigger import in_force
from streams.cli.operation import (
    AsJson,
    Chooser,
    DryRun,
    Item,
    Operation,
    Progress,
    RateLimit,
    WhereText,
    condition,
    now_ms,
    print_report,
    rate_of,
)
from streams.cli.options import StateDir, notice, screen, settings_from
from streams.cli.plain import escape, plain
from streams.codec import Codec
from streams.core.clock import rfc3339
from streams.core.dlq_words import DISPATCHES, home_of
from streams.core.suggestion import suggestion
from streams.core.wire import RowDlq
from streams.edge.applier import who
from streams.edge.codecs import codec_of
from streams.edge.operator import Request
from streams.edge.registry_view import read_registry
from streams.edge.replays import fresh_event_id, replay_envelope, replay_request, size_problem
from streams.errors import ConfigError
from streams.expression_names import EVENT, Seen
from streams.expressions import Where, event_document
from streams.settings import Settings
from topology import TOPOLOGY

__all__ = ["SEEN", "app", "chosen_letters", "discard_items", "replay_items"]

SEEN: Final[Seen] = {**EVENT, "entry": frozenset(RowDlq.__annotations__) | {"state"}}
"""What `--where` sees."""

app = typer.Typer(help="Look at dead letters, replay or discard them.", no_args_is_help=True)

EntryIds = Annotated[
    list[str] | None, typer.Argument(help="Entries by their ids, dlq_<partition>_<dispatch id>.")
]
All = Annotated[bool, typer.Option("--all", help="Every entry.")]


class Letter(NamedTuple):
    """A dead letter: its entry, and its body as far as it was looked up and is there."""

    entry: RowDlq
    body: Body | None

    @property
    def state(self) -> str:
        """`pending`, or `replaying` while a replay of it is on its way."""
        return "replaying" if self.entry["replaying"] else "pending"

    def document(self) -> dict[str, Any]:
        """Return what `--where` sees."""
        event = None if self.body is None else event_document(self.body.moved["event"])
        return {"entry": {**self.entry, "state": self.state}, "event": event}

    def fields(self) -> dict[str, Any]:
        """Return the entry as a report shows it."""
        names = ("entry_id", "event_id", "trigger_id", "binding_key", "reason", "error", "replays")
        return {**{name: self.entry[name] for name in names}, "state": self.state}


@app.command("list")
def list_(where: WhereText = None, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """List the dead letters that nobody has dealt with, by event id.

    The condition sees `entry` (entry_id, trigger_id, reason, error_class, replays, state, …) and
    `event`.
    """
    chosen = condition(where, SEEN)  # before a broker is started for nothing
    settings, codec = _cluster(state_dir)
    with KafkaLog(settings) as log:
        letters = chosen_letters(log, codec, None, chosen, bodies=where is not None)
    if as_json:
        listed = {
            "dispatcher_dlq_depth": len(letters),
            "pending_entries": sum(letter.state == "pending" for letter in letters),
            "entries": [{**letter.entry, "state": letter.state} for letter in letters],
        }
        typer.echo(msgspec.json.encode(listed).decode())
        return
    columns = ("entry", "moved", "trigger", "event", "reason", "replays", "state", "error")
    table = Table(*columns, box=None, pad_edge=False)
    for letter in letters:
        entry = letter.entry
        cells = (entry["entry_id"], rfc3339(entry["moved_at_ms"]), entry["binding_key"])
        cells = (*cells, entry["event_id"], entry["reason"], str(entry["replays"]))
        table.add_row(*(escape(cell) for cell in (*cells, letter.state, entry["error"][:80])))
    screen().print(table)
    notice(f"{len(letters)} dead letters")


@app.command()
def show(
    entry_id: Annotated[str, typer.Argument(help="The entry's id.")],
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Show one dead letter: its event, its attempts, and what has happened to it since."""
    settings, codec = _cluster(state_dir)
    with KafkaLog(settings) as log:
        [letter] = chosen_letters(log, codec, [entry_id], None, bodies=True)
    shown: dict[str, Any] = {**letter.entry, "state": letter.state}
    if letter.body is not None:
        shown["event"] = event_document(letter.body.moved["event"])
        shown["attempts"] = letter.body.moved["attempts"]
    if as_json:
        typer.echo(msgspec.json.encode(shown).decode())
        return
    for name, value in shown.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if isinstance(value, int) and name.endswith("_at_ms"):
            text = rfc3339(value)
        screen().print(plain(f"{name}: {text}"), markup=False)
    if letter.body is None:
        notice(f"the log has let the body of {entry_id} go")


@app.command()
def replay(
    entry_ids: EntryIds = None,
    where: WhereText = None,
    every: All = False,
    dry_run: DryRun = False,
    rate_limit: RateLimit = None,
    progress: Progress = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Deliver dead letters once more, each to its own trigger's newest version.

    An entry is resolved when its replay succeeds or is skipped; one that fails again keeps its id,
    and its history grows.  Exit codes: 0 asked for; 1 nothing matched; 2 usage, or no such entry.
    """
    _only_one(entry_ids, where, every)
    chosen, rate = condition(where, SEEN), rate_of(rate_limit)
    settings, codec = _cluster(state_dir)
    with KafkaLog(settings) as log:
        letters = chosen_letters(log, codec, entry_ids, chosen, bodies=True)
    items = replay_items(letters, codec, in_force(read_registry(settings, codec).rows))
    operation = Operation(
        "dlq_replay", "requested", settings, codec, where, dry_run, rate, progress
    )
    _finish(operation, items, ("entry_id", "trigger_id", "replay_event_id"), as_json=as_json)


@app.command()
def discard(
    entry_ids: EntryIds = None,
    where: WhereText = None,
    every: All = False,
    dry_run: DryRun = False,
    rate_limit: RateLimit = None,
    progress: Progress = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Take dead letters off the list: they need no delivery.  The log keeps them for its time.

    Exit codes: 0 asked for; 1 nothing matched; 2 usage, or no such entry.
    """
    _only_one(entry_ids, where, every)
    chosen, rate = condition(where, SEEN), rate_of(rate_limit)
    settings, codec = _cluster(state_dir)
    with KafkaLog(settings) as log:
        letters = chosen_letters(log, codec, entry_ids, chosen, bodies=where is not None)
    operation = Operation(
        "dlq_discard", "requested", settings, codec, where, dry_run, rate, progress
    )
    _finish(operation, discard_items(letters), ("entry_id", "trigger_id"), as_json=as_json)


def _cluster(state_dir: Path | None) -> tuple[Settings, Codec]:
    settings = cluster_of(settings_from(state_dir=state_dir))
    return settings, codec_of(settings)


def _only_one(entry_ids: Sequence[str] | None, where: str | None, every: bool) -> None:
    if [bool(entry_ids), where is not None, every].count(True) != 1:
        raise ConfigError("name entries, or give --where, or --all: one of the three")


def _finish(
    operation: Operation, items: Sequence[Item], columns: Sequence[str], *, as_json: bool
) -> None:
    print_report(operation.run(items), columns, as_json=as_json)
    if not items:
        raise typer.Exit(1)


# ---------------------------------------------------------------------- what is chosen
def chosen_letters(
    log: LogReader,
    codec: Codec,
    entry_ids: Sequence[str] | None,
    where: Where | None,
    *,
    bodies: bool,
) -> list[Letter]:
    """Return the dead letters with these ids, or that a condition chooses, or all.

    Raises: ConfigError when there is no such entry.
    """
    chooser = Chooser(where)
    found = entries(log, codec, TOPOLOGY.stage("dispatch"))
    if entry_ids:
        found = _named(found, entry_ids)
    bodies_found = bodies_of(log, codec, found) if bodies else {}
    letters = [Letter(entry, bodies_found.get(entry["entry_id"])) for entry in found]
    chosen = [letter for letter in letters if chooser.takes(letter.document())]
    chooser.report()
    return chosen


def _named(found: Iterable[RowDlq], entry_ids: Sequence[str]) -> list[RowDlq]:
    known = {entry["entry_id"]: entry for entry in found}
    problems = [
        f"entry {entry_id!r} is not pending{suggestion(entry_id, sorted(known))}"
        for entry_id in dict.fromkeys(entry_ids)
        if entry_id not in known
    ]
    if problems:
        raise ConfigError(problems, remedy="`harn trigger dlq list` shows those that are")
    return [known[entry_id] for entry_id in dict.fromkeys(entry_ids)]


def replay_items(letters: Iterable[Letter], codec: Codec, live: set[str]) -> list[Item]:
    """Return what replaying comes to; `live` are the triggers that have a version in force."""
    return [_replay_item(letter, codec, live) for letter in letters]


def _replay_item(letter: Letter, codec: Codec, live: set[str]) -> Item:
    entry, fields = letter.entry, letter.fields()
    target = entry["entry_id"]
    if letter.state == "replaying":
        return Item(target, fields, None, "replaying_already")
    if entry["trigger_id"] not in live:
        return Item(target, fields, None, "no_such_trigger")
    if letter.body is None:
        return Item(target, fields, None, "body_gone")
    envelope = replay_envelope(
        letter.body.moved["event"],
        fresh_event_id(),
        replay_of_event_id=entry["event_id"],
        trigger_id=entry["trigger_id"],
        dlq_entry_id=entry["entry_id"],
    )
    problem = size_problem(codec, envelope)
    if problem is not None:
        return Item(target, {**fields, "problem": problem}, None, "too_large")
    request = partial(replay_request, envelope, letter.body.traceparent)
    return Item(target, {**fields, "replay_event_id": envelope["event"]["id"]}, request)


def discard_items(letters: Iterable[Letter]) -> list[Item]:
    """Return what discarding comes to."""
    return [
        Item(
            letter.entry["entry_id"],
            letter.fields(),
            None if letter.state == "replaying" else _discard(letter.entry["entry_id"]),
            "replaying",
        )
        for letter in letters
    ]


def _discard(entry_id: str) -> Callable[[str], Request]:
    home = home_of(entry_id)
    assert home is not None, "an entry has an id that names its home"

    def request(audit_id: str) -> Request:
        value = {
            "entry_id": entry_id,
            "requested_at": rfc3339(now_ms()),
            "requested_by": who(),
            "audit_id": audit_id,
        }
        return Request(
            DISPATCHES, "dlq_discard_requested", "\0dlq", value, partition=home.partition
        )

    return request
