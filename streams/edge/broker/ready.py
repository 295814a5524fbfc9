"""Wait until a started broker answers, or say why it never will."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from streams.edge.broker import process
from streams.edge.broker.files import BrokerFiles
from streams.edge.broker.progress import Progress, Step
from streams.errors import BrokerError
from streams.kafka import make_admin
from streams.settings import Settings

__all__ = ["await_ready", "last_words", "tail"]

# A laptop waking up with gigabytes to recover needs its time; a healthy start needs seconds.
_READY_S = 120.0
_SAY_S = 10.0
_POLL_S = 0.05
_ANSWER_S = 1.0
# A partition that cannot be led at all (a damaged log) must not keep the others away.
_LEADING_S = 15.0
_TAIL_LINES = 12
_TAIL_BYTES = 64 * 1024


def await_ready(
    settings: Settings, started: psutil.Process, files: BrokerFiles, progress: Progress
) -> bool:
    """Wait until the broker at `settings.bootstrap` serves its partitions; return whether it does.

    False means that its process ended before.  Raises BrokerError with the last lines of its log
    when it takes too long; then it is stopped.
    """
    begun_s = time.monotonic()
    said_s = begun_s
    # Refused connections are no news here: the broker is only starting.
    admin = make_admin(settings, log_level=0, error_cb=_ignore)
    answered_s: float | None = None
    while True:
        now_s = time.monotonic()
        partitions = _partitions(admin)
        if partitions is not None:
            answered_s = answered_s or now_s
            if now_s - answered_s > _LEADING_S or _are_led(admin, partitions):
                return True
        if not process.is_alive(started):
            return False
        if now_s - begun_s > _READY_S:
            process.end(started)
            raise BrokerError(
                f"the embedded Kafka did not answer within {_READY_S:.0f} s and was stopped; "
                f"its last words:\n{last_words(files)}",
                retryable=True,
                remedy=f"see {files.log}",
            )
        if now_s - said_s > _SAY_S:
            progress(Step(f"Still starting after {now_s - begun_s:.0f} s, see {files.log}"))
            said_s = now_s
        time.sleep(_POLL_S)


def _partitions(admin: AdminClient) -> list[TopicPartition] | None:
    """Return every partition that the broker knows, or None while it does not answer."""
    try:
        found = admin.list_topics(timeout=_ANSWER_S)
    except KafkaException:
        return None
    if not found.brokers:
        return None
    return [
        TopicPartition(name, partition)
        for name, topic in found.topics.items()
        for partition in topic.partitions
    ]


def _are_led(admin: AdminClient, partitions: list[TopicPartition]) -> bool:
    """Whether the broker serves all of them: just started, it refuses some for a moment."""
    if not partitions:
        return True
    end = OffsetSpec.latest()
    assert end is not None, "its type says that it may be"
    wanted: dict[TopicPartition, OffsetSpec] = dict.fromkeys(partitions, end)
    ends = admin.list_offsets(wanted, request_timeout=_ANSWER_S)
    try:
        for answer in ends.values():
            answer.result(_ANSWER_S * 2)
    except (KafkaException, TimeoutError):
        return False
    return True


def _ignore(error: KafkaError) -> None:
    del error


def tail(text: str) -> str:
    """Return the last lines of `text`, indented."""
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(f"    {line}" for line in lines[-_TAIL_LINES:])


def last_words(files: BrokerFiles) -> str:
    """Return what the broker and its JVM said last."""
    return tail(_end_of(files.log) + "\n" + _end_of(files.console)) or "    (nothing)"


def _end_of(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace")
