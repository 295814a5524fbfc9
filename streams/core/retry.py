"""When a failed attempt is repeated.

Delays are exact, without jitter.  The svix schedule is indexed by the attempt that failed; its last
slot saturates.

Source: seed trigger-dispatcher, "Retry policy"; SEMANTICS 2.4.
"""

from __future__ import annotations

from streams.core.wire import RetryPolicy

SVIX_DELAYS_MS = (5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000, 36_000_000)
"""Delay after attempt 1, 2, 3 …: 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 10 h."""

ATTEMPTS_DEFAULT = 7
"""The seed's default budget: one delivery fewer than the published vector has."""

ATTEMPTS_MAX = 100
"""A manifest cannot ask for more; the history of a dispatch stays bounded."""

_EXPONENT_MAX = 63


def delay_ms(policy: RetryPolicy, failed_attempt: int, /) -> int | None:
    """Delay between a failed attempt and the next one.

    Args:    policy: the binding's policy.  failed_attempt: number of the one that failed, from 1.
    Returns: milliseconds, 0 for at once; None when the attempts are used up.
    """
    if failed_attempt >= policy["max_attempts"]:
        return None
    match policy["backoff"]:
        case "svix":
            return SVIX_DELAYS_MS[min(failed_attempt, len(SVIX_DELAYS_MS)) - 1]
        case "immediate":
            return 0
        case "linear":
            return policy["delay_ms"]
        case "exponential":
            return min(
                policy["delay_ms"] << min(failed_attempt - 1, _EXPONENT_MAX), policy["cap_ms"]
            )
