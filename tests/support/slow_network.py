"""A network between a Kafka client and its broker in which requests can be held up.

It speaks enough of Kafka's protocol to tell requests apart: each frame is a length, then api key,
api version and correlation id.  The broker's own address is replaced in its answers, so that the
client comes back through here.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.eventually import PATIENCE_S

__all__ = [
    "FIND_COORDINATOR",
    "OFFSET_FETCH",
    "PRODUCE",
    "TXN_OFFSET_COMMIT",
    "Held",
    "SlowNetwork",
    "slow_network",
]

PRODUCE = 0
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
TXN_OFFSET_COMMIT = 28


class _Frame(NamedTuple):
    api_key: int
    correlation_id: int
    content: bytes


@dataclass
class Held:
    """A request that was held up; `answer` is what the broker said to it in the end."""

    frame: _Frame
    connection: _Connection
    answer: bytes | None = None


class SlowNetwork:
    """Carries frames both ways; see `hold`, `release` and `cut`."""

    def __init__(self, broker: str) -> None:
        host, _, port = broker.rpartition(":")
        self._broker = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._changed = threading.Condition()
        self._holding: tuple[int, int] | None = None
        self._held: list[Held] = []
        self._connections: list[_Connection] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def hold(self, api_key: int, *, count: int = 1_000) -> None:
        """Hold up the next `count` requests of this kind."""
        with self._changed:
            self._holding = (api_key, count)

    def wait_held(self, count: int = 1) -> list[Held]:
        """Wait until so many requests are held up."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._held) >= count, PATIENCE_S), "none came"
            return list(self._held)

    def release(self) -> list[bytes]:
        """Let all that is held up arrive, late; return the broker's answers."""
        with self._changed:
            self._holding = None
            held = list(self._held)
        for each in held:
            each.connection.to_broker(each.frame.content)
        with self._changed:
            arrived = self._changed.wait_for(lambda: all(each.answer for each in held), PATIENCE_S)
            assert arrived, "the broker did not answer"
        return [each.answer or b"" for each in held]

    def cut(self) -> None:
        """Break the client's connections; what is held up is still on its way to the broker."""
        for connection in list(self._connections):
            connection.cut()

    def close(self) -> None:
        """End everything."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listening.close()
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                upstream = socket.create_connection(self._broker)
                connection = _Connection(client, upstream, self._passes, self._readdress)
                self._connections.append(connection)
                connection.start()

    def _passes(self, connection: _Connection, frame: _Frame) -> bool:
        with self._changed:
            if self._holding is None or self._holding[0] != frame.api_key or not self._holding[1]:
                return True
            self._holding = (frame.api_key, self._holding[1] - 1)
            self._held.append(Held(frame, connection))
            self._changed.notify_all()
            return False

    def _readdress(self, connection: _Connection, answer: bytes) -> bytes:
        (correlation_id,) = struct.unpack_from(">i", answer, 4)
        with self._changed:
            for each in self._held:
                if (each.connection, each.frame.correlation_id) == (connection, correlation_id):
                    each.answer = answer
                    self._changed.notify_all()
        host, port = self._broker
        theirs = host.encode() + port.to_bytes(4)
        ours = host.encode() + int(self.bootstrap.rpartition(":")[2]).to_bytes(4)
        return answer.replace(theirs, ours)


@dataclass(eq=False)
class _Connection:
    """One connection of the client, and the one to the broker that stands for it."""

    client: socket.socket
    upstream: socket.socket
    passes: Callable[[_Connection, _Frame], bool]
    readdress: Callable[[_Connection, bytes], bytes]
    writing: threading.Lock = field(default_factory=threading.Lock)
    threads: list[threading.Thread] = field(default_factory=list[threading.Thread])

    def start(self) -> None:
        for carry in (self._carry_requests, self._carry_answers):
            thread = threading.Thread(target=carry)
            thread.start()
            self.threads.append(thread)

    def to_broker(self, content: bytes) -> None:
        with self.writing:
            self.upstream.sendall(content)

    def cut(self) -> None:
        with contextlib.suppress(OSError):
            self.client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for end in (self.client, self.upstream):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        self.client.close()
        self.upstream.close()

    def _carry_requests(self) -> None:
        with contextlib.suppress(OSError):
            for content in _frames(self.client):
                api_key, _version, correlation_id = struct.unpack_from(">hhi", content, 4)
                if self.passes(self, _Frame(api_key, correlation_id, content)):
                    self.to_broker(content)

    def _carry_answers(self) -> None:
        with contextlib.suppress(OSError):
            for answer in _frames(self.upstream):
                told = self.readdress(self, answer)
                with contextlib.suppress(OSError):  # a client that went need not hear it
                    self.client.sendall(told)


def _frames(end: socket.socket) -> Iterator[bytes]:
    with end.makefile("rb") as reader:
        while len(head := reader.read(4)) == 4:
            yield head + reader.read(int.from_bytes(head))


@contextlib.contextmanager
def slow_network(broker: str) -> Iterator[SlowNetwork]:
    """Provide a network to this broker; `broker` is host:port as the broker names itself."""
    network = SlowNetwork(broker)
    try:
        yield network
    finally:
        network.close()
