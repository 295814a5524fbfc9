"""Ask the registry for a change, and wait for its answer: append the request, follow the log.

Once a revision is published, whoever asked also waits until it is broadcast: an event that is sent
afterwards meets it.

Source: DESIGN "Registry"; law 3.
"""

from __future__ import annotations

import asyncio
import getpass
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from streams.codec import Codec, DecodeError
from streams.core import registry
from streams.core.record import Position
from streams.core.wire import ApplyAnswered, RevisionPublished
from streams.edge.publisher import Publisher
from streams.edge.topic_reader import ReadRecord, TopicReader
from streams.errors import BrokerError
from streams.settings import Settings

__all__ = ["ANSWER_S", "RegistryAnswer", "answer_of", "ask_registry", "who"]

ANSWER_S = 30.0
"""How long a request waits; a registry that takes over from a killed one answers well within it."""

_READ_S = 0.5
_ANSWERS = frozenset({"revision_published", "apply_answered"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAnswer:
    """What the registry answered.

    `published`: `revision` is new, and `added` and `drained` are its binding keys; `broadcast` says
    that every mailbox has it.  Otherwise nothing changed, and `reason` says why.  `position` is the
    request's, None for a preview.
    """

    answer: Literal["published", "unchanged", "conflict", "invalid"]
    revision: int
    reason: str
    added: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    position: Position | None = None
    broadcast: bool = False


def ask_registry(
    settings: Settings,
    codec: Codec,
    kind: str,
    value: bytes,
    *,
    key: str,
    request_id: str,
    what: str = "request",
    timeout_s: float = ANSWER_S,
) -> RegistryAnswer:
    """Append a request and return its answer.  Blocks; call it in a thread.

    Args:   what: how the request is called when nobody answers it.
    Raises: TopologyError when the registry's topic is missing; BrokerError when nothing answers in
            time, with the request left in the log.
    """
    position = asyncio.run(_append(settings, kind, key.encode(), value))
    deadline_s = time.monotonic() + timeout_s
    found: RegistryAnswer | None = None
    with TopicReader(settings, registry.REGISTRY) as reader:
        reader.start_at({0: position.offset})
        while time.monotonic() < deadline_s:
            for record in reader.read(_READ_S):
                found = _follow(found, _decoded(record, codec), request_id)
            if found is not None and (found.broadcast or found.answer != "published"):
                break
    if found is None:
        raise BrokerError(
            f"nobody answered the {what} at {position} within {timeout_s:.0f} s",
            retryable=True,
            remedy="start a registry with `harn orchestrator serve`; it will answer the request, "
            "so look at `harn trigger list` before applying again",
        )
    return replace(found, position=position)


async def _append(settings: Settings, kind: str, key: bytes, value: bytes) -> Position:
    publisher = Publisher(settings, name="applier")
    await publisher.start()
    try:
        return await publisher.append(
            registry.REGISTRY, kind=kind, key=key, value=value, partition=0
        )
    finally:
        await publisher.stop()


def _decoded(record: ReadRecord, codec: Codec) -> tuple[str, Mapping[str, Any]]:
    try:
        return codec.decode(record.value or b"")
    except DecodeError:
        return "", {}  # the registry quarantines it


def _follow(
    found: RegistryAnswer | None, decoded: tuple[str, Mapping[str, Any]], request_id: str
) -> RegistryAnswer | None:
    """Return what is known of the answer after one more record of the registry's log."""
    if found is None:
        return answer_of(decoded, request_id)
    schema, value = decoded
    if schema == "revision_broadcast" and value["revision"] >= found.revision:
        return replace(found, broadcast=True)
    return found


def answer_of(decoded: tuple[str, Mapping[str, Any]], request_id: str) -> RegistryAnswer | None:
    """Return the answer to a request, if this record of the registry's log is one."""
    schema, value = decoded
    if schema not in _ANSWERS or value["apply_id"] != request_id:
        return None
    if schema == "revision_published":
        published = cast("RevisionPublished", value)
        return RegistryAnswer(
            answer="published",
            revision=published["revision"],
            reason="",
            added=tuple(binding["binding_key"] for binding in published["added"]),
            drained=tuple(published["drained"]),
        )
    answered = cast("ApplyAnswered", value)
    return RegistryAnswer(
        answer=answered["answer"], revision=answered["revision"], reason=answered["reason"]
    )


def who() -> str:
    """Return who runs this process, `user@host`, for the audit trail."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container without such a user
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
