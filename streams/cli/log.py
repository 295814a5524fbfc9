"""`harn log`: read any topic, decoded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec
import typer

from streams.cli.cluster import cluster_of
from streams.cli.log_query import Query, Start, parse_query, parse_start
from streams.cli.log_record import ShownRecord, show_record
from streams.cli.options import StateDir, notice, screen, settings_from
from streams.codec import Codec
from streams.core.suggestion import suggestion
from streams.edge.codecs import codec_of
from streams.edge.topic_reader import (
    LONG_WAIT_MS,
    SHORT_WAIT_MS,
    ReadRecord,
    TopicReader,
    topic_names,
)
from streams.errors import BrokerError, ConfigError, TopologyError
from streams.settings import Settings
from topology import TOPOLOGY

__all__ = ["app"]

app = typer.Typer(help="Read any topic, decoded.", no_args_is_help=True)

_READ_S = 0.5
_SILENCE_S = 30.0
_NEWEST_BY_DEFAULT = 20


@app.callback()
def _group() -> None:
    """Read any topic, decoded."""


@app.command()
def tail(  # noqa: PLR0913, PLR0917 - typer takes options by position
    topic: Annotated[str, typer.Argument(help="The topic, for example trigger.outbox.")],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="beginning, end, an offset, -N (the newest N of each partition) or a time. "
            "Default: -20; beginning with --kind, --key, --event or --where.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on when the end is reached.")
    ] = False,
    kind: Annotated[str | None, typer.Option("--kind", help="Only records of this kind.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only records with this key.")] = None,
    event: Annotated[
        str | None, typer.Option("--event", help="Only records about this event id.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where", help="JMESPath over what --json prints, and `payload`, the event's own."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Stop after this many records.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Print a topic's records, decoded, up to the end that it has now.

    Only committed records are shown.  Records of one partition come in order.  Exit codes: 0 done;
    2 an option is wrong, or no such topic; 3 the topic is missing; 5 no broker.
    """
    query = parse_query(kind=kind, key=key, event_id=event, where=where)
    begin = _default_start(query) if start is None else parse_start(start)
    settings = cluster_of(settings_from(state_dir=state_dir))
    codec = codec_of(settings)
    print_record = _printer(as_json=as_json)
    shown = 0
    with _reader(settings, topic, LONG_WAIT_MS if follow else SHORT_WAIT_MS) as reader:
        partitions = _partitions(reader, partition)
        for record in _records(reader, begin, partitions, codec, follow=follow):
            if not query.takes(record):
                continue
            print_record(record)
            shown += 1
            if shown == limit:
                return
    if not shown:
        notice(f"{topic}: no record{' that fits' if query.is_selective else ''}")


def _default_start(query: Query) -> Start:
    return Start(offset=0) if query.is_selective else Start(newest=_NEWEST_BY_DEFAULT)


def _reader(settings: Settings, topic: str, wait_ms: int) -> TopicReader:
    try:
        return TopicReader(settings, topic, wait_ms=wait_ms)
    except TopologyError:
        if any(declared.name == topic for declared in TOPOLOGY.topics):
            raise
        known = sorted({*topic_names(settings), *(each.name for each in TOPOLOGY.topics)})
        hint = suggestion(topic, [name for name in known if not name.startswith("__")])
        raise ConfigError(f"topic {topic!r} is unknown{hint}") from None


def _partitions(reader: TopicReader, chosen: int | None) -> list[int]:
    if chosen is None:
        return list(range(reader.partitions))
    if chosen >= reader.partitions:
        count = f"{reader.topic} has partitions 0 to {reader.partitions - 1}"
        raise ConfigError(f"--partition is {chosen}, but {count}")
    return [chosen]


def _records(
    reader: TopicReader, start: Start, partitions: list[int], codec: Codec, *, follow: bool
) -> Iterator[ShownRecord]:
    """Yield records from the start on; up to the end that the topic has now, unless following."""
    ends = {each: reader.watermarks(each)[1] for each in partitions}
    starts = start.offsets(reader, partitions)
    unfinished = {each for each in partitions if starts[each] < ends[each]}
    reader.start_at(starts if follow else {each: starts[each] for each in unfinished})
    silent_s = 0.0
    while follow or unfinished:
        found = reader.read(_READ_S)
        for record in _by_time(found):
            if follow or record.offset < ends[record.partition]:
                yield show_record(record, reader.topic, codec)
            if record.offset >= ends[record.partition] - 1:
                unfinished.discard(record.partition)
        # What is left before an end may be marks of transactions, which are no records.
        unfinished &= reader.unfinished
        silent_s = 0.0 if found else silent_s + _READ_S
        if unfinished and silent_s >= _SILENCE_S:
            message = f"{reader.topic}: nothing came from the broker for {_SILENCE_S:.0f} s"
            raise BrokerError(message, retryable=True)


def _by_time(records: list[ReadRecord]) -> list[ReadRecord]:
    """Mix the partitions of one fetch by time; within a partition the order is the log's."""
    if len({record.partition for record in records}) < 2:
        return records
    last_ms: dict[int, int] = {}
    keyed: list[tuple[int, int, int, ReadRecord]] = []
    for record in records:
        at_ms = max(record.timestamp, last_ms.get(record.partition, 0))
        last_ms[record.partition] = at_ms
        keyed.append((at_ms, record.partition, record.offset, record))
    return [record for *_, record in sorted(keyed)]


def _printer(*, as_json: bool) -> Callable[[ShownRecord], None]:
    if as_json:
        return _print_json
    if sys.stdout.isatty():
        console = screen()
        return lambda record: console.print(record.line(), soft_wrap=True)
    return lambda record: typer.echo(record.line().plain)


def _print_json(record: ShownRecord) -> None:
    typer.echo(msgspec.json.encode(record.document()))
