"""Make a manifest the truth of its namespace: ask the registry, and wait for its answer.

    read the registry → append `manifest_applied`, expecting what was read → follow the log

An apply is a compare-and-set: whoever loses a race is told, and may look again.  Once a revision is
published, the apply also waits until it is broadcast: an event sent afterwards meets it.

Source: DESIGN "Registry"; law 3; SEMANTICS 1.8.
"""

from __future__ import annotations

from streams.codec import Codec
from streams.core import bounds
from streams.core.manifest import Manifest
from streams.core.wire import ManifestApplied, Policy
from streams.edge.codecs import codec_of
from streams.edge.ingest.trace import new_uuid
from streams.edge.registry_request import (
    ANSWER_S,
    RegistryAnswer,
    answer_of,
    ask_registry,
    who,
)
from streams.edge.registry_view import RegistryView, read_registry
from streams.edge.topic_reader import ReadRecord
from streams.engine import MAX_INPUT_BYTES, fold_batch
from streams.errors import ManifestError
from streams.provision import provision_bindings
from streams.settings import Settings

__all__ = [
    "ANSWER_S",
    "ApplyResult",
    "apply_manifest",
    "policy_asked",
    "policy_of",
    "preview_apply",
    "who",
]

_KIND = "manifest_applied"

ApplyResult = RegistryAnswer
"""`unchanged`: the manifest was in force already.  `conflict`: another apply came first.

A manifest that the registry refuses is a ManifestError instead.
"""


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
        # What an invoker runs, and what it holds ready.
        "pump_max_outstanding": 5 * settings.invoker_max_outstanding,
        "scheduler": None,  # what is in force stays, unless the manifest says otherwise
    }


def policy_asked(policy: Policy, manifest: Manifest) -> Policy:
    """Return a policy with what the manifest says of it, which counts more."""
    if manifest.pump_max_outstanding is not None:
        policy = {**policy, "pump_max_outstanding": manifest.pump_max_outstanding}
    return policy if manifest.scheduler is None else {**policy, "scheduler": manifest.scheduler}


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
    answers = (answer_of(codec.decode(each.value or b""), request["apply_id"]) for each in outputs)
    return _accepted(next(each for each in answers if each is not None), manifest)


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
    answer = ask_registry(
        settings,
        codec,
        _KIND,
        value,
        key=request["namespace"],
        request_id=request["apply_id"],
        what="apply",
        timeout_s=timeout_s,
    )
    return _accepted(answer, manifest)


def _accepted(answer: RegistryAnswer, manifest: Manifest) -> ApplyResult:
    if answer.answer == "invalid":
        raise ManifestError(f"{manifest.file}: the registry refuses it: {answer.reason}")
    return answer


def _request(manifest: Manifest, expected_revision: int, policy: Policy | None) -> ManifestApplied:
    return {
        "apply_id": f"apply_{new_uuid()}",
        "namespace": manifest.namespace,
        "expected_revision": expected_revision,
        "bindings": list(manifest.bindings),
        "policy": policy if policy is None else policy_asked(policy, manifest),
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
