"""The action graph: what each step of a dispatch adds to the picture of its event.

A step's graph is drawn from what the step says anyway, so that no fold knows of it:

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

Nodes replace earlier ones of the same id.  One step makes one update for each dispatch it is about:
an event that is delivered at once costs two records.

Source: SEMANTICS 2.11; seed trigger-dispatcher, "Action-graph updates"; A21, A22.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streams.core import revision
from streams.core.dispatch_index import DispatchIndex
from streams.core.dispatch_records import headers_of
from streams.core.record import Output, Record, Rejection
from streams.core.state import Answer, DueFn, FoldFn, State
from streams.core.wire import (
    ActionGraphEdge,
    ActionGraphNode,
    ActionGraphUpdate,
    EventMatched,
    RowDispatch,
    TriggerEvent,
)
from streams.core.worker_queue import responses_of

ACTION_GRAPH = "observability.action_graph"
SOURCE = "dispatcher"

_ERROR_CHARS_MAX = 300
"""Of an error that several nodes repeat; the attempt's record has more."""

_NOT_COUNTED = frozenset({"invoker_lost", "unresolved"})
"""Reasons of dead letters whose last attempt was started and never finished."""


class _Drawing:
    """What one step adds for one dispatch, whose trace is `trace_id`."""

    __slots__ = (
        "edges",
        "event_id",
        "headers",
        "nodes",
        "outcome",
        "predicate",
        "trace_id",
        "value",
    )

    def __init__(
        self,
        value: Mapping[str, Any],
        event_id: str,
        headers: tuple[tuple[str, str], ...],
        trace_id: str | None,
    ) -> None:
        self.value = value
        self.event_id = event_id
        self.headers = headers
        self.trace_id = trace_id
        self.nodes: dict[str, ActionGraphNode] = {}
        self.edges: list[ActionGraphEdge] = []
        self.outcome = "failed"
        self.predicate = False

    def node(
        self, id_: str, label: str, kind: str, status: str, outcome: str, metadata: dict[str, str]
    ) -> None:
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
        self.edges.append({"from_id": from_id, "to_id": to_id, "kind": kind, "label": label})

    def update(self) -> Output:
        """Make the record of what was drawn."""
        value = self.value
        context = {
            "dispatch_id": value["dispatch_id"],
            "binding_key": value["binding_key"],
            "trigger_id": value["trigger_id"],
        }
        replay_of = value["replay_of_event_id"]
        if replay_of is not None:
            context["replay_of_event_id"] = replay_of
        update: ActionGraphUpdate = {
            "source": SOURCE,
            "trace_id": self.trace_id,
            "event_id": self.event_id,
            "observability": {
                "schema_version": 1,
                "action_graph_nodes": [*self.nodes.values()],
                "action_graph_edges": self.edges,
            },
            "context": context,
        }
        return Output(
            ACTION_GRAPH, "action_graph_update", self.event_id, update, headers=self.headers
        )


# ---------------------------------------------------------------------- ids
def _trigger_id(event_id: str) -> str:
    return f"trigger:{event_id}"


def _id(kind: str, value: Mapping[str, Any], event_id: str, attempt: int | None = None) -> str:
    if attempt is None:
        return f"{kind}:{value['binding_key']}:{event_id}"
    return f"{kind}:{value['binding_key']}:{event_id}:{attempt}"


# ---------------------------------------------------------------------- what steps say
def _started(drawing: _Drawing, value: Mapping[str, Any], state: State) -> None:
    event_id, attempt = drawing.event_id, value["attempt"]
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
    drawing.node(id_, value["target_uri"], kind, "running", outcome, metadata)
    if attempt > 1:
        retry = _id("retry", value, event_id, attempt - 1)
        drawing.edge(retry, id_, "retry", f"attempt {attempt}")
    elif drawing.predicate or _has_predicate(state, value["binding_key"]):
        drawing.edge(_id("predicate", value, event_id), id_, "predicate_gate", "true")
    else:
        drawing.edge(_trigger_id(event_id), id_, "trigger_dispatch")


def _kind_of(value: Mapping[str, Any]) -> str:
    return "worker_enqueue" if value["handler_kind"] == "worker" else "dispatch"


def _has_predicate(state: State, binding_key: str) -> bool:
    index: DispatchIndex = state.index
    flow = index.flow(binding_key)
    return flow.when is not None or flow.function is not None


