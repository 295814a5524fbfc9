"""Records for tests, whole and valid, of which a test names only what it is about.

    event(kind="issues.opened", payload={"action": "opened"})
    binding("triage", handler="handlers::on_issue", events=["issues.opened"])

Source: SEMANTICS 1.1, 1.8.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from streams.core.manifest import NAMESPACE_DEFAULT, canonical_json
from streams.core.retry import ATTEMPTS_DEFAULT
from streams.core.wire import (
    Backoff,
    BindingDefinition,
    EventIngested,
    Policy,
    RetryPolicy,
    SchedulerPolicy,
    TriggerEvent,
)

_RECEIVED_AT = "2026-01-01T00:00:00.000Z"


def event(
    event_id: str = "trigger_evt_1",
    *,
    provider: str = "github",
    kind: str = "issues.opened",
    payload: object = None,
    dedupe_key: str | None = None,
    tenant_id: str | None = None,
    headers: dict[str, str] | None = None,
) -> TriggerEvent:
    """Return a normalized event; `payload` is any JSON value."""
    return {
        "id": event_id,
        "provider": provider,
        "kind": kind,
        "received_at": _RECEIVED_AT,
        "occurred_at": None,
        "dedupe_key": dedupe_key,
        "trace_id": f"trace_{event_id}",
        "tenant_id": tenant_id,
        "headers": dict(sorted((headers or {}).items())),
        "raw_body": None,
        "provider_payload": json.dumps(payload),
        "signature_state": "unsigned",
        "signature_reason": None,
        "batch": None,
    }


def envelope(
    event: TriggerEvent,
    *,
    trigger_id: str | None = None,
    binding_version: int | None = None,
    replay_of_event_id: str | None = None,
    webhook_path: str | None = None,
    dlq_entry_id: str | None = None,
) -> EventIngested:
    """Return the envelope in which an event enters the inbox."""
    return {
        "trigger_id": trigger_id,
        "binding_version": binding_version,
        "replay_of_event_id": replay_of_event_id,
        "webhook_path": webhook_path,
        "dlq_entry_id": dlq_entry_id,
        "event": event,
    }


def retry_policy(
    backoff: Backoff = "svix",
    *,
    max_attempts: int = ATTEMPTS_DEFAULT,
    delay_ms: int = 0,
    cap_ms: int = 0,
) -> RetryPolicy:
    """Return a retry policy; without arguments the one of a manifest that names none."""
    return {
        "backoff": backoff,
        "max_attempts": max_attempts,
        "delay_ms": delay_ms,
        "cap_ms": cap_ms,
    }


def binding(
    trigger_id: str = "triage",
    *,
    provider: str = "github",
    events: Sequence[str] = (),
    handler: str = "on_event",
    retry: RetryPolicy | None = None,
    namespace: str = NAMESPACE_DEFAULT,
    version: int = 0,
    note: str = "",
) -> BindingDefinition:
    """Return a binding as a manifest declares it: without a version, which the registry chooses.

    Bindings that differ in anything, `note` included, have different fingerprints.
    """
    retry = retry or retry_policy()
    definition: dict[str, Any] = {
        "id": trigger_id,
        "provider": provider,
        "match": {"events": list(events)},
        "handler": handler,
        "retry": retry,
        "note": note,
    }
    text = canonical_json(definition)
    return {
        "trigger_id": trigger_id,
        "version": version,
        "binding_key": f"{trigger_id}@v{version}" if version else "",
        "namespace": namespace,
        "kind": "webhook",
        "provider": provider,
        "events": list(events),
        "handler": handler,
        "handler_kind": "local",
        "target_uri": handler,
        "retry": retry,
        "fingerprint": blake2b(text.encode(), digest_size=16).hexdigest(),
        "definition": text,
    }


def policy(
    *,
    event_id_window_ms: int = 86_400_000,
    dedupe_rows_max: int = 1_000_000,
    lease_ms: int = 15_000,
    cancel_ttl_ms: int = 86_400_000,
    dlq_ttl_ms: int = 691_200_000,
    action_graph: bool = True,
    pump_max_outstanding: int = 320,
    scheduler: SchedulerPolicy | None = None,
) -> Policy:
    """Return a policy; without arguments the one in force before the first revision."""
    return {
        "event_id_window_ms": event_id_window_ms,
        "dedupe_rows_max": dedupe_rows_max,
        "lease_ms": lease_ms,
        "cancel_ttl_ms": cancel_ttl_ms,
        "dlq_ttl_ms": dlq_ttl_ms,
        "action_graph": action_graph,
        "pump_max_outstanding": pump_max_outstanding,
        "scheduler": scheduler,
    }
