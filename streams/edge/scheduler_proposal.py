"""What the environment of a process that hosts the scheduler wants of it, said once at its start.

It is appended only when it differs from what an environment proposed last, so that members with the
same variables come and go without a word; the registry compares once more.

Source: SEMANTICS 6.1; DESIGN law 3.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from streams.codec import Codec
from streams.core import registry_policy, scheduler_policy
from streams.core.wire import SchedulerPolicy, SchedulerPolicyProposed
from streams.edge.follower import BACKOFF_FIRST_S, BACKOFF_MAX_S, Follower
from streams.edge.ingest.trace import new_uuid
from streams.edge.registry_request import ANSWER_S, RegistryAnswer, ask_registry, who
from streams.edge.registry_view import read_registry
from streams.errors import BrokerError, ConfigError
from streams.observe import logs
from streams.settings import Settings
from streams.settings_scheduler import read_weights

__all__ = ["SchedulerProposal", "differences", "policy_of_environment", "propose_policy"]

_LOG = logs.logger(__name__)
_PREFIX = "scheduler_"
_TRY_S = 5.0


class SchedulerProposal(Follower):
    """Proposes the environment's policy once, as soon as there is a registry; an `EdgeService`."""

    name = "scheduler-proposal"

    def __init__(self, settings: Settings, codec: Codec) -> None:
        super().__init__(settings)
        self._codec = codec

    async def start(self) -> None:
        """Begin to propose; the registry may come later."""
        self._begin(self._propose())

    async def stop(self) -> None:
        """Propose no more; idempotent."""
        await self._end()
        self._thread.shutdown(wait=False)

    async def _propose(self) -> None:
        backoff_s = BACKOFF_FIRST_S
        while not self._stopping.is_set():
            try:
                await self._in_thread(
                    partial(propose_policy, self._settings, self._codec, timeout_s=_TRY_S)
                )
            except BrokerError as error:
                # A proposal that was appended and not answered is known the next time.
                extra = {"reason": str(error), "wait_s": backoff_s}
                _LOG.warning("scheduler_proposal_delayed", extra=extra)
                await self._pause(backoff_s)
                backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
            else:
                return


def policy_of_environment(settings: Settings) -> SchedulerPolicy:
    """Return the scheduler's policy as the environment has it."""
    values: dict[str, Any] = {
        name: getattr(settings, f"{_PREFIX}{name}") for name in scheduler_policy.DEFAULT
    }
    return cast("SchedulerPolicy", {**values, "weights": read_weights(values["weights"])})


def propose_policy(
    settings: Settings, codec: Codec, *, timeout_s: float = ANSWER_S
) -> RegistryAnswer | None:
    """Propose the environment's policy; None when it is what one proposed last.  Blocks.

    A member whose environment differs from the policy in force says so in its log.
    Raises: ConfigError when the registry refuses it; TopologyError, BrokerError.
    """
    view = read_registry(settings, codec)
    proposed = policy_of_environment(settings)
    if proposed == registry_policy.last_proposal(view.memory.state):
        present = scheduler_policy.in_force(view.policy)
        differing = differences(proposed, present)
        if differing:
            extra = {"differs": "; ".join(differing), "revision": view.revision}
            _LOG.warning("scheduler_policy_differs", extra=extra)
        return None
    request: SchedulerPolicyProposed = {
        "request_id": f"scheduler_{new_uuid()}",
        "policy": proposed,
        "proposed_by": who(),
    }
    answer = ask_registry(
        settings,
        codec,
        "scheduler_policy_proposed",
        codec.encode("scheduler_policy_proposed", request),
        key="scheduler",
        request_id=request["request_id"],
        what="proposal of a scheduler policy",
        timeout_s=timeout_s,
    )
    if answer.answer == "invalid":
        raise ConfigError(f"the registry refuses the scheduler's policy: {answer.reason}")
    _LOG.info("scheduler_policy_proposed", extra={"answer": answer.answer})
    return answer


def differences(wanted: SchedulerPolicy, present: SchedulerPolicy, /) -> list[str]:
    """Say where two policies differ, for people."""
    return [
        f"{name} is {present[name]!r}, this environment says {wanted[name]!r}"
        for name in scheduler_policy.DEFAULT
        if wanted[name] != present[name]
    ]
