"""`harn trigger replay`: send events once more, by id, by time, or by condition.

Source: SEMANTICS 2.4; decision 10.2.9 of DESIGN 7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated, Any, Final, NamedTuple, cast

import typer

from streams.audit.kafka_log import KafkaLog
from streams.audit.log import LogReader, LogRecord
from streams.cli.cluster import cluster_of
from streams.cli.known_trigger import in_force, require_in_force
from streams.cli.moment import EXPECTED, read_moment
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
    print_report,
    rate_of,
)
from streams.cli.options import StateDir, settings_from
from streams.codec import Codec, DecodeError
from streams.core.cron import target_of
from streams.core.inbox import mailbox_key
from streams.core.record import Position
from streams.core.wire import EventIngested, TriggerOperationAudit
from streams.edge.codecs import codec_of
from streams.edge.ingest.envelopes import ENVELOPES
from streams.edge.operator import AUDIT, Request, new_audit_id
from streams.edge.registry_view import read_registry
from streams.edge.replays import (
    replay_envelope,
    replay_event_id,
    replay_request,
    size_problem,
)
from streams.errors import ConfigError
from streams.expression_names import EVENT, Seen
from streams.expressions import event_document

__all__ = ["EVENTS_MAX", "SEEN", "Aim", "Range", "replay", "replay_items", "require_replay"]

SEEN: Final[Seen] = {
    **EVENT,
    "envelope": frozenset(EventIngested.__annotations__) - {"event"} | {"timestamp_ms", "position"},
}
"""What `--where` sees."""

OPERATION = "replay"

EVENTS_MAX = 100_000
"""Events of one command: it holds them until the audit record that counts them is written."""


Resume = Annotated[
    str | None,
    typer.Option(
        "--resume",
        help="Go on with the replay of this audit record: what it has sent is not taken twice.",
    ),
]


class Range(NamedTuple):
    """Envelopes appended from `from_ms` on and before `to_ms`; None is open."""

    from_ms: int | None = None
    to_ms: int | None = None


class Aim(NamedTuple):
    """Where replays go: the triggers in force, and the one that all go to, if they do."""

    live: Collection[str]
    trigger_id: str | None = None

    def of(self, envelope: EventIngested) -> str | None:
        """Return the one trigger that a replay of this is for, or None when it is for whoever."""
        return self.trigger_id or envelope["trigger_id"] or target_of(envelope["event"])


def replay(  # noqa: PLR0913, PLR0917 - typer takes options by position
    event_id: Annotated[str | None, typer.Argument(help="The event to send once more.")] = None,
    from_: Annotated[
        str | None, typer.Option("--from", help=f"Events accepted from then on: {EXPECTED}.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", help=f"Events accepted before: {EXPECTED}.")
    ] = None,
    where: WhereText = None,
    trigger: Annotated[
        str | None, typer.Option("--trigger", help="Only this trigger receives them.")
    ] = None,
    dry_run: DryRun = False,
    rate_limit: RateLimit = None,
    progress: Progress = False,
    resume: Resume = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Send events once more: one, those of a time, or those that a condition chooses.

    Each replay is a new event that names the one it replays; it passes filters, predicates and
    gates, and is not taken for a repeat.  The condition sees `event` and `envelope` (trigger_id,
    webhook_path, timestamp_ms, position).  In bulk, replays and repeated deliveries are left out.
    Exit codes: 0 asked for; 1 nothing matched; 2 usage, or no such trigger.
    """
    span = Range(read_moment("--from", from_), read_moment("--to", to))
    bulk = where is not None or span != Range()
    if span.from_ms is not None and span.to_ms is not None and span.from_ms >= span.to_ms:
        raise ConfigError(f"--from is {from_} and --to is {to}, expected a time before --to")
    if (event_id is not None) == bulk:
        raise ConfigError("name an event, or give --from, --to or --where")
    chooser, rate = Chooser(condition(where, SEEN)), rate_of(rate_limit)
    settings = cluster_of(settings_from(state_dir=state_dir))
    codec = codec_of(settings)
    rows = read_registry(settings, codec).rows
    if trigger is not None:
        require_in_force(rows, trigger, "--trigger")
    aim = Aim(in_force(rows), trigger)
    audit_id = resume or new_audit_id()
    with KafkaLog(settings) as log:
        if resume is not None:
            require_replay(log, codec, resume)
        items = replay_items(log, codec, chooser, span, aim, event_id=event_id, audit_id=audit_id)
    chooser.report()
    operation = Operation(
        *(OPERATION, "requested", settings, codec, where, dry_run, rate, progress),
        accepted_from_ms=span.from_ms,
        accepted_before_ms=span.to_ms,
        only_for=trigger,
        audit_id=audit_id,
        remedy=f"give the command again with --resume {audit_id}: nothing is taken twice",
    )
    columns = ("event_id", "replay_event_id", "event_kind", "trigger_id")
    print_report(operation.run(items), columns, as_json=as_json)
    if not items:
        raise typer.Exit(1)