def _succeeded(drawing: _Drawing, value: Mapping[str, Any], _state: State) -> None:
    attempt, kind = value["attempt"], _kind_of(value)
    metadata = {
        "handler_kind": value["handler_kind"],
        "target_uri": value["target_uri"],
        "attempt": str(attempt),
        "trigger_id": value["trigger_id"],
        "event_id": drawing.event_id,
    }
    outcome = "success"
    if kind == "worker_enqueue":
        outcome = "enqueued"
        queue = value["target_uri"].removeprefix("worker://")
        metadata |= {"queue_name": queue, "response_topic": responses_of(queue)}
    id_ = _id("dispatch", value, drawing.event_id, attempt)
    drawing.node(id_, value["target_uri"], kind, "completed", outcome, metadata)


def _recorded(drawing: _Drawing, value: Mapping[str, Any], _state: State) -> None:
    drawing.outcome = value["outcome"]


def _failed(drawing: _Drawing, value: Mapping[str, Any], _state: State) -> None:
    attempt, outcome = value["attempt"], drawing.outcome
    metadata = {
        "handler_kind": value["handler_kind"],
        "target_uri": value["target_uri"],
        "attempt": str(attempt),
        "trigger_id": value["trigger_id"],
        "event_id": drawing.event_id,
        "error": value["error"][:_ERROR_CHARS_MAX],
    }
    status = "cancelled" if outcome == "cancelled" else "failed"
    id_ = _id("dispatch", value, drawing.event_id, attempt)
    drawing.node(id_, value["target_uri"], _kind_of(value), status, outcome, metadata)


def _retry(drawing: _Drawing, value: Mapping[str, Any], _state: State) -> None:
    upcoming, delay_ms = value["attempt"], value["delay_ms"]
    id_ = _id("retry", value, drawing.event_id, upcoming - 1)
    metadata = {
        "trigger_id": value["trigger_id"],
        "event_id": drawing.event_id,
        "attempt": str(upcoming),
        "delay_ms": str(delay_ms),
        "error": value["error"][:_ERROR_CHARS_MAX],
    }
    label = f"retry in {delay_ms} ms"
    drawing.node(id_, label, "retry", "scheduled", f"attempt_{upcoming}", metadata)
    failed = _id("dispatch", value, drawing.event_id, upcoming - 1)
    drawing.edge(failed, id_, "retry", f"attempt {upcoming}")


def _cancelled(drawing: _Drawing, value: Mapping[str, Any], _state: State) -> None:
    made = value["attempt"]
    if made == 0 or _id("dispatch", value, drawing.event_id, made) in drawing.nodes:
        return  # nothing was begun, or its attempt says so
    id_ = _id("retry", value, drawing.event_id, made)
    metadata = {
        "trigger_id": value["trigger_id"],
        "event_id": drawing.event_id,
        "attempt": str(made + 1),
        "error": value["error"][:_ERROR_CHARS_MAX],
    }
    drawing.node(id_, "retry cancelled", "retry", "cancelled", "cancelled", metadata)


def _evaluated(drawing: _Drawing, value: Mapping[str, Any], _state: State) -> None:
    drawing.predicate = True
    verdict = "true" if value["result"] else "false"
    metadata = {
        "trigger_id": value["trigger_id"],
        "predicate": value["predicate"],
        "result": verdict,
        "cost_usd": f"{value['cost_usd_micros'] / 1_000_000:.6f}",
        "tokens": str(value["tokens"]),
        "latency_ms": str(value["latency_ms"]),
        "cached": "true" if value["cached"] else "false",
        "event_id": drawing.event_id,
    }
    if value["reason"] is not None:
        metadata["reason"] = value["reason"][:_ERROR_CHARS_MAX]
    id_ = _id("predicate", value, drawing.event_id)
    drawing.node(id_, value["predicate"], "predicate", "completed", verdict, metadata)
    drawing.edge(_trigger_id(drawing.event_id), id_, "trigger_dispatch")


def _dead(drawing: _Drawing, value: Mapping[str, Any], _state: State) -> None:
    event_id, count, reason = drawing.event_id, value["attempt_count"], value["reason"]
    id_ = _id("dlq", value, event_id)
    metadata = {
        "trigger_id": value["trigger_id"],
        "event_id": event_id,
        "attempt_count": str(count),
        "final_error": value["final_error"][:_ERROR_CHARS_MAX],
        "error_class": value["error_class"],
    }
    drawing.node(id_, value["trigger_id"], "dlq", "queued", reason, metadata)
    last = count + 1 if reason in _NOT_COUNTED else count
    if last:
        source = _id("dispatch", value, event_id, last)
    elif drawing.predicate:
        source = _id("predicate", value, event_id)
    else:
        source = _trigger_id(event_id)
    drawing.edge(source, id_, "dlq_move", f"{count} attempts" if last else reason)


