"""A trigger's `kind` and `provider`: how its events arrive, and from whom.

What is refused is answered with what this release takes, not with all that is known of.

Source: SEMANTICS 1.4, 1.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.core.manifest_place import Place, shown
from streams.core.manifest_table import Field, read_text
from streams.core.provider_catalog import (
    BUILT_KINDS,
    BUILT_STREAMS,
    PROVIDERS,
    TRIGGER_KINDS,
    providers_of,
)
from streams.core.suggestion import near_to

__all__ = ["KIND", "PROVIDER", "kind_is_known", "provider_supports_kind"]

_KINDS = ", ".join(BUILT_KINDS)

KIND = Field(
    name="kind",
    read=read_text,
    required=True,
    default="",
    missing=f"is missing: how the events arrive, one of {_KINDS}",
)
PROVIDER = Field(
    name="provider",
    read=read_text,
    required=True,
    default="",
    missing=f"is missing: who sends the events, one of {', '.join(providers_of(None))}",
)


def kind_is_known(values: Mapping[str, Any], _exports: Mapping[str, str], place: Place) -> None:
    """Note a kind that this release does not take."""
    kind = values["kind"]
    if not kind or kind in BUILT_KINDS:
        return
    field = place.field("kind")
    if kind in TRIGGER_KINDS:
        field.refuse(f"{kind!r} is not built in this release, which takes {_KINDS}")
    else:
        field.expected(kind, f"one of {_KINDS}{near_to(kind, BUILT_KINDS)}")


def provider_supports_kind(
    values: Mapping[str, Any], _exports: Mapping[str, str], place: Place
) -> None:
    """Note a provider that is not known, or whose events do not arrive in that way."""
    provider, kind = values["provider"], values["kind"]
    if not provider:
        return
    field = place.field("provider")
    supported = PROVIDERS.get(provider)
    if supported is None:
        known = providers_of(kind if kind in BUILT_KINDS else None)
        which = f"providers of kind {kind!r}" if kind in BUILT_KINDS else "providers"
        near = near_to(provider, known)
        field.refuse(f"{shown(provider)} is not registered; {which}: {', '.join(known)}{near}")
    elif kind == "stream" and "stream" in supported and provider not in BUILT_STREAMS:
        built = ", ".join(BUILT_STREAMS)
        field.refuse(
            f"{provider!r} is not built in this release, whose streams are those of {built}"
        )
    elif kind in BUILT_KINDS and kind not in supported:
        others = ", ".join(providers_of(kind))
        field.refuse(
            f"{provider!r} does not support kind {kind!r}, only {', '.join(supported)}; "
            f"providers of kind {kind!r}: {others}"
        )
