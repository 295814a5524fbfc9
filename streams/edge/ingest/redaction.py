"""Which headers of a delivery are kept as they are, and which lose their value.

Keeping wins over redacting: a delivery id or a signature is needed, whatever its name contains.

Source: SEMANTICS 1.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

__all__ = ["REDACTED", "redact"]

REDACTED = "[redacted]"

_KEPT = frozenset(
    {
        "user-agent",
        "request-id",
        "x-request-id",
        "x-correlation-id",
        "content-type",
        "content-length",
        "x-github-delivery",
        "x-github-event",
        "x-github-hook-id",
        "x-hub-signature",
        "x-hub-signature-256",
        "x-slack-request-timestamp",
        "x-slack-signature",
        "x-slack-retry-num",
        "linear-delivery",
        "linear-event",
        "linear-signature",
        "linear-timestamp",
        "x-notion-signature",
        "notion-delivery",
        "request-signature",
        "a2a-delivery",
        "a2a-signature",
        "x-a2a-delivery",
        "x-a2a-signature",
    }
)
_KEPT_ENDINGS = ("-event", "-delivery")
_KEPT_PARTS = ("timestamp", "request-id")
_SECRET_PARTS = ("authorization", "cookie", "secret", "token", "key")


def redact(headers: Mapping[str, str], *, safe: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the headers with lower-case names, sorted by name, secrets replaced.

    Args:    safe: further names, lower case, whose values are kept.
    Raises:  nothing; of two names that differ in case only, the later one's value counts.
    """
    if not headers:
        return {}
    lowered = {name.lower(): value for name, value in headers.items()}
    return {
        name: REDACTED if name not in safe and _is_secret(name) else lowered[name]
        for name in sorted(lowered)
    }


@lru_cache(maxsize=4_096)
def _is_secret(name: str) -> bool:
    if name in _KEPT or name.endswith(_KEPT_ENDINGS) or any(part in name for part in _KEPT_PARTS):
        return False
    return any(part in name for part in _SECRET_PARTS)
