"""Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature`, all signed.

Senders that are older than the standard spell the headers `svix-`.  Secrets are base64, with or
without the prefix `whsec_`.

Source: Standard Webhooks 1.0, "Signature scheme", "Payload structure".
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

import msgspec

from streams.edge.ingest.body import MalformedBody
from streams.edge.ingest.webhooks.delivery import JSON, Arrived, Delivered, decode, time_of
from streams.edge.ingest.webhooks.signing import SIGNATURES_MAX, Misfit, is_fresh, is_signed, sign

__all__ = ["StandardWebhooks"]

_KIND_WITHOUT_TYPE = "webhook"
_VERSION = "v1,"


class _Payload(msgspec.Struct):
    type: object = None
    timestamp: object = None


class StandardWebhooks:
    """Deliveries of any sender that keeps to Standard Webhooks."""

    content_types = (JSON,)
    quiet = False

    def key_of(self, secret: bytes) -> bytes:
        """Return the bytes that a secret spells.  Raises ValueError when it is no base64."""
        try:
            key = base64.b64decode(secret.removeprefix(b"whsec_"), validate=True)
        except binascii.Error:
            raise ValueError("expected base64, with or without whsec_ before it") from None
        if not key:
            raise ValueError("expected a secret after whsec_")
        return key

    def misfit(self, arrived: Arrived, keys: Sequence[bytes], now_s: int) -> Misfit | None:
        """Return why no holder of a key sent this."""
        delivery, moment = _header(arrived, "id"), _header(arrived, "timestamp")
        given = _header(arrived, "signature")
        if delivery is None or moment is None or given is None:
            return Misfit.MISSING
        signatures = [
            each.removeprefix(_VERSION).encode(errors="replace")
            for each in given.split()
            if each.startswith(_VERSION)
        ]
        fresh = is_fresh(moment, now_s)
        if fresh is None or not 1 <= len(signatures) <= SIGNATURES_MAX:
            return Misfit.MALFORMED
        signed = (f"{delivery}.{moment}.".encode(errors="replace"), arrived.body)
        expected = [base64.b64encode(sign(key, *signed)) for key in keys]
        if not is_signed(signatures, expected):
            return Misfit.MISMATCH
        return None if fresh else Misfit.STALE

    def read(self, arrived: Arrived) -> Delivered:
        """Return the delivery: its kind is the payload's `type`, or `webhook` without one."""
        payload = decode(arrived.body, _Payload)
        if payload.type is not None and not isinstance(payload.type, str):
            raise MalformedBody(["type: expected text"])
        return Delivered(
            kind=payload.type or _KIND_WITHOUT_TYPE,
            payload=arrived.body,
            dedupe_key=_header(arrived, "id"),
            occurred_at=time_of(payload.timestamp),
        )


def _header(arrived: Arrived, name: str) -> str | None:
    return arrived.headers.get(f"webhook-{name}") or arrived.headers.get(f"svix-{name}")
