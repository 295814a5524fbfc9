"""`harn trigger cancel`: end dispatches that are on their way.

Source: SEMANTICS 2.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Final

import typer

from streams.audit.explain import explain
from streams.audit.kafka_log import KafkaLog
from streams.audit.live_dispatches import LiveDispatch, live_dispatches
from streams.audit.log import LogReader
from streams.cli.cluster import cluster_of
from streams.cli.known_trigger import require_version
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
from streams.cli.options import StateDir, settings_from
from streams.codec import Codec
from streams.core.clock import rfc3339
from streams.core.wire import RowDispatch
from streams.edge.applier import who
from streams.edge.canceller import KIND, REQUESTS
from streams.edge.codecs import codec_of
from streams.edge.operator import Request
from streams.edge.registry_view import read_registry
from streams.errors import ConfigError
from streams.expression_names import EVENT, Seen
from streams.expressions import event_document
from topology import TOPOLOGY

__all__ = ["NOT_COME", "SEEN", "cancel", "items_chosen", "items_of_event"]

SEEN: Final[Seen] = {**EVENT, "dispatch": frozenset(RowDispatch.__annotations__)}
"""What `--where` sees."""

NOT_COME = "not_come"
"""Status of a dispatch that is cancelled before there is one."""


def cancel(
    event_id: Annotated[
        str | None, typer.Argument(help="The event whose dispatches shall end.")
    ] = None,
    where: WhereText = None,
    binding: Annotated[
        str | None,
        typer.Option(
            "--binding",
            help="With an event id: only this binding's dispatch (id@vN), even before it comes.",
        ),
    ] = None,
    dry_run: DryRun = False,
    rate_limit: RateLimit = None,
    progress: Progress = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """End dispatches that are on their way: those of one event, or those that a condition chooses.

    The condition sees `event` and `dispatch` (binding_key, trigger_id, status, attempt,
    accepted_at_ms).  Waiting dispatches end at once, running ones when their handler has stopped.
    Exit codes: 0 asked for; 1 nothing matched; 2 usage, or no such binding.
    """
    if (event_id is None) == (where is None):
        raise ConfigError("name an event or give --where, one of the two")
    if binding is not None and (event_id is None or "@v" not in binding):
        raise ConfigError(f"--binding is {binding!r}, expected id@vN, beside an event id")
    chosen, rate = condition(where, SEEN), rate_of(rate_limit)
    settings = cluster_of(settings_from(state_dir=state_dir))
    codec = codec_of(settings)
    with KafkaLog(settings) as log:
        if event_id is None:
            chooser = Chooser(chosen)
            items = list(items_chosen(log, codec, chooser))
            chooser.report()
        else:
            items = list(items_of_event(log, codec, event_id, binding))
    if binding is not None and any(each.fields["latest_status"] == NOT_COME for each in items):
        require_version(read_registry(settings, codec).rows, binding, "--binding")
    operation = Operation(
        *("cancel", "requested", settings, codec, where, dry_run, rate, progress),
        only_for=binding,
    )
    report = operation.run(items)
    print_report(report, ("event_id", "binding_key", "latest_status"), as_json=as_json)
    if not items:
        raise typer.Exit(1)


def items_chosen(log: LogReader, codec: Codec, chooser: Chooser) -> Iterator[Item]:
    """Yield the live dispatches that a condition over event and dispatch chooses."""
    for each in live_dispatches(log, codec, TOPOLOGY.stage("dispatch")):
        if chooser.takes({"event": event_document(each.event), "dispatch": each.row}):
            yield _live(each)


def items_of_event(
    log: LogReader, codec: Codec, event_id: str, binding: str | None
) -> Iterator[Item]:
    """Yield the dispatches of one event: those that live, and those that have ended."""
    known: set[str] = set()
    for each in live_dispatches(log, codec, TOPOLOGY.stage("dispatch")):
        if each.row["event_id"] == event_id and binding in {None, each.row["binding_key"]}:
            known.add(each.row["binding_key"])
            yield _live(each)
    for story in explain(log, codec, event_id).dispatches.values():
        key = story.binding_key
        if key and key not in known and binding in {None, key} and story.outcome != "live":
            known.add(key)
            yield _item(event_id, key, story.outcome, cancellable=False)
    if binding is not None and binding not in known:
        yield _item(event_id, binding, NOT_COME, cancellable=True)


def _live(found: LiveDispatch) -> Item:
    row = found.row
    asked = row["cancelled"] is not None
    status = "cancelling" if asked else row["status"]
    return _item(row["event_id"], row["binding_key"], status, cancellable=not asked)


def _item(event_id: str, binding_key: str, status: str, *, cancellable: bool) -> Item:
    trigger_id, _, version = binding_key.rpartition("@v")
    fields: dict[str, Any] = {
        "event_id": event_id,
        "binding_id": trigger_id,
        "binding_version": int(version) if version.isdigit() else None,
        "binding_key": binding_key,
        "latest_status": status,
        "cancellable": cancellable,
    }
    request = partial(_request, event_id, binding_key) if cancellable else None
    return Item(f"{binding_key} {event_id}", fields, request, "not_cancellable")


def _request(event_id: str, binding_key: str, audit_id: str) -> Request:
    value = {
        "binding_key": binding_key,
        "event_id": event_id,
        "requested_at": rfc3339(now_ms()),
        "requested_by": who(),
        "audit_id": audit_id,
    }
    return Request(REQUESTS, KIND, f"{binding_key}:{event_id}", value)
