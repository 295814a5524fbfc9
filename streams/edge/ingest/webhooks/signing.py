"""Signatures: what was signed, with which of several secrets, and how long ago.

Every comparison takes the same time wherever texts differ, and every secret is tried whatever the
first ones gave: how long an answer takes says nothing about a secret.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from enum import StrEnum

__all__ = ["SIGNATURES_MAX", "TOLERANCE_S", "Misfit", "is_fresh", "is_signed", "sign"]

TOLERANCE_S = 300
"""How far a signed timestamp may be from our clock, either way: Slack's, Stripe's and Standard
Webhooks' own recommendation."""

SIGNATURES_MAX = 16
"""Signatures of one delivery: senders give one for each of their secrets while they rotate them."""


class Misfit(StrEnum):
    """Why a delivery is not taken for its provider's: for metrics and logs, not for the sender."""

    MISSING = "signature_missing"
    MALFORMED = "signature_malformed"
    STALE = "timestamp_stale"
    MISMATCH = "signature_mismatch"


def sign(key: bytes, *parts: bytes) -> bytes:
    """Return the HMAC-SHA256 of the parts, one after the other."""
    return hmac.digest(key, b"".join(parts), "sha256")


def is_signed(given: Iterable[bytes], expected: Sequence[bytes]) -> bool:
    """Whether one of the given signatures is one of those expected."""
    found = False
    for signature in given:
        for each in expected:
            found |= hmac.compare_digest(signature, each)
    return found


def is_fresh(timestamp: str, now_s: int) -> bool | None:
    """Whether a timestamp, in seconds since epoch, is near enough; None when it is no timestamp."""
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return None
    return abs(now_s - int(timestamp)) <= TOLERANCE_S
