"""The registry's partition, and what is applied to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streams.core.wire import BindingDefinition, Policy, SchedulerPolicy
from streams.testing import policy
from tests.support.stage_log import Out, StageLog


class RegistryLog(StageLog):
    """A registry; its own outputs come back to it, as in its mailbox."""

    def __init__(self) -> None:
        super().__init__("registry")
        self.applies = 0

    def apply(
        self,
        *bindings: BindingDefinition,
        namespace: str = "default",
        expected_revision: int | None = None,
        in_force: Policy | None = None,
        apply_id: str | None = None,
    ) -> list[Out]:
        """Apply a manifest, by default compared with the revision in force."""
        self.applies += 1
        revision = self.rows.get("revision", {"revision": 0})["revision"]
        outputs = self.add(
            "manifest_applied",
            {
                "apply_id": apply_id or f"apply_{self.applies}",
                "namespace": namespace,
                "expected_revision": revision if expected_revision is None else expected_revision,
                "bindings": list(bindings),
                "policy": in_force or policy(),
                "applied_by": "test",
            },
        )
        for output in outputs:
            if output.topic == "triggers.registry":
                assert self.add(output.kind, output.value) == []
        return outputs

    def end(
        self, binding_key: str, revision: int, partitions: Sequence[int] = (0, 1), of: int = 2
    ) -> list[Out]:
        """Dispatch partitions say that a binding ended."""
        outputs: list[Out] = []
        for partition in partitions:
            outputs += self.add(
                "binding_ended",
                {
                    "binding_key": binding_key,
                    "revision": revision,
                    "partition": partition,
                    "partitions": of,
                },
            )
        return outputs

    @property
    def states(self) -> dict[str, str]:
        """State by binding key."""
        return {
            key.removeprefix("b:"): row["state"]
            for key, row in self.rows.items()
            if key.startswith("b:")
        }

    def propose(self, wanted: SchedulerPolicy, *, request_id: str = "p1") -> list[Out]:
        """An environment says what it wants of the scheduler."""
        return self._ask(
            "scheduler_policy_proposed",
            {"request_id": request_id, "policy": wanted, "proposed_by": "test"},
        )

    def register(
        self, binding: BindingDefinition, *, namespace: str = "default", request_id: str = "r1"
    ) -> list[Out]:
        """Register a trigger by itself."""
        return self._ask(
            "trigger_registered",
            {
                "request_id": request_id,
                "namespace": namespace,
                "binding": binding,
                "registered_by": "test",
            },
        )

    def drain(
        self, trigger_id: str, *, dynamic_only: bool = False, request_id: str = "r1"
    ) -> list[Out]:
        """Ask that a trigger takes no new event."""
        return self._ask(
            "trigger_drain_requested",
            {
                "request_id": request_id,
                "trigger_id": trigger_id,
                "dynamic_only": dynamic_only,
                "requested_by": "test",
            },
        )

    def _ask(self, kind: str, value: dict[str, Any]) -> list[Out]:
        outputs = self.add(kind, value)
        for output in outputs:
            if output.topic == "triggers.registry":
                assert self.add(output.kind, output.value) == []
        return outputs
