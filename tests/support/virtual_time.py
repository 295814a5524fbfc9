"""An event loop whose clock moves only when everything waits: hours pass in milliseconds."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ParamSpec

P = ParamSpec("P")


class _VirtualSelector(selectors.SelectSelector):
    """Jumps over every wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0

    def select(self, timeout: float | None = None) -> Any:
        events: Sequence[Any] = super().select(0)
        if not events:
            assert timeout is not None, "nothing will ever happen: the test waits for ever"
            self.now_s += max(0.0, timeout)
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """Single-threaded work only: nothing waits for another thread."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s

    def jump(self, seconds: float) -> None:
        """Let time pass at once, as for a process that was stopped."""
        self._virtual.now_s += seconds


def virtual_time(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run an async test in virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def main() -> None:
            await test(*args, **kwargs)

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(main())

    return run
