"""Bindings that take webhooks, and deliveries signed as their senders sign them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from streams.core.manifest import canonical_json
from streams.core.wire import BindingDefinition


def with_path(
    binding: BindingDefinition, path: str, secret: str = "github/hook", **ingress: Any
) -> BindingDefinition:
    """A binding that takes deliveries at a path, as its manifest would have it."""
    table = json.loads(binding["definition"])
    table["match"]["path"] = path
    table["secrets"] = {"signing_secret": secret}
    if ingress:
        table["ingress"] = ingress
    text = canonical_json(table)
    return {**binding, "definition": text, "fingerprint": f"{binding['fingerprint']}-{path}"}


def signed(
    provider: str, body: bytes, secret: bytes, *, now_s: int = 0, delivery: str = "delivery-1"
) -> dict[str, str]:
    """The headers with which a provider sends a body, by its own documentation."""

    def mac(key: bytes, content: bytes) -> bytes:
        return hmac.new(key, content, hashlib.sha256).digest()

    match provider:
        case "github":
            return {
                "X-GitHub-Event": "issues",
                "X-GitHub-Delivery": delivery,
                "X-Hub-Signature-256": f"sha256={mac(secret, body).hex()}",
            }
        case "gitlab":
            return {"X-Gitlab-Token": secret.decode(), "Idempotency-Key": delivery}
        case "linear":
            return {"Linear-Delivery": delivery, "Linear-Signature": mac(secret, body).hex()}
        case "slack":
            signature = mac(secret, f"v0:{now_s}:".encode() + body).hex()
            return {
                "X-Slack-Request-Timestamp": str(now_s),
                "X-Slack-Signature": f"v0={signature}",
            }
        case "stripe":
            signature = mac(secret, f"{now_s}.".encode() + body).hex()
            return {"Stripe-Signature": f"t={now_s},v1={signature}"}
        case _:
            key = base64.b64decode(secret.removeprefix(b"whsec_"))
            content = f"{delivery}.{now_s}.".encode() + body
            signature = base64.b64encode(mac(key, content)).decode()
            return {
                "webhook-id": delivery,
                "webhook-timestamp": str(now_s),
                "webhook-signature": f"v1,{signature}",
            }
