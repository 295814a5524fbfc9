"""Make a manifest the truth of its namespace: ask the registry, and wait for its answer.

    read the registry → append `manifest_applied`, expecting what was read → follow the log

An apply is a compare-and-set: whoever loses a race is told, and may look again.  Once a revision is
published, the apply also waits until it is broadcast: an event sent afterwards meets it.

Source: DESIGN "Registry"; law 3; SEMANTICS 1.8.
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
from streams.core import bounds, registry
from streams.core.manifest import Manifest
from streams.core.record import Position
from streams.core.wire import ApplyAnswered, ManifestApplied, Policy, RevisionPublished
from streams.edge.codecs import codec_of
from streams.edge.ingest.trace import new_uuid
from streams.edge.publisher import Publisher
from streams.edge.registry_view import RegistryView, read_registry
from streams.edge.topic_reader import ReadRecord, TopicReader
from streams.engine import MAX_INPUT_BYTES, fold_batch
from streams.errors import BrokerError, ManifestError
from streams.provision import provision_bindings
from streams.settings import Settings

__all__ = ["ApplyResult", "apply_manifest", "policy_of", "preview_apply", "who"]

ANSWER_S = 30.0
"""How long an apply waits; a registry that takes over from a killed one answers well within it."""

_READ_S = 0.5
_KIND = "manifest_applied"

Answer = Literal["published", "unchanged", "conflict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyResult:
    """The registry's answer.

    `published`: `revision` is new, and `added` and `drained` are its binding keys.
    `unchanged`: the manifest was in force already.  `conflict`: another apply came first; look
    again.  `position` is the request's, None for a preview.  `broadcast` says that every mailbox
    has the revision.
    """

    answer: Answer
    revision: int
    reason: str
    added: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    position: Position | None = None
    broadcast: bool = False


def policy_of(settings: Settings) -> Policy:
    """Return the part of the settings that folds read, and that therefore enters the log."""
    return {
        "event_id_window_ms": settings.event_id_window_ms,
        "dedupe_rows_max": settings.dedupe_max_rows,
        "lease_ms": settings.lease_ms,
        "cancel_ttl_ms": settings.cancel_ttl_ms,
        # A dead letter is an entry for as long as the log keeps its body.
        "action_graph": settings.action_graph == "on",
        "dlq_ttl_ms": min(settings.retention_output_ms, bounds.DURATION_MS_MAX),
    }


def preview_apply(
    view: RegistryView, manifest: Manifest, codec: Codec, *, policy: Policy | None
) -> ApplyResult:
    """Return what applying the manifest now would come to; nothing is appended.

    The registry's own fold answers, on the view's memory, which cannot be used any more after.
    Raises ManifestError when the registry would refuse the manifest.
    """
    request = _request(manifest, view.revision, policy)
    record = ReadRecord(
        partition=0,
        offset=view.next_offset,
        timestamp=view.memory.state.now_ms,
        key=request["namespace"].encode(),
        value=_encoded(request, codec, manifest),
        headers=[("kind", _KIND.encode())],
    )
    outputs = fold_batch(view.memory, [record]).outputs
    answers = [_answer(codec.decode(output.value or b""), request, manifest) for output in outputs]
    return next(answer for answer in answers if answer is not None)


def apply_manifest(
    settings: Settings,
    manifest: Manifest,
    *,
    codec: Codec | None = None,
    policy: Policy | None = None,
    view: RegistryView | None = None,
    timeout_s: float = ANSWER_S,
) -> ApplyResult:
    """Make the manifest the truth of its namespace.  Blocks; call it in a thread.

    Args:    policy: what to put in force with it (`policy_of`); None keeps the present one.
             view: what somebody has looked at, so that the apply is refused when anything changed
             since; by default the registry is read anew.
    Raises:  ManifestError when the registry refuses the manifest; TopologyError when its topic is
             missing; BrokerError when nothing answers in time, with the request left in the log.
    """
    codec = codec or codec_of(settings)
    view = view or read_registry(settings, codec)
    request = _request(manifest, view.revision, policy)
    value = _encoded(request, codec, manifest)
    provision_bindings(settings, manifest.bindings)  # folds write only to topics that exist
    position = asyncio.run(_append(settings, request["namespace"].encode(), value))
    deadline_s = time.monotonic() + timeout_s
    result: ApplyResult | None = None
    with TopicReader(settings, registry.REGISTRY) as reader:
        reader.start_at({0: position.offset})
        while time.monotonic() < deadline_s:
            for record in reader.read(_READ_S):
                result = _follow(result, _decoded(record, codec), request, manifest)
            if result is not None and (result.broadcast or result.answer != "published"):
                break
    if result is None:
        raise BrokerError(
            f"nobody answered the apply at {position} within {timeout_s:.0f} s",
            retryable=True,
            remedy="start a registry with `harn orchestrator serve`; it will answer the request, "
            "so look at `harn trigger list` before applying again",
        )
    return replace(result, position=position)


async def _append(settings: Settings, key: bytes, value: bytes) -> Position:
    publisher = Publisher(settings, name="applier")
    await publisher.start()
    try:
        return await publisher.append(
            registry.REGISTRY, kind=_KIND, key=key, value=value, partition=0
        )
    finally:
        await publisher.stop()


def _request(manifest: Manifest, expected_revision: int, policy: Policy | None) -> ManifestApplied:
    return {
        "apply_id": f"apply_{new_uuid()}",
        "namespace": manifest.namespace,
        "expected_revision": expected_revision,
        "bindings": list(manifest.bindings),
        "policy": policy,
        "applied_by": who(),
    }


def _encoded(request: ManifestApplied, codec: Codec, manifest: Manifest) -> bytes:
    value = codec.encode(_KIND, request)
    if len(value) > MAX_INPUT_BYTES:
        problem = (
            f"{manifest.file}: {len(request['bindings'])} triggers are {len(value)} bytes, "
            f"expected at most {MAX_INPUT_BYTES}"
        )
        remedy = "split it into manifests of different namespaces ([orchestrator] name)"
        raise ManifestError(problem, remedy=remedy)
    return value


def who() -> str:
    """Return who runs this process, `user@host`, for the audit trail."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container without such a user
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def _decoded(record: ReadRecord, codec: Codec) -> tuple[str, Mapping[str, Any]]:
    try:
        return codec.decode(record.value or b"")
    except DecodeError:
        return "", {}  # the registry quarantines it


