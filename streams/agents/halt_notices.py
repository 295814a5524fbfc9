"""Tells the log that a partition is halted, and at what: any host can then say so.

A notice is appended without a transaction: nothing is decided by it.  It needs no word that takes
it back, since it holds for as long as the stage has committed nothing beyond that record; and it is
kept for at least as long as the record is.

Source: DESIGN "Failure".
"""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import Executor
from typing import Any

from confluent_kafka import KafkaException

from streams.codec import Codec
from streams.core.wire import PartitionHalted
from streams.errors import BrokerError
from streams.kafka import make_producer
from streams.observe import logs
from streams.settings import Settings
from topology.topics import LIFECYCLE, PARTITION_HALTED

__all__ = ["REASON_CHARS_MAX", "HaltNotices"]

REASON_CHARS_MAX = 2_000

_log = logs.logger(__name__)

_HEADERS: Any = [("kind", PARTITION_HALTED.encode())]
_LOOK_UP_S = 0.5
_AGAIN_S = 30.0


class HaltNotices:
    """Notices of one stage of this member; made on the event loop, appended on its threads."""

    def __init__(self, settings: Settings, codec: Codec, threads: Executor) -> None:
        self._settings = settings
        self._encode = codec.encoder("partition_halted")
        self._threads = threads
        self._given_up = threading.Event()
        self._member = f"{socket.gethostname()}-{os.getpid()}"

    def tell(
        self, stage: str, fold: str, place: tuple[str, int, int], timer: str | None, reason: str
    ) -> None:
        """Append that a stage is halted before the record at `place`; returns at once.

        It is appended again until the broker has it, or `forget` is called.
        """
        topic, partition, offset = place
        notice: PartitionHalted = {
            "stage": stage,
            "fold": fold,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timer": timer,
            "reason": reason[:REASON_CHARS_MAX],
            "member": self._member,
        }
        self._threads.submit(self._append, notice, self._given_up)

    def forget(self) -> None:
        """Append nothing more: whoever takes the partitions says anew where they stand."""
        self._given_up.set()
        self._given_up = threading.Event()

    def _append(self, notice: PartitionHalted, given_up: threading.Event) -> None:
        while not given_up.is_set():
            problem = self._attempt(notice, given_up)
            if problem is None:
                return
            _log.warning(
                "halt_not_told",
                extra={
                    "stage": notice["stage"],
                    "partition": notice["partition"],
                    "reason": problem,
                },
            )
            given_up.wait(_AGAIN_S)

    def _attempt(self, notice: PartitionHalted, given_up: threading.Event) -> str | None:
        """Append once; returns what went wrong, None once it is in the log or given up."""
        told: list[str | None] = []

        def on_ack(error: Any, _: Any) -> None:
            told.append(None if error is None else str(error))

        partition = notice["partition"]
        try:
            producer = make_producer(self._settings, linger_ms=0)
            producer.produce(
                LIFECYCLE,
                self._encode(notice),
                f"{notice['stage']}/{partition}".encode(),
                partition=partition,
                headers=_HEADERS,
                on_delivery=on_ack,
            )
        except (KafkaException, BufferError, BrokerError) as error:
            return str(error)
        while not told and not given_up.is_set():
            producer.poll(_LOOK_UP_S)
        return told[0] if told else None
