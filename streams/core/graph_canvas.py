"""What is drawn of a step: a node or an edge for each thing that it says.

| the step says | node | edge |
|---|---|---|
| `event_matched` came | trigger, received | |
| … and it is a replay | original trigger, historical | replay_chain: original → replay |
| `predicate.evaluated` | predicate | trigger_dispatch: trigger → predicate |
| `dispatch_started` 1 | dispatch, running | trigger_dispatch, or predicate_gate |
| `dispatch_started` n | dispatch, running | retry: retry → dispatch |
| `dispatch_succeeded` | dispatch, completed | |
| `dispatch_failed` | dispatch, failed or cancelled | |
| `retry_scheduled` | retry, scheduled | retry: dispatch → retry |
| `dispatch_cancelled` while it waits | retry, cancelled | |
| `dlq_moved` | dlq, queued | dlq_move: dispatch, predicate or trigger → dlq |

Nodes replace earlier ones of the same id.  A drawing takes the ids of its event from the canvas,
and nothing else of the event's own from anywhere: that is what `streams.core.pattern` rests on.

Source: SEMANTICS 2.11; seed trigger-dispatcher, "Action-graph updates"; A21, A22.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from streams.core.wire import ActionGraphEdge, ActionGraphNode, EventMatched
from streams.core.worker_queue import responses_of

_ERROR_CHARS_MAX = 300
"""Of an error that several nodes repeat; the attempt's record has more."""

_NOT_COUNTED = frozenset({"invoker_lost", "unresolved"})
"""Reasons of dead letters whose last attempt was started and never finished."""


class Canvas:
    """Nodes and edges of one dispatch, of the event and the trace that it is given.

    `has_predicate` is whether its binding asks one, `predicate` whether its verdict has been drawn.
    """

    __slots__ = (
        "dedupe_key",
        "edges",
        "event_id",
        "has_predicate",
        "nodes",
        "outcome",
        "predicate",
        "trace_id",
    )

    def __init__(
        self, event_id: str, trace_id: str | None, dedupe_key: str | None, *, has_predicate: bool
    ) -> None:
        self.event_id = event_id
        self.trace_id = trace_id
        self.dedupe_key = dedupe_key
        self.has_predicate = has_predicate
        self.nodes: dict[str, ActionGraphNode] = {}
        self.edges: list[ActionGraphEdge] = []
        self.outcome = "failed"
        self.predicate = False

    def node(
        self, id_: str, label: str, kind: str, status: str, outcome: str, metadata: dict[str, str]
    ) -> None:
        """Draw a node, in place of an earlier one of the same id."""
        self.nodes[id_] = {
            "id": id_,
            "label": label,
            "kind": kind,
            "status": status,
            "outcome": outcome,
            "trace_id": self.trace_id,
            "stage_id": None,
            "node_id": None,
            "worker_id": None,
            "run_id": None,
            "run_path": None,
            "metadata": metadata,
        }

    def edge(self, from_id: str, to_id: str, kind: str, label: str | None = None) -> None:
        """Draw an edge."""
        self.edges.append({"from_id": from_id, "to_id": to_id, "kind": kind, "label": label})


# ---------------------------------------------------------------------- ids
def _trigger_id(event_id: str) -> str:
    return f"trigger:{event_id}"


def _id(kind: str, value: Mapping[str, Any], event_id: str, attempt: int | None = None) -> str:
    if attempt is None:
        return f"{kind}:{value['binding_key']}:{event_id}"
    return f"{kind}:{value['binding_key']}:{event_id}:{attempt}"