def _follow(
    result: ApplyResult | None,
    decoded: tuple[str, Mapping[str, Any]],
    request: ManifestApplied,
    manifest: Manifest,
) -> ApplyResult | None:
    """Return what is known of the answer after one more record of the registry's log."""
    if result is None:
        return _answer(decoded, request, manifest)
    schema, value = decoded
    if schema == "revision_broadcast" and value["revision"] >= result.revision:
        return replace(result, broadcast=True)
    return result


def _answer(
    decoded: tuple[str, Mapping[str, Any]], request: ManifestApplied, manifest: Manifest
) -> ApplyResult | None:
    """Return the answer to the request, if this record of the registry's log is one."""
    schema, value = decoded
    if schema == "manifest_applied" or value.get("apply_id") != request["apply_id"]:
        return None
    if schema == "revision_published":
        published = cast("RevisionPublished", value)
        return ApplyResult(
            answer="published",
            revision=published["revision"],
            reason="",
            added=tuple(binding["binding_key"] for binding in published["added"]),
            drained=tuple(published["drained"]),
        )
    answered = cast("ApplyAnswered", value)
    if answered["answer"] == "invalid":
        raise ManifestError(f"{manifest.file}: the registry refuses it: {answered['reason']}")
    return ApplyResult(
        answer=answered["answer"], revision=answered["revision"], reason=answered["reason"]
    )