_DRAW: dict[str, Callable[[_Drawing, Mapping[str, Any], State], None]] = {
    "dispatch_started": _started,
    "dispatch_succeeded": _succeeded,
    "attempt_recorded": _recorded,
    "dispatch_failed": _failed,
    "retry_scheduled": _retry,
    "dispatch_cancelled": _cancelled,
    "predicate.evaluated": _evaluated,
    "dlq_moved": _dead,
}


# ---------------------------------------------------------------------- the trigger
def _begun(state: State, matched: EventMatched) -> _Drawing:
    event = matched["event"]
    row: RowDispatch | None = state.rows.get(f"d:{matched['dispatch_id']}")
    headers = () if row is None else headers_of(row)
    drawing = _Drawing(matched, event["id"], headers, event["trace_id"])
    id_ = _trigger_id(event["id"])
    label = f"{event['provider']}:{event['kind']}"
    metadata = _metadata_of(event)
    original = matched["replay_of_event_id"]
    if original is not None:
        origin = _trigger_id(original)
        drawing.node(origin, label, "trigger", "historical", "replayed_from", metadata)
        drawing.edge(origin, id_, "replay_chain", "replay chain")
    drawing.node(id_, label, "trigger", "received", "received", metadata)
    return drawing


def _metadata_of(event: TriggerEvent) -> dict[str, str]:
    metadata = {
        "provider": event["provider"],
        "event_kind": event["kind"],
        "signature_status": event["signature_state"],
    }
    if event["dedupe_key"] is not None:
        metadata["dedupe_key"] = event["dedupe_key"]
    return metadata


# ---------------------------------------------------------------------- updates
def _updates(
    state: State, outputs: list[Output], first: _Drawing | None, traces: Mapping[str, str]
) -> list[Output]:
    """Draw a step: one update for each dispatch that it says something of, in that order.

    Args: first: the drawing of a dispatch that has just begun.  traces: known ones, by dispatch.
    """
    drawings: dict[str, _Drawing] = {}
    if first is not None:
        drawings[first.value["dispatch_id"]] = first
    for _, kind, event_id, value, _, headers in outputs:
        draw = _DRAW.get(kind)
        if draw is None:
            continue
        assert value is not None, "these records have values"
        dispatch_id: str = value["dispatch_id"]
        drawing = drawings.get(dispatch_id)
        if drawing is None:
            trace_id = traces.get(dispatch_id) or _trace_of(state, dispatch_id)
            drawing = drawings[dispatch_id] = _Drawing(value, event_id, headers, trace_id)
        elif not drawing.headers:
            drawing.headers = headers
        draw(drawing, value, state)
    return [drawing.update() for drawing in drawings.values() if drawing.nodes]


def _trace_of(state: State, dispatch_id: str) -> str | None:
    """Return the trace of a dispatch that lives; of another one's that this step ended, None."""
    row: RowDispatch | None = state.rows.get(f"d:{dispatch_id}")
    return None if row is None else row["trace_id"]


def drawn(on_record: FoldFn, /) -> FoldFn:
    """Return a fold that also says what each record adds to the action graph."""

    def fold(state: State, record: Record, /) -> Answer:
        kind = record.kind
        traces: dict[str, str] = {}
        if kind == "invocation_completed":
            dispatch_id = record.value["dispatch_id"]
            row: RowDispatch | None = state.rows.get(f"d:{dispatch_id}")
            if row is not None:
                traces[dispatch_id] = row["trace_id"]
        answer = on_record(state, record)
        if isinstance(answer, Rejection):
            return answer
        outputs = [*answer]
        begins = kind == "event_matched"
        if not (outputs or begins) or not revision.policy_in_force(state)["action_graph"]:
            return outputs
        first = _begun(state, record.value) if begins else None
        return outputs + _updates(state, outputs, first, traces)

    return fold


def drawn_due(on_due: DueFn, /) -> DueFn:
    """Return what `drawn` does for a row whose time has come."""

    def fold(state: State, key: str, row: Any, record: Record, /) -> Iterable[Output]:  # noqa: ANN401 - the row's TypedDict, by its prefix
        outputs = [*on_due(state, key, row, record)]
        if not outputs or not revision.policy_in_force(state)["action_graph"]:
            return outputs
        traces = {row["dispatch_id"]: row["trace_id"]} if key.startswith("d:") else {}
        return outputs + _updates(state, outputs, None, traces)

    return fold
