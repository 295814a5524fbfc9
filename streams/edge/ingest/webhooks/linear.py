"""Linear: `Linear-Signature` over the body, which carries its time.

Source: Linear developer documentation, "Webhooks", "Securing webhooks".
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from streams.edge.ingest.body import MalformedBody
from streams.edge.ingest.webhooks.delivery import (
    JSON,
    Arrived,
    Delivered,
    decode,
    header,
    kind_of,
    time_of,
)
from streams.edge.ingest.webhooks.signing import TOLERANCE_S, Misfit, is_signed, sign

__all__ = ["Linear"]


class _Signed(msgspec.Struct, rename="camel"):
    webhook_timestamp: int


class _Payload(msgspec.Struct, rename="camel"):
    type: str
    action: object = None
    created_at: object = None


class Linear:
    """Deliveries of Linear."""

    content_types = (JSON,)
    quiet = False

    def key_of(self, secret: bytes) -> bytes:
        """Return the secret as it is."""
        return secret

    def misfit(self, arrived: Arrived, keys: Sequence[bytes], now_s: int) -> Misfit | None:
        """Return why this is not Linear's."""
        given = arrived.headers.get("Linear-Signature")
        if given is None:
            return Misfit.MISSING
        expected = [sign(key, arrived.body).hex().encode() for key in keys]
        if not is_signed([given.encode(errors="replace")], expected):
            return Misfit.MISMATCH
        try:
            sent_ms = decode(arrived.body, _Signed).webhook_timestamp
        except MalformedBody:
            return Misfit.MALFORMED
        return None if abs(now_s * 1_000 - sent_ms) <= TOLERANCE_S * 1_000 else Misfit.STALE

    def read(self, arrived: Arrived) -> Delivered:
        """Return the delivery: `Issue.create` is the type and its action, as Linear spells them."""
        payload = decode(arrived.body, _Payload)
        return Delivered(
            kind=kind_of(payload.type, payload.action),
            payload=arrived.body,
            dedupe_key=header(arrived, "Linear-Delivery"),
            occurred_at=time_of(payload.created_at),
        )
