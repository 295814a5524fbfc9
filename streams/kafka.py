"""The one place where Kafka clients are made, so that all of them agree on what must agree.

Every producer hashes keys as Java and aiokafka do (murmur2): with librdkafka's own default most
keys would land in another partition than the readers expect.  Every client retries within
milliseconds: back-to-back transactions otherwise wait 100 ms for the coordinator.

librdkafka's logs and errors go to the logger `harn.kafka`; a line that repeats is logged once in
ten seconds, since a client without a broker reports the same refusal many times a second.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Iterable
from operator import methodcaller
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from streams.errors import ConfigError
from streams.observe.logs import OncePerWhile
from streams.settings import Settings

__all__ = [
    "COORDINATOR_SOON",
    "PASSING",
    "admin_config",
    "aiokafka_options",
    "broker_urls",
    "consumer_config",
    "ends_of",
    "headers_of",
    "make_admin",
    "make_consumer",
    "make_producer",
    "places_of",
    "producer_config",
    "right_missing",
    "wait_until_served",
]

_Answer = TypeVar("_Answer")

_HEADERS = methodcaller("headers")
"""Calls the client by a way on which the interpreter looks whether it has failed: a call that was
made often is made by a shorter one, and what the client left half done would end the process."""

_LOG = logging.getLogger("harn.kafka")

# Ours is at most `max_record_bytes` of value; key, headers and framing need some room on top.
_MESSAGE_MAX_BYTES = 1_000_000
# Long enough for a broker's restart, short enough that an edge can still answer its caller.
_DELIVERY_TIMEOUT_MS = 30_000
_ASK_AGAIN_S = 0.1
_SILENT_S = 3.0
# The client does not mark them as worth another try.
_LEADER_SOON = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
_SERVED_SOON = _LEADER_SOON | {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - client-side codes are spelled with an underscore
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
}
COORDINATOR_SOON = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_PLACES_SOON = COORDINATOR_SOON | {
    KafkaError._TIMED_OUT,  # noqa: SLF001 - its name
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}
PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - client-side codes are spelled with an underscore
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._MAX_POLL_EXCEEDED,  # noqa: SLF001
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    }
)
"""Errors of a consumer in a group after which librdkafka goes on trying by itself."""

_REFUSED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)

# Keys of librdkafka that are spelled with underscores: callbacks, and Python's own.
_UNDERSCORED = {"log_level", "on_commit", "on_delivery"}


def producer_config(
    settings: Settings, *, idempotent: bool = True, transactional_id: str | None = None
) -> dict[str, Any]:
    """Return librdkafka's configuration of a producer.

    With a transactional id only failed deliveries are reported (a failed one also fails the
    commit); without one, each delivery is reported, since an edge answers after the ack.
    """
    config = _common(settings) | {
        "acks": "all",
        "enable.idempotence": idempotent or transactional_id is not None,
        "linger.ms": 5,
        "message.max.bytes": _MESSAGE_MAX_BYTES,
        "partitioner": "murmur2_random",
    }
    if transactional_id is None:
        return config | {"delivery.timeout.ms": _DELIVERY_TIMEOUT_MS}
    return config | {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": settings.transaction_timeout_ms,
        "delivery.timeout.ms": settings.transaction_timeout_ms,
        "delivery.report.only.error": True,
    }


def consumer_config(
    settings: Settings, *, group_id: str | None, isolation: str = "read_committed"
) -> dict[str, Any]:
    """Return librdkafka's configuration of a consumer that commits only when told.

    `group_id` None is for readers that assign partitions themselves and never commit.
    """
    return _common(settings) | {
        # librdkafka wants a group even from a reader without one; nothing is committed to it.
        "group.id": group_id or "harn.reader",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        "session.timeout.ms": settings.session_timeout_ms,
        "heartbeat.interval.ms": settings.heartbeat_interval_ms,
        "fetch.wait.max.ms": 100,
    }


def admin_config(settings: Settings) -> dict[str, Any]:
    """Return librdkafka's configuration of an admin client."""
    return _common(settings)


def make_producer(
    settings: Settings,
    *,
    idempotent: bool = True,
    transactional_id: str | None = None,
    **overrides: object,
) -> Producer:
    """Make a producer; `overrides` are librdkafka properties with `_` for `.` (linger_ms=0)."""
    config = producer_config(settings, idempotent=idempotent, transactional_id=transactional_id)
    return Producer(config | _properties(overrides), logger=_LOG)


def make_consumer(
    settings: Settings,
    *,
    group_id: str | None,
    isolation: str = "read_committed",
    **overrides: object,
) -> Consumer:
    """Make a consumer; `overrides` as for `make_producer`."""
    config = consumer_config(settings, group_id=group_id, isolation=isolation)
    config |= _properties(overrides)
    if config.get("group.protocol") == "consumer":
        # In the newer group protocol the broker decides these two, and setting them is refused.
        del config["session.timeout.ms"], config["heartbeat.interval.ms"]
    return Consumer(config, logger=_LOG)


def make_asker(settings: Settings, group_id: str, *, stable: bool) -> Consumer:
    """Make what asks where a group stands, see `places_of`: a consumer of it that never joins.

    An admin client must not ask: when the group's coordinator moves, or is only starting,
    librdkafka takes it for a member of a group, and the process ends (its issue 5040).

    Args:  stable: whether to wait for what an open transaction is about to commit.
    """
    isolation = "read_committed" if stable else "read_uncommitted"
    return make_consumer(settings, group_id=group_id, isolation=isolation)


def make_admin(settings: Settings, **overrides: object) -> AdminClient:
    """Make an admin client; `overrides` as for `make_producer`."""
    return AdminClient(admin_config(settings) | _properties(overrides), logger=_LOG)


