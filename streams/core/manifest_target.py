"""What a trigger's `handler` may name, and what goes with it.

| handler | takes |
|---|---|
| `fn`, `module::fn` | `executor`, `timeout`, `circuit`; `priority` as a table |
| `worker://<queue>` | `priority` as a text: high, normal or low |
| `a2a://…`, `pool://…` | refused: not built in this release |

Source: SEMANTICS 1.4, 1.5, 1.7, 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.core.handler_uri import HandlerUri
from streams.core.manifest_place import Place
from streams.core.suggestion import no_export
from streams.core.worker_queue import topic_of

__all__ = ["target_rules"]

_NOT_A_QUEUE = ("queues", "requests", "deliveries")
_ENDINGS = (".claims", ".responses")


def target_rules(values: Mapping[str, Any], exports: Mapping[str, str], place: Place) -> None:
    """What holds for a handler, and for the keys that only some handlers take."""
    handler: HandlerUri | None = values["handler"]
    if handler is None:
        return
    field = place.field("handler")
    match handler.kind:
        case "local":
            if handler.module and handler.module not in exports:
                field.refuse(f"is {handler.target!r}, but {no_export(handler.module, exports)}")
            if isinstance(values["priority"], str):
                place.field("priority").refuse(
                    "as a text is a queue's: the handler must be worker://<queue>; a table "
                    "{ key, order } orders the waiters of concurrency"
                )
        case "worker":
            _queue_rules(handler.target, field)
            if values["circuit"] != "park" or values["circuit_max_park"] is not None:
                place.field("circuit").refuse("never opens for a queue: a job is always appended")
        case "a2a" | "pool":
            field.refuse(
                f"is {handler.uri!r}: {handler.kind}:// is not built in this release, which runs "
                "local functions and enqueues jobs (worker://)"
            )


def _queue_rules(queue: str, field: Place) -> None:
    if not queue.isprintable():
        field.refuse(f"is {queue!r}: the name of a queue has no control characters")
    elif topic_of(queue).removeprefix("worker.") in _NOT_A_QUEUE or queue.endswith(_ENDINGS):
        field.refuse(f"names the queue {queue!r}, whose topic {topic_of(queue)} has another use")
