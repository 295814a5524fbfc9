"""What an invoker and a process that runs a handler for it say to each other over a socket.

A frame is four bytes of length and a msgpack body.

| to the process | from the process |
|---|---|
| `Run`: call this function | `Began`: it is called now |
| `Cancel`: flip the token of what runs | `Ended`: what it came to |
| | `Logged`: a line for the invoker's log |

The end of the stream is the end of the other: the process then leaves at once, whatever it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from streams.cancel_token import CancelReason
from streams.core.wire import InvokePurpose, TriggerEvent
from streams.edge.executors.outcome import Outcome
from streams.handler_api import Place

__all__ = ["Began", "Cancel", "Ended", "FrameError", "Frames", "Logged", "Run", "frame"]

FRAME_BYTES_MAX = 16_000_000
"""Far above an event and a result, which records bound; what is larger was not written by us."""

_LENGTH_BYTES = 4


class FrameError(Exception):
    """The other side wrote what is no frame: a handler may have found our socket."""


class Run(msgspec.Struct, tag="run", frozen=True):
    """Call a function; nothing else runs in the process."""

    call: int
    place: Place
    purpose: InvokePurpose
    event: TriggerEvent
    context: dict[str, Any]
    """The texts and numbers of the context, by name."""
    result_bytes_max: int
    timeout_ms: int | None


class Cancel(msgspec.Struct, tag="cancel", frozen=True):
    """Flip the token of a call, if it still runs; when it `ends` there, cancel a coroutine, too."""

    call: int
    reason: CancelReason
    ends: bool


class Began(msgspec.Struct, tag="began", frozen=True):
    """The function is imported, and called now."""

    call: int


class Ended(msgspec.Struct, tag="ended", frozen=True):
    """The function ended.  `memory_bytes` is the most that the process ever held."""

    call: int
    outcome: Outcome
    memory_bytes: int


class Logged(msgspec.Struct, tag="logged", frozen=True):
    """A log record, as far as text can hold it."""

    logger: str
    level: int
    event: str
    fields: dict[str, str]


Frame = Run | Cancel | Began | Ended | Logged

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


def frame(said: Frame) -> bytes:
    """Return a frame's bytes."""
    body = _ENCODER.encode(said)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


class Frames:
    """Cuts a stream into frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take what arrived; yield the frames that it completes.  Raises FrameError."""
        self._held += data
        while len(self._held) >= _LENGTH_BYTES:
            size = int.from_bytes(self._held[:_LENGTH_BYTES], "big")
            if size > FRAME_BYTES_MAX:
                raise FrameError(f"a frame of {size} bytes, expected at most {FRAME_BYTES_MAX}")
            end = _LENGTH_BYTES + size
            if len(self._held) < end:
                return
            body = bytes(self._held[_LENGTH_BYTES:end])
            del self._held[:end]
            try:
                yield _DECODER.decode(body)
            except msgspec.MsgspecError as error:
                raise FrameError(f"a frame that is none of ours: {error}") from error
