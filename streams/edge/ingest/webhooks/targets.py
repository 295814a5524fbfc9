"""From bindings to what a delivery is checked with: one target a path.

Source: DESIGN law 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streams.core.webhook import WebhookRoute, route_of
from streams.core.wire import RowRegisteredBinding
from streams.edge.ingest.webhooks.delivery import Scheme
from streams.edge.ingest.webhooks.schemes import SCHEMES, SIGNING_SECRET
from streams.edge.ingest.webhooks.secrets import SecretFiles, SecretMissing

__all__ = ["Target", "targets_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One path.  Without `keys` nothing can be checked, and `problem` says why."""

    route: WebhookRoute
    scheme: Scheme
    keys: tuple[bytes, ...]
    problem: str | None = None

    def __repr__(self) -> str:
        """Keep the keys out of every traceback."""
        return f"Target({self.route.path!r})"


def targets_of(rows: Iterable[RowRegisteredBinding], secrets: SecretFiles) -> Mapping[str, Target]:
    """Return the paths of the active bindings.

    Bindings of a path agree, or the registry would have refused them; where a hand-written record
    says otherwise, the first by trigger id counts.
    """
    targets: dict[str, Target] = {}
    for row in rows:
        if row["state"] != "active":
            continue  # a draining version takes no new event
        try:
            route = route_of(row["binding"])
        except ValueError:
            continue
        if route is None or route.path in targets or route.provider not in SCHEMES:
            continue
        targets[route.path] = _target(route, secrets)
    return targets


def _target(route: WebhookRoute, secrets: SecretFiles) -> Target:
    scheme = SCHEMES[route.provider]
    reference = dict(route.secrets).get(SIGNING_SECRET)
    try:
        if reference is None:
            raise SecretMissing(f"no secret is named {SIGNING_SECRET}")
        keys = tuple(scheme.key_of(secret) for secret in secrets.read(reference))
    except SecretMissing as error:
        return Target(route=route, scheme=scheme, keys=(), problem=str(error))
    except ValueError as error:
        problem = f"a secret of {reference} cannot be used: {error}"
        return Target(route=route, scheme=scheme, keys=(), problem=problem)
    return Target(route=route, scheme=scheme, keys=keys)
