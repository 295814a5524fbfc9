"""Stripe: `Stripe-Signature: t=<time>,v1=<signature>`, over the time and the body.

Source: Stripe documentation, "Verify webhook signatures manually", "The Event object".
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from streams.edge.ingest.webhooks.delivery import JSON, Arrived, Delivered, decode, time_of
from streams.edge.ingest.webhooks.signing import SIGNATURES_MAX, Misfit, is_fresh, is_signed, sign

__all__ = ["Stripe"]


class _Payload(msgspec.Struct):
    id: str
    type: str
    created: object = None


class Stripe:
    """Deliveries of Stripe."""

    content_types = (JSON,)
    quiet = False

    def key_of(self, secret: bytes) -> bytes:
        """Return the secret as it is, `whsec_` included."""
        return secret

    def misfit(self, arrived: Arrived, keys: Sequence[bytes], now_s: int) -> Misfit | None:
        """Return why this is not Stripe's."""
        given = arrived.headers.get("Stripe-Signature")
        if given is None:
            return Misfit.MISSING
        pairs = [pair.strip().partition("=") for pair in given.split(",")]
        times = [value for name, _, value in pairs if name == "t"]
        signatures = [value.encode(errors="replace") for name, _, value in pairs if name == "v1"]
        fresh = is_fresh(times[0], now_s) if len(times) == 1 else None
        if fresh is None or not 1 <= len(signatures) <= SIGNATURES_MAX:
            return Misfit.MALFORMED
        signed = (times[0].encode(), b".", arrived.body)
        expected = [sign(key, *signed).hex().encode() for key in keys]
        if not is_signed(signatures, expected):
            return Misfit.MISMATCH
        return None if fresh else Misfit.STALE

    def read(self, arrived: Arrived) -> Delivered:
        """Return the delivery: kind and delivery id are the event object's type and id."""
        payload = decode(arrived.body, _Payload)
        return Delivered(
            kind=payload.type,
            payload=arrived.body,
            dedupe_key=payload.id,
            occurred_at=time_of(payload.created),
        )
