"""The work of `harn trigger emit`: options or a file become events, each one's fate is printed."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import typer

from streams.cli.cluster import cluster_of
from streams.cli.known_trigger import require_in_force
from streams.cli.options import notice
from streams.core.channel import PROVIDER, TENANT_DEFAULT, channel_problem, event_kind
from streams.core.emission import channel_key, channel_payload
from streams.edge.codecs import codec_of
from streams.edge.emitter import Emission, emit
from streams.edge.ingest.body import MalformedBody
from streams.edge.ingest.deliveries import read_deliveries, read_event
from streams.edge.ingest.envelopes import ENVELOPES
from streams.edge.ingest.events import EventRequest, explain_json
from streams.edge.registry_view import read_registry
from streams.edge.topic_reader import require_topic
from streams.errors import BrokerError, ConfigError
from streams.path_kind import is_file
from streams.settings import Settings

__all__ = ["TENANT_SCOPE", "ChannelOptions", "emit_events"]

TENANT_SCOPE = "tenant"


class ChannelOptions(NamedTuple):
    """The options of a channel: its name, whose it is, and which one's."""

    name: str
    scope: str
    scope_id: str | None


def emit_events(
    settings: Settings,
    *,
    single: Mapping[str, Any],
    file: Path | None,
    as_new: bool,
    trigger_id: str | None,
    count: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Send what the options describe.

    Args:    single: an event's fields, and `channel`, ChannelOptions or None.
    Raises:  ConfigError, TopologyError, BrokerError.
    """
    channel = single["channel"]
    single = {name: value for name, value in single.items() if name != "channel"}
    if channel is not None:
        single = _to_channel(single, channel, file)
    requests = _requests(settings, single, file, count, as_new=as_new)
    settings = cluster_of(settings)
    require_topic(settings, ENVELOPES)
    if trigger_id is not None:
        rows = read_registry(settings, codec_of(settings)).rows
        require_in_force(rows, trigger_id, "--trigger")
    asyncio.run(_emit(settings, requests, trigger_id, quiet=quiet, as_json=as_json))


async def _emit(
    settings: Settings,
    requests: Iterator[EventRequest],
    trigger_id: str | None,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    sent, failed = 0, 0
    async for emission in emit(settings, codec_of(settings), requests, trigger_id=trigger_id):
        if isinstance(emission.outcome, BrokerError):
            failed += 1
            notice(f"harn: {emission.event_id}: {emission.outcome}")
        else:
            sent += 1
            if not quiet:
                _print(emission, as_json=as_json)
    if quiet:
        typer.echo(json.dumps({"sent": sent, "failed": failed}) if as_json else f"{sent} sent")
    if failed:
        raise BrokerError(f"{failed} of {sent + failed} events were not appended", retryable=True)


def _print(emission: Emission, *, as_json: bool) -> None:
    position = str(emission.outcome)
    if as_json:
        typer.echo(json.dumps({"event_id": emission.event_id, "position": position}))
    else:
        typer.echo(f"{emission.event_id}  {position}")


def _requests(
    settings: Settings, single: Mapping[str, Any], file: Path | None, count: int, *, as_new: bool
) -> Iterator[EventRequest]:
    """Return the events to send; the options are checked before anything is sent."""
    if file is None:
        request = _bounded(settings, _single(single))
        return (request for _ in range(count))
    given = [name for name in ("kind", "payload", "dedupe_key", "headers") if single[name]]
    if given:
        named = ", ".join(f"--{name.removesuffix('s').replace('_', '-')}" for name in given)
        raise ConfigError(f"{named} cannot be given with --file, whose lines have their own")
    if not is_file(file):
        raise ConfigError(f"--file is {file}, expected an existing file")

    def lines() -> Iterator[EventRequest]:
        for request in _from_file(file, single["provider"], single["tenant_id"], as_new=as_new):
            yield _bounded(settings, request)

    # Read twice: a line that cannot be sent is found before any is.
    for _ in lines():
        pass
    return (request for _ in range(count) for request in lines())


def _from_file(
    file: Path, provider: str | None, tenant_id: str | None, *, as_new: bool
) -> Iterator[EventRequest]:
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        try:
            for request in read_deliveries(lines, provider=provider, as_new=as_new):
                if tenant_id is None:
                    yield request
                else:
                    yield msgspec.structs.replace(request, tenant_id=tenant_id)
        except MalformedBody as error:
            raise ConfigError([f"{file}: {problem}" for problem in error.problems]) from error
        except (OSError, EOFError) as error:  # a damaged archive, or a disk
            raise ConfigError(f"{file}: cannot be read: {error}") from error


def _to_channel(
    single: Mapping[str, Any], channel: ChannelOptions, file: Path | None
) -> Mapping[str, Any]:
    """Return the options of the event that an emission to a channel is."""
    given = [name for name in ("provider", "kind") if single[name]] + ["file"] * (file is not None)
    if given:
        raise ConfigError(f"--{given[0]} cannot be given with --channel, which decides it")
    scope_id = channel.scope_id
    if channel.scope == TENANT_SCOPE and scope_id is None:
        scope_id = single["tenant_id"] or TENANT_DEFAULT
    if scope_id is None:
        raise ConfigError(f"--scope {channel.scope} needs --scope-id: which one's channel it is")
    name, scope, key = channel.name, channel.scope, single["dedupe_key"]
    problem = channel_problem(name, scope, scope_id)
    if problem is not None:
        raise ConfigError(f"--channel: {problem}")
    kind = event_kind(scope, scope_id, name)
    payload = _payload(single["payload"] or "null").decode()
    return {
        **single,
        "provider": PROVIDER,
        "kind": kind,
        "payload": channel_payload(name, scope, scope_id, payload),
        "dedupe_key": None if key is None else channel_key(kind, scope_id, key),
        "tenant_id": scope_id if scope == TENANT_SCOPE else single["tenant_id"],
    }


def _single(single: Mapping[str, Any]) -> EventRequest:
    fields = {name: value for name, value in single.items() if value is not None}
    if "payload" in fields:
        fields["payload"] = msgspec.Raw(_payload(fields["payload"]))
    if "headers" in fields:
        fields["headers"] = _headers(fields["headers"])
    try:
        return read_event(fields)
    except MalformedBody as error:
        raise ConfigError(error.problems) from error


def _payload(text: str) -> bytes:
    """Return the payload's JSON: the text itself, a file's, or what comes on standard input."""
    try:
        if text == "-":
            payload = sys.stdin.buffer.read()
        else:
            payload = Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()
        msgspec.json.decode(payload)
    except OSError as error:
        raise ConfigError(f"--payload {text}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"--payload: {explain_json(payload, error)}") from error
    return payload


def _headers(given: list[str]) -> dict[str, str]:
    pairs = [entry.partition("=") for entry in given]
    wrong = [name for name, separator, _ in pairs if not separator]
    if wrong:
        raise ConfigError([f"--header is {each!r}, expected name=value" for each in wrong])
    return {name: value for name, _, value in pairs}


def _bounded(settings: Settings, request: EventRequest) -> EventRequest:
    """Hold a command to the limit of the event API: what a fold derives must stay a record."""
    size = len(bytes(request.payload))
    if size > settings.http_max_body_bytes:
        limit = f"expected at most {settings.http_max_body_bytes} (HARN_HTTP_MAX_BODY_BYTES)"
        raise ConfigError(f"the payload of the {request.kind} event has {size} bytes, {limit}")
    return request
