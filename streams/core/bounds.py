"""How long the texts may be that a fold copies: what follows from a record must fit into records.

Bodies are bounded by the engine (a record above its input limit is quarantined) and are copied once
into each output.  Ids and names are copied into keys, headers and several fields, so they are
bounded here; whoever takes something in refuses it earlier and with a better word.

Source: DESIGN law 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streams.core.retry import ATTEMPTS_MAX
from streams.core.wire import BindingDefinition, Policy, TriggerEvent

ID_CHARS_MAX = 256
"""Ids, names of providers and kinds, tenants, timestamps."""

TEXT_CHARS_MAX = 1_024
"""Delivery keys, handler references, error texts."""

BINDINGS_MAX = 1_000
"""Bindings of one manifest: a revision names those that it adds and those that it drains."""

REVISION_BYTES_MAX = 500_000
"""Bytes of a revision: it must be folded by every partition that it is broadcast to."""

DURATION_MS_MAX = 366 * 86_400_000
"""A year: due times stay far from the largest number that a record holds."""

_NUMBER_BYTES = 10  # of a number, or of the length before a text, at most

_Texts = Iterable[tuple[str, str | None, int]]


def event_problem(event: TriggerEvent, /) -> str | None:
    """Return what makes an event unusable, or None."""
    provider = event["provider"]
    if not event["id"] or not provider:
        return "an event without id or without provider"
    if ":" in provider:
        return "a provider's name holds no colon"
    return text_problem(
        (
            ("id", event["id"], ID_CHARS_MAX),
            ("provider", provider, ID_CHARS_MAX),
            ("kind", event["kind"], ID_CHARS_MAX),
            ("dedupe_key", event["dedupe_key"], TEXT_CHARS_MAX),
            ("trace_id", event["trace_id"], ID_CHARS_MAX),
            ("tenant_id", event["tenant_id"], ID_CHARS_MAX),
        )
    )


def binding_problem(binding: BindingDefinition, /) -> str | None:
    """Return what makes a binding unusable, or None."""
    trigger_id = binding["trigger_id"]
    if not trigger_id.strip():
        return "a trigger id is blank"
    attempts = binding["retry"]["max_attempts"]
    if not 1 <= attempts <= ATTEMPTS_MAX:
        return f"trigger {trigger_id!r}: {attempts} attempts, expected 1 to {ATTEMPTS_MAX}"
    for name in ("delay_ms", "cap_ms"):
        delay_ms = binding["retry"][name]
        if not 0 <= delay_ms <= DURATION_MS_MAX:
            return f"trigger {trigger_id!r}: {name} is {delay_ms}, expected 0 to {DURATION_MS_MAX}"
    problem = text_problem(
        (
            ("trigger_id", trigger_id, ID_CHARS_MAX),
            ("kind", binding["kind"], ID_CHARS_MAX),
            ("provider", binding["provider"], ID_CHARS_MAX),
            ("handler", binding["handler"], TEXT_CHARS_MAX),
            ("handler_kind", binding["handler_kind"], ID_CHARS_MAX),
            ("target_uri", binding["target_uri"], TEXT_CHARS_MAX),
            ("fingerprint", binding["fingerprint"], ID_CHARS_MAX),
        )
    )
    return None if problem is None else f"trigger {trigger_id[:ID_CHARS_MAX]!r}: {problem}"


def revision_problem(added: Iterable[BindingDefinition], drained: Iterable[str], /) -> str | None:
    """Return what makes a revision too large to be broadcast, or None."""
    size = sum(binding_bytes(binding) for binding in added)
    size += sum(len(binding_key.encode()) + _NUMBER_BYTES for binding_key in drained)
    if size <= REVISION_BYTES_MAX:
        return None
    return (
        f"the change has {size} bytes, expected at most {REVISION_BYTES_MAX}: apply it in parts, "
        "or split it into manifests of different namespaces"
    )


def binding_bytes(binding: BindingDefinition) -> int:
    """Return about as many bytes as a binding has in a record, rather more than fewer."""
    texts = [text for text in binding.values() if isinstance(text, str)]
    texts += binding["events"]
    return sum(len(text.encode()) + _NUMBER_BYTES for text in texts) + 8 * _NUMBER_BYTES


def policy_problem(policy: Policy, /) -> str | None:
    """Return what makes a policy unusable, or None."""
    for name in ("event_id_window_ms", "lease_ms", "cancel_ttl_ms", "dlq_ttl_ms"):
        duration_ms = policy[name]
        if not 1 <= duration_ms <= DURATION_MS_MAX:
            return f"policy: {name} is {duration_ms}, expected 1 to {DURATION_MS_MAX}"
    for name in ("dedupe_rows_max", "pump_max_outstanding"):
        if policy[name] < 1:
            return f"policy: {name} is {policy[name]}, expected at least 1"
    return None


def traceparent(headers: Mapping[str, str], /) -> str | None:
    """Return the trace that a record belongs to; one that no tracer would write is left out."""
    found = headers.get("traceparent")
    return None if found is None or len(found) > ID_CHARS_MAX else found


def shortened(text: str, /) -> str:
    """Return the text, cut to what a record may carry of it."""
    return text[:TEXT_CHARS_MAX]


def text_problem(texts: _Texts, /) -> str | None:
    """Return which of the named texts is too long, or None."""
    for name, text, chars_max in texts:
        if text is not None and len(text) > chars_max:
            return f"{name} has {len(text)} characters, expected at most {chars_max}"
    return None
