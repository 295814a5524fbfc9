"""The schemes of the providers whose webhooks are checked."""

from __future__ import annotations

from collections.abc import Mapping

from streams.edge.ingest.webhooks.delivery import Scheme
from streams.edge.ingest.webhooks.github import GitHub
from streams.edge.ingest.webhooks.gitlab import GitLab
from streams.edge.ingest.webhooks.linear import Linear
from streams.edge.ingest.webhooks.slack import Slack
from streams.edge.ingest.webhooks.standard import StandardWebhooks
from streams.edge.ingest.webhooks.stripe import Stripe

__all__ = ["SCHEMES", "SIGNING_SECRET"]

SIGNING_SECRET = "signing_secret"  # noqa: S105 - the name under which a manifest refers to it

SCHEMES: Mapping[str, Scheme] = {
    "github": GitHub(),
    "gitlab": GitLab(),
    "linear": Linear(),
    "slack": Slack(),
    "stripe": Stripe(),
    "webhook": StandardWebhooks(),
}
"""By provider id; `streams.core.provider_catalog.SIGNED_WEBHOOKS` names the same."""
