"""All stage apps of a process as one service: started side by side, and one crash is everybody's.

Source: FINDINGS 13.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from mode import Service

from streams.agents.app import StageApp
from streams.collector import look_seldom
from streams.errors import BrokerError, HarnError
from streams.observe import logs

_log = logs.logger(__name__)

_STOP_TIMEOUT_S = 15.0


class StageGroup(Service):
    """Starts and stops stage apps; `failed` resolves with the reason when one of them crashes."""

    def __init__(self, apps: Sequence[StageApp]) -> None:
        super().__init__()
        self.apps = tuple(apps)

    def on_init_dependencies(self) -> list[Service]:
        """Make the apps report their crashes here; they are started by `on_start`, all at once."""
        for app in self.apps:
            app.beacon.reattach(self.beacon)
        return []

    async def on_start(self) -> None:
        """Start every app."""
        look_seldom()
        for app in self.apps:
            _make_folder(app)
            app.finalize()
        await asyncio.gather(*(app.start() for app in self.apps))

    async def on_stop(self) -> None:
        """Stop every app, leave every group, close what the stages hold."""
        stopping = [asyncio.ensure_future(_stop(app)) for app in self.apps]
        if not stopping:
            return
        ended, _ = await asyncio.wait(stopping, timeout=_STOP_TIMEOUT_S)
        for task in ended:
            if (error := task.exception()) is not None:
                _log.warning("stage_stopped_badly", extra={"reason": repr(error)})

    async def crashed(self) -> BaseException:
        """Wait until an app crashes; returns why."""
        await self._crashed.wait()
        reason = self.crash_reason
        return reason if reason is not None else RuntimeError("a stage crashed without a reason")

    async def ready(self) -> None:
        """Wait until every stage owns its partitions."""
        await asyncio.gather(*(app.live.ready.wait() for app in self.apps))


def _make_folder(app: StageApp) -> None:
    """Faust makes its data folder, but not the parents of it."""
    Path(str(app.conf.datadir)).mkdir(parents=True, exist_ok=True)


async def _stop(app: StageApp) -> None:
    await app.stop()
    await app.live.close()


def as_harn_error(reason: BaseException) -> HarnError:
    """The reason of a crash as an error with an exit code."""
    if isinstance(reason, HarnError):
        return reason
    return BrokerError(f"a stage crashed: {reason!r}", retryable=True)
