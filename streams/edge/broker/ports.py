"""Loopback ports for a broker: its own every time, as long as nobody else took them.

They lie below the range that systems give to outgoing connections.  A client that retries towards
a stopped broker inside that range can be given the broker's own port as its source, connect to
itself, and keep the broker from coming back.
"""

from __future__ import annotations

import errno
import socket
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

from streams.errors import BrokerError

__all__ = ["LOOPBACK", "is_free", "pick_ports"]

LOOPBACK = "127.0.0.1"

_FIRST, _LAST = 20_000, 31_999


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now.

    Connections that a stopped broker left in TIME_WAIT do not count, as they do not for Java.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise
        return True


def pick_ports(folder: Path, count: int, *, besides: Collection[int] = ()) -> list[int]:
    """Return `count` free ports; the same `folder` gets the same ones unless they are taken.

    Raises BrokerError when the whole range is taken.
    """
    picked: list[int] = []
    for port in _from(zlib.crc32(str(folder).encode())):
        if port not in besides and is_free(port):
            picked.append(port)
            if len(picked) == count:
                return picked
    raise BrokerError(
        f"no free port for the embedded Kafka: {_FIRST} to {_LAST} on {LOOPBACK} are all taken",
        retryable=True,
        remedy="stop what listens there, or name a port: `harn broker start --port`",
    )


def _from(seed: int) -> Iterator[int]:
    """Every port of the range once, starting at one that follows from `seed`."""
    size = _LAST - _FIRST + 1
    return (_FIRST + (seed + step) % size for step in range(size))
