"""A halted partition waits for an operator's word: `stage_resume`, or `stage_skip`.

The word is a control record in the same mailbox partition, so that the auditor reads it too.  The
stage stands before it, so somebody has to look ahead: one reader per halted partition, on a thread
of its own, which also closes its client.

| word | is for |
|---|---|
| `stage_skip` | the record, and the timer if one is named, at which the partition is halted |
| `stage_resume` | whatever the partition is halted at; each is obeyed once |

Source: DESIGN "Failure".
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Executor
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from streams.codec import Codec, DecodeError
from streams.core.record import Position
from streams.kafka import headers_of, make_consumer
from streams.settings import Settings
from topology.model import STAGE_RESUME, STAGE_SKIP

_POLL_S = 0.5
_RECORDS = 1_000
_CONTROL = {STAGE_SKIP.encode(), STAGE_RESUME.encode()}


class Halt(NamedTuple):
    """What a partition is halted at: a record, or a timer fired by it.

    `heard` is the offset of the last word that was obeyed; a resume up to there is over.
    """

    stage: str
    position: Position
    timer: str | None
    heard: int


class Word(NamedTuple):
    """An operator's word and where it stands; without `skip` it says to try again."""

    offset: int
    skip: bool


async def operators_word(settings: Settings, codec: Codec, halt: Halt, threads: Executor) -> Word:
    """Wait for the word about a halted partition."""
    given_up = threading.Event()
    loop = asyncio.get_running_loop()
    reading = loop.run_in_executor(threads, _read, settings, codec, halt, given_up)
    try:
        word = await asyncio.shield(reading)
    except asyncio.CancelledError:
        given_up.set()  # the thread sees it within a poll; its client is in nobody else's hands
        reading.add_done_callback(_forget)
        raise
    assert word is not None, "only who gives up gets no word"
    return word


def _forget(reading: asyncio.Future[Word | None]) -> None:
    """Take what came of a reading that nobody waits for."""
    if not reading.cancelled():
        reading.exception()


def _read(settings: Settings, codec: Codec, halt: Halt, given_up: threading.Event) -> Word | None:
    topic, partition, offset = halt.position
    consumer = make_consumer(settings, group_id=None)
    try:
        consumer.assign([TopicPartition(topic, partition, offset + 1)])
        while not given_up.is_set():
            word = _next_word(consumer, codec, halt)
            if word is not None:
                return word
        return None
    finally:
        consumer.close()


def _next_word(consumer: Consumer, codec: Codec, halt: Halt) -> Word | None:
    for message in consumer.consume(_RECORDS, _POLL_S):
        if message.error() is None:
            word = word_about(halt, codec, message)
            if word is not None:
                return word
    return None


def word_about(halt: Halt, codec: Codec, message: Any) -> Word | None:
    """Return what a record of the halted partition says about the halt, if anything."""
    kinds = [content for name, content in headers_of(message) if name == "kind"]
    if not kinds or kinds[0] not in _CONTROL:
        return None
    try:
        schema, said = codec.decode(message.value() or b"")
    except DecodeError:
        return None  # quarantined when the stage gets there
    offset = message.offset()
    if said.get("stage") != halt.stage:
        return None
    if schema == STAGE_RESUME:
        return Word(offset, skip=False) if offset > halt.heard else None
    if schema != STAGE_SKIP:
        return None
    about = (said["topic"], said["partition"], said["offset"], said["timer"])
    return Word(offset, skip=True) if about == (*halt.position, halt.timer) else None