# ---------------------------------------------------------------------- what steps say
def _started(canvas: Canvas, value: Mapping[str, Any]) -> None:
    event_id, attempt = canvas.event_id, value["attempt"]
    id_ = _id("dispatch", value, event_id, attempt)
    outcome = f"attempt_{attempt}"
    metadata = {
        "handler_kind": value["handler_kind"],
        "target_uri": value["target_uri"],
        "attempt": str(attempt),
        "trigger_id": value["trigger_id"],
        "event_id": event_id,
    }
    kind = _kind_of(value)
    canvas.node(id_, value["target_uri"], kind, "running", outcome, metadata)
    if attempt > 1:
        retry = _id("retry", value, event_id, attempt - 1)
        canvas.edge(retry, id_, "retry", f"attempt {attempt}")
    elif canvas.has_predicate:
        canvas.edge(_id("predicate", value, event_id), id_, "predicate_gate", "true")
    else:
        canvas.edge(_trigger_id(event_id), id_, "trigger_dispatch")


def _kind_of(value: Mapping[str, Any]) -> str:
    return "worker_enqueue" if value["handler_kind"] == "worker" else "dispatch"


def _succeeded(canvas: Canvas, value: Mapping[str, Any]) -> None:
    attempt, kind = value["attempt"], _kind_of(value)
    metadata = {
        "handler_kind": value["handler_kind"],
        "target_uri": value["target_uri"],
        "attempt": str(attempt),
        "trigger_id": value["trigger_id"],
        "event_id": canvas.event_id,
    }
    outcome = "success"
    if kind == "worker_enqueue":
        outcome = "enqueued"
        queue = value["target_uri"].removeprefix("worker://")
        metadata |= {"queue_name": queue, "response_topic": responses_of(queue)}
    id_ = _id("dispatch", value, canvas.event_id, attempt)
    canvas.node(id_, value["target_uri"], kind, "completed", outcome, metadata)


def _recorded(canvas: Canvas, value: Mapping[str, Any]) -> None:
    canvas.outcome = value["outcome"]


def _failed(canvas: Canvas, value: Mapping[str, Any]) -> None:
    attempt, outcome = value["attempt"], canvas.outcome
    metadata = {
        "handler_kind": value["handler_kind"],
        "target_uri": value["target_uri"],
        "attempt": str(attempt),
        "trigger_id": value["trigger_id"],
        "event_id": canvas.event_id,
        "error": value["error"][:_ERROR_CHARS_MAX],
    }
    status = "cancelled" if outcome == "cancelled" else "failed"
    id_ = _id("dispatch", value, canvas.event_id, attempt)
    canvas.node(id_, value["target_uri"], _kind_of(value), status, outcome, metadata)


def _retry(canvas: Canvas, value: Mapping[str, Any]) -> None:
    upcoming, delay_ms = value["attempt"], value["delay_ms"]
    id_ = _id("retry", value, canvas.event_id, upcoming - 1)
    metadata = {
        "trigger_id": value["trigger_id"],
        "event_id": canvas.event_id,
        "attempt": str(upcoming),
        "delay_ms": str(delay_ms),
        "error": value["error"][:_ERROR_CHARS_MAX],
    }
    label = f"retry in {delay_ms} ms"
    canvas.node(id_, label, "retry", "scheduled", f"attempt_{upcoming}", metadata)
    failed = _id("dispatch", value, canvas.event_id, upcoming - 1)
    canvas.edge(failed, id_, "retry", f"attempt {upcoming}")


def _cancelled(canvas: Canvas, value: Mapping[str, Any]) -> None:
    made = value["attempt"]
    if made == 0 or _id("dispatch", value, canvas.event_id, made) in canvas.nodes:
        return  # nothing was begun, or its attempt says so
    id_ = _id("retry", value, canvas.event_id, made)
    metadata = {
        "trigger_id": value["trigger_id"],
        "event_id": canvas.event_id,
        "attempt": str(made + 1),
        "error": value["error"][:_ERROR_CHARS_MAX],
    }
    canvas.node(id_, "retry cancelled", "retry", "cancelled", "cancelled", metadata)


