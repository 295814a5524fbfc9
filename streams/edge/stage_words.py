"""An operator's word about a halted partition, appended where stage and auditor read it.

A skip is refused unless the stage stands exactly at that record: a word about any other record
could only confuse.

Source: DESIGN "Failure".
"""

from __future__ import annotations

import getpass
import socket
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from streams.core.record import Position
from streams.edge.codecs import codec_of
from streams.edge.topic_reader import TopicReader
from streams.errors import BrokerError, ConfigError
from streams.kafka import make_consumer, make_producer, places_of
from streams.settings import Settings
from topology import TOPOLOGY, Stage
from topology.model import STAGE_RESUME, STAGE_SKIP

_TIMEOUT_S = 30.0
_READ_S = 1.0


def stage_named(name: str) -> Stage:
    """Return the stage of that name.  Raises: ConfigError when there is none."""
    found = next((stage for stage in TOPOLOGY.stages if stage.name == name), None)
    if found is None:
        names = ", ".join(sorted(stage.name for stage in TOPOLOGY.stages))
        raise ConfigError(f"stage {name!r} is unknown, expected one of {names}")
    return found


def stage_of(topic: str) -> Stage:
    """Return the stage whose mailbox a topic is.  Raises: ConfigError when it is no mailbox."""
    found = next((stage for stage in TOPOLOGY.stages if stage.source == topic), None)
    if found is None:
        sources = ", ".join(sorted(stage.source for stage in TOPOLOGY.stages))
        raise ConfigError(f"{topic} is no stage's mailbox, expected one of {sources}")
    return found


def skip_record(
    settings: Settings, record: Position, reason: str, *, timer: str | None = None
) -> Position:
    """Tell the stage whose mailbox it is to pass over `record`; returns where the word stands.

    Args:   timer: key of the row whose timer fails at the record; it is passed over instead.
    Raises: ConfigError when no stage reads the topic, or it does not stand at the record.
    """
    stage = stage_of(record.topic)
    next_record = _next_record(settings, stage, record.partition)
    if next_record != record:
        where = next_record or "its mailbox' end"
        raise ConfigError(
            f"stage {stage.name} stands at {where}, not at {record}",
            remedy="skip only the record that the log line `stage_partition_halted` names",
        )
    word = {
        "stage": stage.name,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timer": timer,
        "requested_by": _who(),
        "reason": reason,
    }
    return _append(settings, stage, record.partition, STAGE_SKIP, word)


def resume_partition(settings: Settings, stage_name: str, partition: int) -> Position:
    """Tell a stage to try a halted partition again; returns where the word stands.

    Raises: ConfigError when there is no such stage or partition.
    """
    stage = stage_named(stage_name)
    with TopicReader(settings, stage.source) as reader:
        _require_partition(reader, partition)
    word = {"stage": stage.name, "partition": partition, "requested_by": _who()}
    return _append(settings, stage, partition, STAGE_RESUME, word)


def _next_record(settings: Settings, stage: Stage, partition: int) -> Position | None:
    """The record that a stage folds next: the first one at or after its committed offset.

    The offset itself may be a transaction marker's.  None when there is no record.
    """
    with TopicReader(settings, stage.source) as reader:
        _require_partition(reader, partition)
        reader.start_at({partition: _committed(settings, stage, partition)})
        while not reader.at_end:
            for found in reader.read(_READ_S):
                return Position(stage.source, partition, found.offset)
    return None


def _require_partition(reader: TopicReader, partition: int) -> None:
    if partition >= reader.partitions:
        last = reader.partitions - 1
        raise ConfigError(f"partition is {partition}, expected 0 to {last} of {reader.topic}")


def _committed(settings: Settings, stage: Stage, partition: int) -> int:
    """Offset that the stage's group has committed; 0 before its first transaction."""
    consumer = make_consumer(settings, group_id=stage.group)
    try:
        found = places_of(consumer, [TopicPartition(stage.source, partition)], _TIMEOUT_S)
    except KafkaException as error:
        message = f"where {stage.name} stands could not be read: {error}"
        raise BrokerError(message, retryable=True) from error
    finally:
        consumer.close()
    offset = found[0].offset
    return max(offset, 0) if offset is not None else 0


def _append(
    settings: Settings, stage: Stage, partition: int, kind: str, word: dict[str, Any]
) -> Position:
    acked: list[Position] = []
    problems: list[str] = []

    def on_ack(error: Any, message: Any) -> None:  # noqa: ANN401 - confluent_kafka's types
        if error is not None:
            problems.append(str(error))
        else:
            acked.append(Position(message.topic(), message.partition(), message.offset()))

    producer = make_producer(settings, linger_ms=0)
    producer.produce(
        stage.source,
        codec_of(settings).encode(kind, word),
        b"\0stage",
        partition=partition,
        headers=[("kind", kind.encode())],
        on_delivery=on_ack,
    )
    producer.flush(_TIMEOUT_S)
    if not acked:
        reason = problems[0] if problems else "no acknowledgement in time"
        raise BrokerError(
            f"the word to {stage.source}/{partition} was not taken: {reason}", retryable=True
        )
    return acked[0]


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except OSError:  # no such user in a container
        return f"unknown@{socket.gethostname()}"
