"""GitHub: `X-Hub-Signature-256` over the body; JSON, or the same JSON in a form's `payload`.

Source: GitHub documentation, "Validating webhook deliveries", "Webhook events and payloads".
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from streams.edge.ingest.body import MalformedBody
from streams.edge.ingest.webhooks.delivery import (
    FORM,
    JSON,
    Arrived,
    Delivered,
    decode,
    form_fields,
    header,
    kind_of,
)
from streams.edge.ingest.webhooks.signing import Misfit, is_signed, sign

__all__ = ["GitHub"]

_PREFIX = "sha256="


class _Payload(msgspec.Struct):
    action: object = None


class GitHub:
    """Deliveries of GitHub."""

    content_types = (JSON, FORM)
    quiet = False

    def key_of(self, secret: bytes) -> bytes:
        """Return the secret as it is."""
        return secret

    def misfit(self, arrived: Arrived, keys: Sequence[bytes], now_s: int) -> Misfit | None:  # noqa: ARG002
        """Return why this is not GitHub's; it signs no time, so that none is looked at."""
        given = arrived.headers.get("X-Hub-Signature-256")
        if given is None:
            return Misfit.MISSING
        if not given.startswith(_PREFIX):
            return Misfit.MALFORMED
        signature = given.removeprefix(_PREFIX).encode(errors="replace")
        expected = [sign(key, arrived.body).hex().encode() for key in keys]
        return None if is_signed([signature], expected) else Misfit.MISMATCH

    def read(self, arrived: Arrived) -> Delivered:
        """Return the delivery: `issues.opened` is the event's name and the payload's action."""
        name, delivery = header(arrived, "X-GitHub-Event"), header(arrived, "X-GitHub-Delivery")
        payload, raw_body = arrived.body, None
        if arrived.content_type == FORM:
            fields = form_fields(arrived.body)
            if "payload" not in fields:
                raise MalformedBody(["the form has no field payload"])
            payload, raw_body = fields["payload"].encode(), arrived.body
        action = decode(payload, _Payload).action
        return Delivered(
            kind=kind_of(name, action), payload=payload, dedupe_key=delivery, raw_body=raw_body
        )
