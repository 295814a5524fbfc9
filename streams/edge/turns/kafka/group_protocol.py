"""Which protocol the group of turns speaks: Kafka's consumer protocol where it is as quick.

In that one the group says how long a silent member is waited for, not the member: 45 s, unless the
cluster lets the group be told otherwise.  So it is told, and read back; where that cannot be, the
classic protocol with cooperative-sticky assignment does the same work.  What is known beforehand
is asked for here; a cluster may refuse the first word all the same, see `Membership`.

Source: KIP-848; decision 24.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from streams.edge.group_members import memberships
from streams.errors import BrokerError
from streams.kafka import PASSING, make_admin, right_missing
from streams.observe import logs
from streams.settings import Settings

__all__ = ["CLASSIC", "CONSUMER", "SESSION_MS_MAX", "Choice", "chosen", "refused"]

_LOG = logs.logger(__name__)

CLASSIC, CONSUMER = "classic", "consumer"

SESSION_MS_MAX = 10_000
"""Of the consumer protocol where nobody asked for it: a dead worker is missed sooner."""

_TIMEOUT_S = 10.0
# A change is told to one broker, and known to the one that is asked a moment later.
_KNOWN_S = 5.0
_LOOK_S = 0.05
_SESSION, _HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
_SET_BY = {_SESSION: "HARN_SESSION_TIMEOUT_MS", _HEARTBEAT: "HARN_HEARTBEAT_INTERVAL_MS"}
# Newer brokers hold an assignment back for so long, to have fewer of them.
_ASSIGNMENT = "consumer.assignment.interval.ms"


class Choice(NamedTuple):
    """What a member speaks, and whether it speaks classic when the group refuses that."""

    protocol: str
    reason: str
    may_change: bool = False


_AUTO = "set AGENT_GROUP_PROTOCOL to auto"
_JOINED = f"{_AUTO}; or, when older or classic members run, stop all of them first"
_OLDER = f"{_AUTO}, or have a cluster of Kafka 4.0 or newer that speaks it"
_TIMES = (
    f"set {{}} to what the cluster lets a group have, or have its bounds moved "
    f"(group.consumer.min.*, group.consumer.max.*), or {_AUTO}"
)


class _Unfit(Exception):  # noqa: N818 - an answer, not an error
    """The consumer protocol does not do here: why, and what to do where it must."""

    def __init__(self, reason: str, remedy: str = _JOINED) -> None:
        super().__init__(reason)
        self.remedy = remedy


def chosen(settings: Settings, group: str) -> Choice:
    """Return what a member of `group` is to speak; set the group's times for it.  It blocks.

    Raises: BrokerError, when the broker does not answer, or the settings demand what cannot be.
    """
    wanted = settings.agent_group_protocol
    if wanted == CLASSIC:
        return Choice(CLASSIC, "AGENT_GROUP_PROTOCOL is classic")
    try:
        if wanted != CONSUMER and settings.session_timeout_ms > SESSION_MS_MAX:
            raise _Unfit(
                f"HARN_SESSION_TIMEOUT_MS is {settings.session_timeout_ms}, over {SESSION_MS_MAX}"
            )
        admin = make_admin(settings)
        _require_no_classic_group(admin, group)
        _set_times(admin, group, settings)
    except _Unfit as error:
        if wanted == CONSUMER:
            raise refused(group, str(error), error.remedy) from error
        return Choice(CLASSIC, str(error))
    except KafkaException as error:
        message = f"how group {group} is set up could not be asked for: {error.args[0].str()}"
        raise BrokerError(message, retryable=True) from error
    return Choice(CONSUMER, "the group's times are set", may_change=wanted != CONSUMER)


def refused(group: str, reason: str, remedy: str = _JOINED) -> BrokerError:
    """Return the error of a worker that was told to speak what the cluster refuses."""
    return BrokerError(
        f"AGENT_GROUP_PROTOCOL is consumer, but group {group} cannot speak it: {reason}",
        retryable=False,
        remedy=remedy,
    )


def _require_no_classic_group(admin: AdminClient, group: str) -> None:
    """Members of librdkafka's classic assignment cannot be joined by any of the other protocol."""
    found = memberships(admin, [group])[group]
    if found.members and found.protocol == CLASSIC:
        raise _Unfit(f"it has {found.members} members of the classic protocol")


def _set_times(admin: AdminClient, group: str, settings: Settings) -> None:
    """See to it that the group's times are those of the settings."""
    before = _asked(admin, group)
    if _SESSION not in before or _HEARTBEAT not in before:
        raise _Unfit("this cluster has no settings of groups", _OLDER)
    wanted = {
        _SESSION: str(settings.session_timeout_ms),
        _HEARTBEAT: str(settings.heartbeat_interval_ms),
    }
    if _ASSIGNMENT in before:
        wanted[_ASSIGNMENT] = "0"
    changes = {name: value for name, value in wanted.items() if before[name] != value}
    if not changes:
        return
    _alter(admin, group, changes)
    deadline_s = time.monotonic() + _KNOWN_S
    while found := {n: v for n, v in _asked(admin, group).items() if wanted.get(n, v) != v}:
        if time.monotonic() > deadline_s:
            name, value = next(iter(found.items()))
            why = f"{name} was set to {wanted[name]}, and is {value}"
            raise _Unfit(why, _TIMES.format(_SET_BY.get(name, "its times")))
        time.sleep(_LOOK_S)
    _LOG.info("turns_group_times_set", extra={"group": group, "changed": changes})


def _asked(admin: AdminClient, group: str) -> Mapping[str, str]:
    """Return the group's settings."""
    resource = ConfigResource(ResourceType.GROUP, group)
    try:
        asked = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)
        found = asked[resource].result()
    except KafkaException as error:
        raise _judged(error, "its settings cannot be read", _OLDER) from error
    return {name: str(entry.value) for name, entry in found.items()}


def _alter(admin: AdminClient, group: str, changes: Mapping[str, str]) -> None:
    resource = ConfigResource(
        ResourceType.GROUP,
        group,
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in changes.items()
        ],
    )
    try:
        asked = admin.incremental_alter_configs([resource], request_timeout=_TIMEOUT_S)
        asked[resource].result()
    except KafkaException as error:
        said = ", ".join(f"{name}={value}" for name, value in changes.items())
        variables = " and ".join(sorted({_SET_BY[n] for n in changes if n in _SET_BY}))
        remedy = _TIMES.format(variables) if variables else _OLDER
        raise _judged(error, f"{said} cannot be set", remedy) from error


def _judged(error: KafkaException, what: str, remedy: str) -> Exception:
    """Tell an outage from an answer."""
    reason: KafkaError = error.args[0]
    if reason.code() in PASSING or reason.retriable():
        return error
    return _Unfit(f"{what}: {reason.str()}", right_missing(reason) or remedy)
