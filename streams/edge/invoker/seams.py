"""What an invoker meets besides the broker, and what a test puts in its place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from streams.edge.executors.strays import STRAYS_MAX
from streams.edge.invoker.cancels import Cancels
from streams.edge.invoker.intake import Intake
from streams.handler_api import Handler

__all__ = ["MAILBOX", "HandlerSource", "Seams"]

MAILBOX = "trigger.dispatches"


class HandlerSource(Protocol):
    """Where references become handlers."""

    def resolve(self, reference: str, trigger_id: str, /) -> Handler | None:
        """Return the handler, to run as the trigger wants it; None when it is not loaded here."""
        ...


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """The world by default.

    `intake` and `cancels` are where intents and cancels come from, None for Kafka; `mailbox` is
    where outcomes go; `clock` is wall time, ms; fewer than `strays_max` handlers that do not end
    are borne; `exit_now` ends a process that is stuck.
    """

    intake: Intake | None = None
    cancels: Cancels | None = None
    mailbox: str = MAILBOX
    clock: Callable[[], int] = _wall_ms
    strays_max: int = STRAYS_MAX
    exit_now: Callable[[int], object] = os._exit
