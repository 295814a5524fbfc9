"""Webhook routes: the path at which a binding takes deliveries, and what they are checked with.

A binding with `match.path` takes what arrives at `/webhooks/<path>`.  Bindings that share a path
are one route: one delivery becomes one event, which goes to all of them.  So they agree on the
provider and on the secrets, and belong to one namespace: who may sign for a path is one team's
decision.

Source: SEMANTICS 1.3 (`match` extras), 1.4 (`secrets`, `[orchestrator]`), 1.5.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from streams.core.wire import BindingDefinition

__all__ = [
    "INGRESS",
    "PATH_CHARS_MAX",
    "PATH_EXPECTED",
    "SecretReference",
    "WebhookRoute",
    "is_path",
    "parse_reference",
    "path_of",
    "plain_path",
    "route_of",
    "route_problem",
]

INGRESS = "ingress"
"""Key of a binding's definition that holds its namespace's limits; no key of a manifest."""

PATH_CHARS_MAX = 200
PATH_EXPECTED = "a path such as /github/acme: letters, digits and . _ ~ - between slashes"

_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
_REFERENCE = re.compile(rf"({_NAME})/({_NAME})(?:@({_NAME}))?")
_PATH = re.compile(r"[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*")


class SecretReference(NamedTuple):
    """Where a secret stands: never the secret itself."""

    namespace: str
    name: str
    version: str | None


def parse_reference(text: str, /) -> SecretReference | None:
    """Read `<namespace>/<name>` or `<namespace>/<name>@<version>`; None for anything else."""
    found = _REFERENCE.fullmatch(text)
    return None if found is None else SecretReference(*found.groups())


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRoute:
    """What a path needs to know of its bindings.

    `secrets` are pairs of name and reference, by name.  `allowed_origins` and `body_bytes_max` are
    the namespace's; None leaves the body to the process's own limit.
    """

    path: str
    namespace: str
    provider: str
    secrets: tuple[tuple[str, str], ...]
    allowed_origins: tuple[str, ...]
    body_bytes_max: int | None


def plain_path(text: str, /) -> str:
    """Return a path without its leading slash: `/github` and `github` are one route."""
    return text.removeprefix("/")


def is_path(text: str, /) -> bool:
    """Whether a text can be a route: no empty segment, none that a client would resolve."""
    path = plain_path(text)
    segments = path.split("/")
    return (
        len(path) <= PATH_CHARS_MAX
        and _PATH.fullmatch(path) is not None
        and not any(segment in (".", "..") for segment in segments)
    )


def path_of(table: dict[str, Any], /) -> str | None:
    """Return the path at which a definition takes deliveries, or None when it takes none."""
    match = table.get("match")
    path = cast("dict[str, Any]", match).get("path") if isinstance(match, dict) else None
    return plain_path(path) if isinstance(path, str) else None


def route_of(binding: BindingDefinition, /) -> WebhookRoute | None:
    """Return the route that a binding is part of, or None when it takes no deliveries.

    Raises: ValueError for a definition that no manifest gives.
    """
    try:
        table: dict[str, Any] = json.loads(binding["definition"])
        path = path_of(table)
        if path is None:
            return None
        ingress: dict[str, Any] = table.get(INGRESS, {})
        secrets: dict[str, str] = table.get("secrets", {})
        return WebhookRoute(
            path=path,
            namespace=binding["namespace"],
            provider=binding["provider"],
            secrets=tuple(sorted(secrets.items())),
            allowed_origins=tuple(ingress.get("allowed_origins", ())),
            body_bytes_max=ingress.get("max_body_bytes"),
        )
    except (ValueError, AttributeError, TypeError, RecursionError):
        message = f"trigger {binding['trigger_id']!r}: the definition is none of a manifest"
        raise ValueError(message) from None


def route_problem(
    wanted: Iterable[BindingDefinition], others: Iterable[BindingDefinition], /
) -> str | None:
    """Return why these bindings cannot be in force together, or None.

    Args:    wanted: the bindings of one namespace.  others: active ones of other namespaces.
    """
    known: dict[str, WebhookRoute] = {}
    try:
        routes = [route for each in wanted if (route := route_of(each)) is not None]
    except ValueError as error:
        return str(error)
    owners = _owners(others) if routes else {}
    for route in routes:
        if route.path in owners:
            return f"webhook path {route.path!r} belongs to namespace {owners[route.path]!r}"
        first = known.setdefault(route.path, route)
        if (first.provider, first.secrets) != (route.provider, route.secrets):
            return (
                f"triggers at webhook path {route.path!r} differ in provider or secrets: "
                "give each its own path"
            )
    return None


def _owners(bindings: Iterable[BindingDefinition]) -> dict[str, str]:
    owners: dict[str, str] = {}
    for binding in bindings:
        try:
            route = route_of(binding)
        except ValueError:
            continue  # it takes no deliveries
        if route is not None:
            owners[route.path] = route.namespace
    return owners
