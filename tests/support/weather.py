"""A pipeline's life by a seed: events, repeats, revisions, failing and slow handlers, chaos."""

from __future__ import annotations

from typing import Any

from streams.core.wire import BindingDefinition
from streams.testing import Chaos, PipelineDriver, binding, event, policy, retry_policy
from streams.testing.chance import Chance
from tests.support.stage_log import CODEC

EVENTS = 24
LEASE_MS = 4_000
_KINDS = ("opened", "closed", "pushed")
_PROVIDERS = ("github", "github", "slack")
_DURATIONS_MS = (0, 0, 3, 700, 2_500, 12_000)


def storm(seed: int, *, events: int = EVENTS, chaos: Chaos | None = None) -> PipelineDriver:
    """Live through it to the end; everything is decided by the seed."""
    chance = Chance(seed * 2 + 1)
    driver = PipelineDriver(
        handlers={"steady": _steady, "flaky": _flaky, "broken": _broken},
        partitions=1 + chance.below(3),
        invokers=1 + chance.below(3),
        outstanding_max=1 + chance.below(8),
        duration_ms=lambda context: _DURATIONS_MS[_digit(context.attempt_id, 6)],
        policy=policy(lease_ms=LEASE_MS),
        chaos=chaos or Chaos.storm(seed),
        codec=CODEC,
    )
    driver.apply(_manifest(chance))
    for number in range(events):
        driver.emit(
            event(
                f"e{number}",
                provider=chance.pick(_PROVIDERS),
                kind=chance.pick(_KINDS),
                payload=chance.below(4),
                dedupe_key=f"delivery-{chance.below(events)}" if chance.happens(300) else None,
                tenant_id=chance.pick((None, "acme", "globex")),
            ),
            headers={"traceparent": f"00-{number:032x}-{seed:016x}-01"},
        )
        for _ in range(chance.below(14)):
            driver.step()
        if chance.happens(120):
            driver.apply_soon(_manifest(chance))
    driver.finish()
    return driver


def _manifest(chance: Chance) -> list[BindingDefinition]:
    """Some of the bindings, each in one of its forms."""
    retries = (
        retry_policy("immediate", max_attempts=3),
        retry_policy("svix", max_attempts=2),
        retry_policy("linear", max_attempts=4, delay_ms=1_500),
    )
    found: list[BindingDefinition] = []
    for trigger_id, handler, events in (
        ("all", "steady", ()),
        ("opened", "flaky", ("opened",)),
        ("pushed", "broken", ("pushed", "closed")),
    ):
        if chance.happens(850):
            retry = retries[chance.below(3)]
            found.append(binding(trigger_id, handler=handler, events=events, retry=retry))
    return found


def _digit(text: str, base: int) -> int:
    return sum(text.encode()) % base


def _steady(_event: Any) -> str:
    return "done"


def _flaky(event: Any, context: Any) -> dict[str, int]:
    if context.attempt <= event.payload:
        raise RuntimeError(f"attempt {context.attempt}")
    return {"after": context.attempt}


def _broken(_event: Any) -> None:
    raise ValueError("never")
