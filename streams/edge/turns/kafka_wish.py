"""What people want of a session, written so that nothing of it is undone by another process.

A word says all that is wanted, so of two processes that write at once the later one, by the log,
would take back what the earlier one said without having seen it.  Whose word is the later one
reads what came just before it, and writes once more if that changes anything.  So wishes count in
the order of the log: of a pause and its resumption the later one, and a kill in any case.

Source: DESIGN "Topics"; SEMANTICS 8.9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast

from streams.codec import Codec
from streams.core.turn.session import asked, wished
from streams.core.wire import AgentSessionDesired
from streams.edge.turns.key_watch import Watch

__all__ = ["WISH", "Wish", "write_wish"]

WISH = "agent_session_desired"

_WORDS_MAX = 16
"""Each is due to another process that wrote within the same milliseconds."""


class Wish(NamedTuple):
    """What is asked for now; None leaves it as it was.  `now_ms`: ms since the epoch."""

    session_id: str
    pause: bool | None
    kill: bool | None
    now_ms: Callable[[], int]

    def over(self, before: AgentSessionDesired | None) -> AgentSessionDesired:
        """Return all that is wanted after this."""
        return asked(
            self.session_id, before, pause=self.pause, kill=self.kill, now_ms=self.now_ms()
        )


async def write_wish(
    wish: Wish,
    before: AgentSessionDesired | None,
    write: Callable[[AgentSessionDesired], Awaitable[int]],
    watch: Watch,
    codec: Codec,
    read_s: float,
) -> None:
    """Write a wish, again for each word of others that its own would undo.

    Args:   before: what was wanted as far as is known; `watch` began before it was asked for.
            write: makes a word durable, and returns its offset.  read_s: to read it back.
    Raises: whatever `write` does.
    """
    value, last = wish.over(before), -1
    for _ in range(_WORDS_MAX):
        offset = await write(value)
        try:
            async with asyncio.timeout(read_s):
                await watch.until(offset)
        except TimeoutError:
            return  # it is written; the topic cannot be read now, as the view says
        other = watch.last_between(last, offset)
        if other is None or other.value is None:
            return
        theirs = cast("AgentSessionDesired | None", codec.decode_as(WISH, other.value))
        if theirs is None:
            return  # nobody can take it for a wish
        merged = wish.over(wished(value, theirs))
        if _flags(merged) == _flags(value):
            return
        value, last = merged, offset


def _flags(value: AgentSessionDesired) -> tuple[bool, bool]:
    return value["pause_requested"], value["kill_requested"]
