"""The registry's log as a running registry writes it, without one."""

from __future__ import annotations

from typing import Any

from streams.codec import Codec
from streams.core.wire import BindingDefinition
from streams.edge.registry_view import RegistryView, fold_registry
from streams.edge.topic_reader import ReadRecord
from streams.engine import Memory, fold_batch, settle
from streams.testing import policy

CODEC = Codec()


class Registry:
    """The registry's log, with what the registry answers to it."""

    def __init__(self) -> None:
        self.records: list[ReadRecord] = []

    def add(self, kind: str, value: dict[str, Any] | bytes) -> ReadRecord:
        record = ReadRecord(
            partition=0,
            offset=len(self.records),
            timestamp=1_000 + len(self.records),
            key=b"default",
            value=value if isinstance(value, bytes) else CODEC.encode(kind, value),
            headers=[("kind", kind.encode())],
        )
        self.records.append(record)
        return record

    def apply(self, *bindings: BindingDefinition, revision: int) -> None:
        """Append an apply, and what a running registry answers."""
        memory: Memory = self.view().memory
        request = self.add(
            "manifest_applied",
            {
                "apply_id": f"apply_{len(self.records)}",
                "namespace": "default",
                "expected_revision": revision,
                "bindings": list(bindings),
                "policy": policy(),
                "applied_by": "test",
            },
        )
        step = fold_batch(memory, [request])
        settle(memory, step)
        for output in step.outputs:
            if output.topic == "triggers.registry":
                assert output.value is not None, "the registry deletes nothing there"
                self.add(dict(output.headers)["kind"].decode(), output.value)

    def view(self) -> RegistryView:
        return fold_registry(self.records, CODEC)
