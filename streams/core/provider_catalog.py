"""The providers a trigger may name, and how the events of each may arrive.

Source: SEMANTICS 1.1, 1.4, 1.5.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "BUILT_KINDS",
    "BUILT_STREAMS",
    "PROVIDERS",
    "SIGNED_WEBHOOKS",
    "TRIGGER_KINDS",
    "providers_of",
]

TRIGGER_KINDS = ("webhook", "cron", "poll", "stream", "channel.emit", "predicate", "a2a-push")
"""Every way in which events can arrive, as a trigger's `kind`."""

BUILT_KINDS = ("webhook", "cron", "stream", "channel.emit")
"""Those that this release can take; the others are refused when a manifest is loaded."""

BUILT_STREAMS = ("kafka",)
"""Providers whose streams this release can read."""

_WEBHOOK = ("webhook",)
_STREAM = ("stream",)

PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "github": _WEBHOOK,
    "gitlab": _WEBHOOK,
    "slack": _WEBHOOK,
    "linear": _WEBHOOK,
    "notion": ("webhook", "poll"),
    "stripe": _WEBHOOK,
    "webhook": _WEBHOOK,
    "cron": ("cron",),
    "channel": ("channel.emit",),
    "a2a-push": ("a2a-push",),
    "kafka": _STREAM,
    "nats": _STREAM,
    "pulsar": _STREAM,
    "postgres-cdc": _STREAM,
    "email": _STREAM,
    "websocket": _STREAM,
}
"""Provider id -> kinds that it supports.  `webhook` is any sender without an entry of its own."""

SIGNED_WEBHOOKS: Mapping[str, tuple[str, ...]] = {
    "github": ("signing_secret",),
    "gitlab": ("signing_secret",),
    "linear": ("signing_secret",),
    "slack": ("signing_secret",),
    "stripe": ("signing_secret",),
    "webhook": ("signing_secret",),
}
"""Provider id -> names of the secrets without which its webhooks cannot be checked.

`webhook` is checked as Standard Webhooks says.
"""


def providers_of(kind: str | None, /) -> tuple[str, ...]:
    """Return the providers whose events this release takes in this way; None is any way."""
    kinds = BUILT_KINDS if kind is None else (kind,)
    return tuple(
        provider
        for provider, supported in PROVIDERS.items()
        if any(each in supported and _is_built(provider, each) for each in kinds)
    )


def _is_built(provider: str, kind: str) -> bool:
    return kind in BUILT_KINDS and (kind != "stream" or provider in BUILT_STREAMS)