def require_replay(log: LogReader, codec: Codec, audit_id: str) -> None:
    """Raise ConfigError unless this is the audit record of a replay: another id starts anew."""
    places = [(AUDIT, partition) for partition in range(log.partitions(AUDIT))]
    for place, span in log.spans(places).items() if places else ():
        for records in log.read(place, *span):
            for record in records:
                if record.key == audit_id.encode():
                    found = codec.decode_as("trigger_operation_audit", record.value)
                    audit = cast("TriggerOperationAudit | None", found)
                    if audit and audit["operation"] == OPERATION and not audit["dry_run"]:
                        return
    raise ConfigError(
        f"--resume: there is no replay with the audit record {audit_id!r}",
        remedy=f"`harn log tail {AUDIT}` shows which there are",
    )


class _Found(NamedTuple):
    """An envelope in the log; its body stays encoded until it is sent."""

    position: Position
    record: LogRecord
    envelope: EventIngested


def replay_items(
    log: LogReader,
    codec: Codec,
    chooser: Chooser,
    span: Range,
    aim: Aim,
    *,
    audit_id: str,
    event_id: str | None = None,
) -> list[Item]:
    """Return what replaying comes to, by partition and offset.

    Args:    audit_id: of the operation; its replays have the same ids when it is given again.
    Raises:  ConfigError when more than EVENTS_MAX are chosen.
    """
    items: list[Item] = []
    seen: set[str] = set()
    for found in _envelopes(log, codec, span, event_id):
        event = found.envelope["event"]
        if event_id is not None and event["id"] != event_id:
            continue
        if not chooser.takes(_document(found)):
            continue
        if len(items) == EVENTS_MAX:
            raise ConfigError(
                f"more than {EVENTS_MAX} events are chosen",
                remedy="replay them in parts: narrow --from, --to or --where",
            )
        status = _status(found.envelope, seen, bulk=event_id is None)
        items.append(_item(codec, found, aim, status, replay_event_id(audit_id, event["id"])))
    return items


def _envelopes(log: LogReader, codec: Codec, span: Range, event_id: str | None) -> Iterator[_Found]:
    needle = b"" if event_id is None else event_id.encode()
    places = [(ENVELOPES, partition) for partition in range(log.partitions(ENVELOPES))]
    for place, whole in log.spans(places).items() if places else ():
        start, end = whole
        if span.from_ms is not None:
            start = max(start, log.offset_at(place, span.from_ms))
        if span.to_ms is not None:
            end = min(end, log.offset_at(place, span.to_ms))
        for records in log.read(place, start, end) if start < end else ():
            for record in records:
                # An id stands in the value as it is: what does not hold it need not be decoded.
                if needle not in (record.value or b""):
                    continue
                envelope = _decoded(codec, record)
                if envelope is not None:
                    yield _Found(Position(*place, record.offset), record, envelope)


def _decoded(codec: Codec, record: LogRecord) -> EventIngested | None:
    """Return an envelope; None for anything else, which the inbox does not take for an event."""
    try:
        schema, value = codec.decode(record.value or b"")
    except DecodeError:
        return None
    return cast("EventIngested", value) if schema == "event_ingested" else None


def _document(found: _Found) -> dict[str, Any]:
    envelope = {name: value for name, value in found.envelope.items() if name != "event"}
    envelope |= {"timestamp_ms": found.record.timestamp, "position": str(found.position)}
    return {"event": event_document(found.envelope["event"]), "envelope": envelope}


def _status(envelope: EventIngested, seen: set[str], *, bulk: bool) -> str:
    """Say why an envelope is left out, or nothing; `seen` are the deliveries so far."""
    if bulk and envelope["replay_of_event_id"] is not None:
        return "is_a_replay"
    event = envelope["event"]
    replay = envelope["replay_of_event_id"] is not None
    key = mailbox_key(event, replay=replay, webhook_path=envelope["webhook_path"])
    known = not seen.isdisjoint({f"key {key}", f"id {event['id']}"})
    seen |= {f"key {key}", f"id {event['id']}"}
    return "repeat" if known else ""


def _item(codec: Codec, found: _Found, aim: Aim, status: str, fresh: str) -> Item:
    envelope = found.envelope
    event = envelope["event"]
    fields: dict[str, Any] = {
        "event_id": event["id"],
        "provider": event["provider"],
        "event_kind": event["kind"],
        "position": str(found.position),
    }
    if status:
        return Item(event["id"], fields, None, status)
    target, trigger_id = aim.of(envelope), aim.trigger_id
    if target is not None and target not in aim.live:
        return Item(event["id"], {**fields, "trigger_id": target}, None, "no_such_trigger")
    value, headers = found.record.value or b"", dict(found.record.headers)
    problem = size_problem(codec, _again(codec, value, fresh, trigger_id))
    if problem is not None:
        return Item(event["id"], {**fields, "problem": problem}, None, "too_large")
    traceparent = headers.get("traceparent")

    def request(audit_id: str) -> Request:
        text = None if traceparent is None else traceparent.decode(errors="replace")
        return replay_request(_again(codec, value, fresh, trigger_id), text, audit_id)

    return Item(event["id"], {**fields, "replay_event_id": fresh}, request)


def _again(codec: Codec, value: bytes, event_id: str, trigger_id: str | None) -> EventIngested:
    """Return the envelope once more under a fresh event id, targeted if that is wanted."""
    envelope = cast("EventIngested", codec.decode(value)[1])
    targeted = trigger_id is not None
    return replay_envelope(
        envelope["event"],
        event_id,
        replay_of_event_id=envelope["event"]["id"],
        trigger_id=trigger_id if targeted else envelope["trigger_id"],
        binding_version=None,
        webhook_path=None if targeted else envelope["webhook_path"],
    )
