"""How many members consumer groups have now: whether anybody runs a role.

A group is asked for, never joined.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import NamedTuple, cast

from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from streams.errors import BrokerError
from streams.kafka import COORDINATOR_SOON, PASSING

__all__ = ["Membership", "memberships"]

_ATTEMPT_S = 3.0
_AGAIN_S = 0.1
_REQUEST_S = 10.0


class Membership(NamedTuple):
    """A group's state, in Kafka's lower-case word or `absent`, its members, what they speak."""

    state: str
    members: int
    protocol: str = "unknown"


def memberships(admin: AdminClient, groups: Collection[str]) -> Mapping[str, Membership]:
    """Ask for groups; one that never was has no members.  Raises BrokerError."""
    deadline_s = time.monotonic() + _REQUEST_S
    timeout_s = _ATTEMPT_S
    while True:
        try:
            return _asked(admin, groups, timeout_s)
        except BrokerError as error:
            # A request to a broker that is only now making its offsets topic is never answered, the
            # next one is; and a coordinator that is starting refuses until it has started.
            if time.monotonic() > deadline_s or not _passes(error.__cause__):
                raise
            timeout_s = _REQUEST_S
            time.sleep(_AGAIN_S)


def _passes(cause: BaseException | None) -> bool:
    if not isinstance(cause, KafkaException):
        return isinstance(cause, TimeoutError)
    reason: KafkaError = cause.args[0]
    return reason.retriable() or reason.code() in COORDINATOR_SOON | PASSING


def _asked(
    admin: AdminClient, groups: Collection[str], timeout_s: float
) -> Mapping[str, Membership]:
    found: dict[str, Membership] = {}
    asked = admin.describe_consumer_groups(list(groups), request_timeout=timeout_s)
    for group, future in asked.items():
        try:
            described = future.result(2 * timeout_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                message = f"group {group} is not described: {error.args[0].str()}"
                raise BrokerError(message, retryable=True) from error
            found[group] = Membership("absent", 0)
        except TimeoutError as error:
            raise BrokerError(f"group {group} is not described", retryable=True) from error
        else:
            state = cast("ConsumerGroupState", described.state)
            kind = cast("ConsumerGroupType", described.type)
            found[group] = Membership(state.name.lower(), len(described.members), kind.name.lower())
    return found
