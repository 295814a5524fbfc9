"""Channels: names that events are emitted to, and the selectors with which triggers take them.

| selector | takes what is emitted to |
|---|---|
| `channel:<name>` | the channel of the tenant `default` |
| `channel:tenant:<id>:<name>` | the channel of that tenant |
| `channel:tenant:*:<name>` | the channels of that name of every tenant |
| `channel:session:<name>`, `channel:pipeline:<name>` | the channel of any session, or pipeline |

An event's kind is the selector that names its channel exactly, so that matching stays equality.

Source: SEMANTICS 1.1, channel events.
"""

from __future__ import annotations

import re

from streams.core.wire import BindingDefinition, TriggerEvent

__all__ = [
    "KIND",
    "PROVIDER",
    "SCOPES",
    "TENANT_DEFAULT",
    "bindings_taking",
    "channel_problem",
    "event_kind",
    "selector",
]

PROVIDER = "channel"
KIND = "channel.emit"
TENANT_DEFAULT = "default"
SCOPES = ("tenant", "session", "pipeline")

SCOPE_ID_CHARS_MAX = 200

_NAME = r"[A-Za-z0-9._-]{1,100}"
_IS_NAME = re.compile(_NAME)
_TENANT = r"[A-Za-z0-9_-]{1,100}"
_IS_TENANT = re.compile(_TENANT)
_BARE = re.compile(rf"channel:({_NAME})")
_SELECTOR = re.compile(rf"channel:(tenant:({_TENANT}|\*)|session|pipeline):{_NAME}")
_EXPECTED = (
    "channel:<name>, channel:session:<name>, channel:pipeline:<name>, "
    "channel:tenant:<id>:<name> or channel:tenant:*:<name>"
)


def event_kind(scope: str, scope_id: str, name: str, /) -> str:
    """Return the kind of events that are emitted to a channel."""
    return f"channel:tenant:{scope_id}:{name}" if scope == "tenant" else f"channel:{scope}:{name}"


def selector(text: str, /, tenant_id: str = TENANT_DEFAULT) -> str:
    """Return a selector in full; a bare name means the tenant's channel.

    Raises: ValueError saying what was expected.
    """
    bare = _BARE.fullmatch(text)
    if bare is not None:
        return event_kind("tenant", tenant_id, bare[1])
    if _SELECTOR.fullmatch(text) is None:
        raise ValueError(f"is {text!r}, expected {_EXPECTED}")
    return text


def channel_problem(name: str, scope: str, scope_id: str, /) -> str | None:
    """Return what keeps these from naming a channel, or None."""
    if _IS_NAME.fullmatch(name) is None:
        return "a channel's name is 1 to 100 letters, digits, dots, dashes or underscores"
    if scope not in SCOPES:
        return f"a channel's scope is one of {', '.join(SCOPES)}"
    if scope == "tenant" and _IS_TENANT.fullmatch(scope_id) is None:
        return "a tenant's id is 1 to 100 letters, digits, dashes or underscores"
    if not scope_id.isprintable() or not 0 < len(scope_id) <= SCOPE_ID_CHARS_MAX:
        return f"the id of a {scope} is 1 to {SCOPE_ID_CHARS_MAX} printable characters"
    return None


def bindings_taking(
    event: TriggerEvent, bindings: list[BindingDefinition], /
) -> list[BindingDefinition]:
    """Return the bindings of channels that take an event."""
    kind = event["kind"]
    bare = _BARE.fullmatch(kind)
    if bare is not None:  # somebody sent it by hand
        kind = event_kind("tenant", event["tenant_id"] or TENANT_DEFAULT, bare[1])
    kinds = {kind}
    if kind.startswith("channel:tenant:"):
        kinds.add(event_kind("tenant", "*", kind.rpartition(":")[2]))
    return [
        binding
        for binding in bindings
        if not binding["events"] or not kinds.isdisjoint(binding["events"])
    ]
