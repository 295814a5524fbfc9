"""GitLab: a secret token, sent as it is in `X-Gitlab-Token`.

Source: GitLab documentation, "Webhooks", "Webhook events".
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from streams.edge.ingest.body import MalformedBody
from streams.edge.ingest.webhooks.delivery import JSON, Arrived, Delivered, decode, kind_of
from streams.edge.ingest.webhooks.signing import Misfit, is_signed, sign

__all__ = ["GitLab"]

_PER_DELIVERY = b"harn"  # texts of any length are compared by their digests


class _Attributes(msgspec.Struct):
    action: object = None


class _Payload(msgspec.Struct):
    object_kind: str | None = None
    event_name: str | None = None
    object_attributes: _Attributes | None = None


class GitLab:
    """Deliveries of GitLab."""

    content_types = (JSON,)
    quiet = False

    def key_of(self, secret: bytes) -> bytes:
        """Return the token as it is."""
        return secret

    def misfit(self, arrived: Arrived, keys: Sequence[bytes], now_s: int) -> Misfit | None:  # noqa: ARG002
        """Return why this is not GitLab's; the body is not signed, whoever has the token may."""
        given = arrived.headers.get("X-Gitlab-Token")
        if given is None:
            return Misfit.MISSING
        digest = sign(_PER_DELIVERY, given.encode(errors="replace"))
        expected = [sign(_PER_DELIVERY, key) for key in keys]
        return None if is_signed([digest], expected) else Misfit.MISMATCH

    def read(self, arrived: Arrived) -> Delivered:
        """Return the delivery: `merge_request.open` is the object's kind and its action."""
        payload = decode(arrived.body, _Payload)
        name = payload.object_kind or payload.event_name
        if not name:
            raise MalformedBody(["the body has neither object_kind nor event_name"])
        attributes = payload.object_attributes or _Attributes()
        headers = arrived.headers
        return Delivered(
            kind=kind_of(name, attributes.action),
            payload=arrived.body,
            dedupe_key=headers.get("Idempotency-Key") or headers.get("X-Gitlab-Event-UUID"),
        )