def headers_of(message: Message) -> list[tuple[str, Any]]:
    """Return a record's headers, as the client has them: none where it cannot read them.

    The client has no word for a name that is no UTF-8, which other clients write as they are told
    to.  Of such a record all headers are lost; without that, none after it would be read either.
    """
    try:
        headers: Any = _HEADERS(message)
    except SystemError:  # as it says that it could not decode the name
        # It keeps what it made as far as it came, and whoever looks into that ends the process.
        message.set_headers([])
        return []
    return headers or []


def ends_of(consumer: Consumer, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
    """Return the first offset of a partition and its end, as the consumer's isolation has it.

    A partition that was made a moment ago, or whose leader is changing, is asked again.

    Raises: KafkaException when there is no answer in time.
    """
    found = _asked(
        lambda left_s: consumer.get_watermark_offsets(place, timeout=left_s, cached=False),
        _LEADER_SOON,
        timeout_s,
    )
    if found is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - its name
    return found


def places_of(
    consumer: Consumer, places: list[TopicPartition], timeout_s: float
) -> list[TopicPartition]:
    """Return what the consumer's group has committed of these partitions.

    A group whose coordinator is only starting, or moves, is asked again, and so is a broker that
    says nothing: to a request that comes while it makes its offsets topic there is no answer ever,
    and to the next one there is at once.

    Raises: KafkaException when there is no answer in time.
    """
    return _asked(
        lambda left_s: consumer.committed(places, timeout=min(left_s, _SILENT_S)),
        _PLACES_SOON,
        timeout_s,
    )


def wait_until_served(
    settings: Settings, places: Iterable[tuple[str, int]], timeout_s: float
) -> None:
    """Return once the leader of each partition answers.

    A cluster shows a partition that was made a moment ago before its leader serves it.  What a
    producer appends then is refused first and accepted a moment later: see `Publisher`.

    Args:   places: topic and partition of each.
    Raises: KafkaException when one does not answer in time, or for a reason that does not pass.
    """
    asked = [TopicPartition(*place, OFFSET_END) for place in places]
    consumer = make_consumer(settings, group_id=None)

    def ask(left_s: float) -> None:
        for each in consumer.offsets_for_times(asked, timeout=left_s):
            if each.error is not None:
                raise KafkaException(each.error)

    try:
        _asked(ask, _SERVED_SOON, timeout_s)
    finally:
        consumer.close()


def _asked(ask: Callable[[float], _Answer], soon: frozenset[int], timeout_s: float) -> _Answer:
    """Ask, and ask again after the errors that pass soon, as long as there is time."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return ask(max(deadline_s - time.monotonic(), _ASK_AGAIN_S))
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if time.monotonic() > deadline_s or reason.code() not in soon:
                raise
            time.sleep(_ASK_AGAIN_S)


def right_missing(error: KafkaError) -> str | None:
    """Return what to do about a right that this user has not; None for any other error."""
    if error.code() not in _REFUSED:
        return None
    return (
        "grant this user what `harn topology acls` prints: for role operator, or for role audit "
        "where `harn audit` is to run"
    )


def broker_urls(settings: Settings) -> list[str]:
    """Return the cluster as Faust's `broker` setting wants it."""
    return [f"kafka://{address}" for address in _bootstrap(settings).split(",")]


def aiokafka_options(settings: Settings) -> dict[str, Any]:
    """Return what an aiokafka client needs to reach the cluster: addresses, transport, user."""
    protocol = settings.kafka_security_protocol
    options: dict[str, Any] = {
        "bootstrap_servers": _bootstrap(settings).split(","),
        "security_protocol": protocol,
    }
    if protocol.endswith("SSL"):
        options["ssl_context"] = ssl.create_default_context(cafile=settings.kafka_ssl_ca_location)
    if protocol.startswith("SASL_"):
        options |= {
            "sasl_mechanism": settings.kafka_sasl_mechanism,
            "sasl_plain_username": settings.kafka_sasl_username,
            "sasl_plain_password": settings.kafka_sasl_password,
        }
    return options


def _bootstrap(settings: Settings) -> str:
    if settings.bootstrap is None:
        raise ConfigError(
            "KAFKA_BOOTSTRAP_SERVERS is unset, expected host:port[,host:port...]",
            remedy="name a cluster, or start the embedded broker with `harn broker start`",
        )
    return settings.bootstrap


def _common(settings: Settings) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": _bootstrap(settings),
        "client.id": "harn",
        "security.protocol": settings.kafka_security_protocol,
        "socket.nagle.disable": True,
        "retry.backoff.ms": 2,
        "retry.backoff.max.ms": 100,
        # A broker that restarts is found again within half a second.
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
        "error_cb": _log_error,
    }
    if settings.kafka_security_protocol.startswith("SASL_"):
        config |= {
            "sasl.mechanism": settings.kafka_sasl_mechanism,
            "sasl.username": settings.kafka_sasl_username,
            "sasl.password": settings.kafka_sasl_password,
        }
    if settings.kafka_ssl_ca_location is not None:
        config["ssl.ca.location"] = str(settings.kafka_ssl_ca_location)
    return config


def _properties(overrides: dict[str, object]) -> dict[str, Any]:
    return {
        name if name in _UNDERSCORED or name.endswith("_cb") else name.replace("_", "."): value
        for name, value in overrides.items()
    }


def _log_error(error: KafkaError) -> None:
    """Report what librdkafka could not do; it goes on trying unless the error is fatal."""
    level = logging.ERROR if error.fatal() else logging.WARNING
    _LOG.log(level, "kafka_client_error: %s: %s", error.name(), error.str())


_LOG.addFilter(OncePerWhile())