def _evaluated(canvas: Canvas, value: Mapping[str, Any]) -> None:
    canvas.predicate = True
    verdict = "true" if value["result"] else "false"
    metadata = {
        "trigger_id": value["trigger_id"],
        "predicate": value["predicate"],
        "result": verdict,
        "cost_usd": f"{value['cost_usd_micros'] / 1_000_000:.6f}",
        "tokens": str(value["tokens"]),
        "latency_ms": str(value["latency_ms"]),
        "cached": "true" if value["cached"] else "false",
        "event_id": canvas.event_id,
    }
    if value["reason"] is not None:
        metadata["reason"] = value["reason"][:_ERROR_CHARS_MAX]
    id_ = _id("predicate", value, canvas.event_id)
    canvas.node(id_, value["predicate"], "predicate", "completed", verdict, metadata)
    canvas.edge(_trigger_id(canvas.event_id), id_, "trigger_dispatch")


def _dead(canvas: Canvas, value: Mapping[str, Any]) -> None:
    event_id, count, reason = canvas.event_id, value["attempt_count"], value["reason"]
    id_ = _id("dlq", value, event_id)
    metadata = {
        "trigger_id": value["trigger_id"],
        "event_id": event_id,
        "attempt_count": str(count),
        "final_error": value["final_error"][:_ERROR_CHARS_MAX],
        "error_class": value["error_class"],
    }
    canvas.node(id_, value["trigger_id"], "dlq", "queued", reason, metadata)
    last = count + 1 if reason in _NOT_COUNTED else count
    if last:
        source = _id("dispatch", value, event_id, last)
    elif canvas.predicate:
        source = _id("predicate", value, event_id)
    else:
        source = _trigger_id(event_id)
    canvas.edge(source, id_, "dlq_move", f"{count} attempts" if last else reason)


DRAW: dict[str, Callable[[Canvas, Mapping[str, Any]], None]] = {
    "dispatch_started": _started,
    "dispatch_succeeded": _succeeded,
    "attempt_recorded": _recorded,
    "dispatch_failed": _failed,
    "retry_scheduled": _retry,
    "dispatch_cancelled": _cancelled,
    "predicate.evaluated": _evaluated,
    "dlq_moved": _dead,
}
"""How the things that a step may say are drawn, by the kind of their record."""

_ATTEMPT = itemgetter("attempt", "binding_key", "trigger_id", "handler_kind", "target_uri")

PATTERN: dict[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]] = {
    "dispatch_started": _ATTEMPT,
    "dispatch_succeeded": _ATTEMPT,
    "attempt_recorded": itemgetter("attempt", "outcome"),
    "predicate.evaluated": itemgetter(
        *("binding_key", "trigger_id", "predicate", "result", "reason"),
        *("cost_usd_micros", "tokens", "latency_ms", "cached"),
    ),
}
"""What a drawing depends on besides the canvas: of what goes well, which is most of it."""


# ---------------------------------------------------------------------- the trigger
def draw_trigger(canvas: Canvas, matched: EventMatched) -> None:
    """Draw the trigger of a dispatch that begins, and the one that it replays."""
    event = matched["event"]
    id_ = _trigger_id(canvas.event_id)
    label = f"{event['provider']}:{event['kind']}"
    metadata = {
        "provider": event["provider"],
        "event_kind": event["kind"],
        "signature_status": event["signature_state"],
    }
    if canvas.dedupe_key is not None:
        metadata["dedupe_key"] = canvas.dedupe_key
    original = matched["replay_of_event_id"]
    if original is not None:
        origin = _trigger_id(original)
        canvas.node(origin, label, "trigger", "historical", "replayed_from", metadata)
        canvas.edge(origin, id_, "replay_chain", "replay chain")
    canvas.node(id_, label, "trigger", "received", "received", metadata)


def pattern_of_trigger(matched: EventMatched) -> tuple[Any, ...]:
    """Return what the drawing of a trigger that replays none depends on besides the canvas."""
    event = matched["event"]
    return (
        matched["binding_key"],
        matched["trigger_id"],
        event["provider"],
        event["kind"],
        event["signature_state"],
    )
