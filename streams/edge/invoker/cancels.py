"""Cancel intents: every invoker hears all of them, from the moment it starts.

Who runs the invocation ends it.  One that has not come is remembered for a while, so that it ends
before it begins: its intent may be on its way, here or elsewhere.  What an invoker never heard
costs a run whose outcome dispatch does not count.

Source: DESIGN "Topics" (`trigger.invocations.cancels`); SEMANTICS 2.5.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streams.codec import Codec, DecodeError
from streams.core import bounds
from streams.core.wire import CancelInvocation
from streams.edge.invoker.execution import ExecutionKey
from streams.errors import BrokerError
from streams.kafka import ends_of, make_consumer
from streams.observe import logs
from streams.settings import Settings

__all__ = ["CANCELS", "CancelBook", "CancelListener", "Cancels", "KafkaCancels"]

CANCELS = "trigger.invocations.cancels"

_LOG = logs.logger(__name__)

REMEMBERED_MAX = 10_000
REMEMBERED_S = 3_600.0
"""An intent that waits for longer than an hour runs although it was cancelled; its outcome does not
count."""

_POLL_S = 0.5
_START_TIMEOUT_S = 30.0


class CancelListener(Protocol):
    """What is told of cancels, on the event loop."""

    def cancel(self, said: CancelInvocation) -> None:
        """Cancel an invocation."""
        ...

    def fail(self, error: BaseException) -> None:
        """No more cancels will come."""
        ...


class Cancels(Protocol):
    """A source of cancels."""

    async def start(self, listener: CancelListener) -> None:
        """Begin to tell."""
        ...

    async def stop(self) -> None:
        """Tell nothing more."""
        ...


class CancelBook:
    """Cancels of invocations that have not come; bounded, the oldest is forgotten first.

    Args:    clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reasons: OrderedDict[ExecutionKey, tuple[float, str]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._reasons)

    def put(self, key: ExecutionKey, reason: str) -> None:
        """Remember a cancel."""
        now_s = self._clock()
        self._reasons[key] = now_s, bounds.shortened(reason)
        self._reasons.move_to_end(key)
        while self._reasons:
            oldest, (put_s, _) = next(iter(self._reasons.items()))
            if len(self._reasons) <= REMEMBERED_MAX and put_s > now_s - REMEMBERED_S:
                break
            del self._reasons[oldest]

    def take(self, key: ExecutionKey) -> str | None:
        """Return why an invocation was cancelled, forgetting it; None when it was not."""
        found = self._reasons.pop(key, None) if self._reasons else None
        if found is None or found[0] <= self._clock() - REMEMBERED_S:
            return None
        return found[1]


class KafkaCancels:
    """The topic, read from its end on a thread of its own, without a group."""

    def __init__(self, settings: Settings, codec: Codec, topic: str = CANCELS) -> None:
        self._settings = settings
        self._codec = codec
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self._listener: CancelListener | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    async def start(self, listener: CancelListener) -> None:
        """Stand at the end of the topic.  Raises BrokerError when it cannot be read."""
        self._listener = listener
        consumer = await asyncio.to_thread(self._at_the_end)
        self._thread = threading.Thread(
            target=self._read, args=(consumer,), name="invoker-cancels", daemon=True
        )
        self._thread.start()

    async def stop(self) -> None:
        """Tell nothing more."""
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _at_the_end(self) -> Consumer:
        consumer = make_consumer(self._settings, group_id=None, fetch_wait_max_ms=500)
        try:
            found = consumer.list_topics(self._topic, timeout=_START_TIMEOUT_S)
            problem = found.topics[self._topic].error
            if problem is not None:
                raise KafkaException(problem)
            place = TopicPartition(self._topic, 0)
            _, end = ends_of(consumer, place, _START_TIMEOUT_S)
            consumer.assign([TopicPartition(self._topic, 0, end)])
        except KafkaException as error:
            consumer.close()
            raise self._error(error.args[0]) from error
        return consumer

    def _error(self, error: KafkaError) -> BrokerError:
        missing = error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        return BrokerError(
            f"{self._topic}: invoker cannot read: {error.str()}",
            retryable=error.retriable(),
            remedy="create it with `harn topology apply`" if missing else None,
        )

    def _read(self, consumer: Consumer) -> None:
        assert self._listener is not None, "start names the listener"
        try:
            while not self._stopping.is_set():
                message = consumer.poll(_POLL_S)
                said = None if message is None else self._said(message)
                if said is not None:
                    self._loop.call_soon_threadsafe(self._listener.cancel, said)
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._listener.fail, error)
            raise
        finally:
            consumer.close()

    def _said(self, message: Message) -> CancelInvocation | None:
        """Return a cancel; None, and a line in the log, for what is none."""
        error = message.error()
        if error is not None:
            if error.fatal():
                raise self._error(error)
            _LOG.warning("invoker_cancels_delayed", extra={"reason": str(error)})
            return None
        try:
            schema, value = self._codec.decode(message.value() or b"")
        except DecodeError as problem:
            reason = str(problem)
        else:
            said: Any = value
            reason = f"schema {schema!r}, expected 'cancel_invocation'"
            if schema == "cancel_invocation":
                names = (("dispatch_id", said["dispatch_id"], bounds.ID_CHARS_MAX),)
                reason = bounds.text_problem(names)
                if reason is None:
                    return said
        position = f"{self._topic}/0/{message.offset()}"
        _LOG.error("invoker_unusable_cancel", extra={"position": position, "reason": reason})
        return None
