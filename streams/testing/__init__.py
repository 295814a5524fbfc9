"""Test a pipeline without Kafka: the in-memory driver and record builders, shipped for users.

See `PipelineDriver` for an example.
"""

from __future__ import annotations

from streams.testing.builders import binding, envelope, event, policy, retry_policy
from streams.testing.chaos import Chaos
from streams.testing.driver import PipelineDriver, Refused
from streams.testing.invoker import Run
from streams.testing.memory_kafka import Fenced, MemoryKafka
from streams.testing.owner import CrashPoint, StageOwner
from streams.testing.seen import Seen

__all__ = [
    "Chaos",
    "CrashPoint",
    "Fenced",
    "MemoryKafka",
    "PipelineDriver",
    "Refused",
    "Run",
    "Seen",
    "StageOwner",
    "binding",
    "envelope",
    "event",
    "policy",
    "retry_policy",
]
