"""A halted partition waits for an operator's word: `stage_resume`, or `stage_skip`.

The word is a control record in the same mailbox partition, so that the auditor reads it too.  The
stage stands before it, so somebody has to look ahead: one reader per halted partition.

Source: DESIGN "Failure".
"""

from __future__ import annotations

import asyncio
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from streams.codec import Codec, DecodeError
from streams.core.record import Position
from streams.kafka import make_consumer
from streams.settings import Settings
from topology.model import STAGE_RESUME, STAGE_SKIP

_POLL_S = 0.5
_CONTROL = {STAGE_SKIP.encode(), STAGE_RESUME.encode()}


async def operators_word(settings: Settings, codec: Codec, stage: str, halted_at: Position) -> bool:
    """Wait for the word about a halted record.

    Returns: True to pass over the record, False to try it again.
    """
    loop = asyncio.get_running_loop()
    consumer = make_consumer(settings, group_id=None)
    try:
        consumer.assign(
            [TopicPartition(halted_at.topic, halted_at.partition, halted_at.offset + 1)]
        )
        while True:
            word = await loop.run_in_executor(None, _next_word, consumer, codec, stage, halted_at)
            if word is not None:
                return word
    finally:
        await loop.run_in_executor(None, consumer.close)


def _next_word(consumer: Consumer, codec: Codec, stage: str, halted_at: Position) -> bool | None:
    for message in consumer.consume(1_000, _POLL_S):
        if message.error() is None:
            word = _word(message, codec, stage, halted_at)
            if word is not None:
                return word
    return None


def _word(message: Any, codec: Codec, stage: str, halted_at: Position) -> bool | None:
    kinds = [content for name, content in message.headers() or () if name == "kind"]
    if not kinds or kinds[0] not in _CONTROL:
        return None
    try:
        schema, value = codec.decode(message.value())
    except DecodeError:
        return None
    if value.get("stage") != stage:
        return None
    if schema == STAGE_RESUME:
        return False
    return True if value.get("offset") == halted_at.offset else None
