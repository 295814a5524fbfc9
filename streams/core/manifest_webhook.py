"""What a manifest says of webhooks: paths, secrets, and the limits of their requests.

    [orchestrator]
    allowed_origins = ["https://console.example.com"]
    max_body_bytes = 100_000

    [[triggers]]
    provider = "github"
    match = { events = ["push"], path = "/github" }
    secrets = { signing_secret = "github/webhook-secret" }

A secret's value never stands in a manifest: it holds a reference, `<namespace>/<name>[@version]`,
that only ingest resolves.

Source: SEMANTICS 1.4, 1.5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from streams.core.manifest_place import Place, shown
from streams.core.manifest_table import Field, read_integer, table_of
from streams.core.provider_catalog import SIGNED_WEBHOOKS
from streams.core.webhook import PATH_EXPECTED, is_path, parse_reference

__all__ = ["INGRESS_FIELDS", "SECRETS", "ingress_of", "read_secrets", "webhook_rules"]

BODY_BYTES_MAX = 300_000
"""A third of the largest record, as for every body."""

_ORIGINS_MAX = 100
_SECRETS_MAX = 20

_SECRET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_ORIGIN = re.compile(r"\*|https?://(\[[0-9a-f:.]+\]|[a-z0-9][a-z0-9.-]*)(:[0-9]{1,5})?")


def read_secrets(value: object, place: Place) -> dict[str, str]:
    """Take a table of references by the name under which a provider looks for them."""
    table = table_of(value, place) or {}
    if len(table) > _SECRETS_MAX:
        place.refuse(f"has {len(table)} entries, expected at most {_SECRETS_MAX}")
        return {}
    secrets: dict[str, str] = {}
    for name, reference in table.items():
        entry = place.field(name)
        if _SECRET_NAME.fullmatch(name) is None:
            entry.refuse("is no name: expected letters, digits, dashes or underscores")
        elif not isinstance(reference, str) or parse_reference(reference) is None:
            # What stands there may be the secret itself: it is not repeated.
            entry.refuse(
                "is no reference, expected <namespace>/<name> or <namespace>/<name>@<version> of "
                "letters, digits, dashes and underscores; the secret itself stands elsewhere"
            )
        else:
            secrets[name] = reference
    return secrets


def _read_origins(value: object, place: Place) -> list[str]:
    if not isinstance(value, list):
        place.expected(value, "a list of origins")
        return []
    origins: list[str] = []
    entries = cast("list[object]", value)
    if len(entries) > _ORIGINS_MAX:
        place.refuse(f"has {len(entries)} entries, expected at most {_ORIGINS_MAX}")
        return []
    for index, each in enumerate(entries):
        origin = each.lower() if isinstance(each, str) else ""
        if _ORIGIN.fullmatch(origin) is None:
            expected = "an origin such as https://console.example.com, or *"
            place.field(index).expected(each, expected)
        else:
            origins.append(origin)
    return sorted(set(origins))


def ingress_of(orchestrator: Mapping[str, Any], match: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the namespace says of a trigger's requests; nothing when it takes none."""
    if "path" not in match:
        return {}
    given = {field.name: orchestrator.get(field.name) for field in INGRESS_FIELDS}
    return {name: value for name, value in given.items() if value}


def webhook_rules(values: Mapping[str, Any], _exports: Mapping[str, str], place: Place) -> None:
    """Note what keeps a trigger's deliveries from being told from anybody else's."""
    provider: str = values["provider"]
    secrets: Mapping[str, str] = values["secrets"]
    for name, reference in secrets.items():
        namespace = reference.partition("/")[0]
        if provider and namespace != provider:
            place.field("secrets").field(name).refuse(
                f"is of namespace {namespace!r}, but the provider is {provider!r}"
            )
    match: Mapping[str, Any] = values["match"] or {}
    if "path" not in match:
        return
    where, path = place.field("match").field("path"), match["path"]
    if not isinstance(path, str) or not is_path(path):
        where.expected(path, PATH_EXPECTED)
    if values["kind"] != "webhook":
        where.refuse(f"is for triggers of kind 'webhook', not {shown(values['kind'])}")
    elif provider and provider not in SIGNED_WEBHOOKS:
        checked = ", ".join(SIGNED_WEBHOOKS)
        where.refuse(
            f"cannot be used: this release checks webhooks of {checked}; leave it out, and send "
            f"events of {provider!r} to /v1/events"
        )
    for name in SIGNED_WEBHOOKS.get(provider, ()):
        if name not in secrets:
            place.field("secrets").field(name).refuse(
                f"is missing: {provider!r} webhooks are checked with it, for example "
                f'secrets = {{ {name} = "{provider}/webhook-secret" }}'
            )


SECRETS = Field(name="secrets", read=read_secrets, default={})

INGRESS_FIELDS: tuple[Field, ...] = (
    Field(name="allowed_origins", alias="allowed-origins", read=_read_origins, default=[]),
    Field(
        name="max_body_bytes",
        alias="max-body-bytes",
        read=read_integer(1, BODY_BYTES_MAX),
        default=0,
    ),
)
