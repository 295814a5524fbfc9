"""The action graph: what each step of a dispatch adds to the picture of its event.

A step's graph is drawn from what the step says anyway, so that no fold knows of it;
`streams.core.graph_canvas` says how.  One step makes one update for each dispatch that it is about:
an event that is delivered at once costs two records.

Dispatches that go well look alike: their updates differ in a few ids, and are left to be drawn by
whoever looks at them (`streams.core.pattern`).

Source: SEMANTICS 2.11; seed trigger-dispatcher, "Action-graph updates"; A21, A22.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streams.core import revision
from streams.core.dispatch_index import DispatchIndex
from streams.core.dispatch_records import headers_of
from streams.core.graph_canvas import DRAW, PATTERN, Canvas, draw_trigger, pattern_of_trigger
from streams.core.pattern import Patterned
from streams.core.record import Output, Record, Rejection, Value
from streams.core.state import Answer, DueFn, FoldFn, State
from streams.core.wire import ActionGraphUpdate, EventMatched, RowDispatch

ACTION_GRAPH = "observability.action_graph"
SOURCE = "dispatcher"


class _Drawing:
    """What one step says of one dispatch, whose trace is `trace_id`.

    `begun` is the match that it begins with, if it does; `about` any record about the dispatch.
    `pattern` is what the drawing depends on besides ids; None when it is like no other.
    """

    __slots__ = (
        "about",
        "begun",
        "event_id",
        "has_predicate",
        "headers",
        "pattern",
        "said",
        "trace_id",
    )

    def __init__(
        self,
        about: Mapping[str, Any],
        event_id: str,
        headers: tuple[tuple[str, str], ...],
        trace_id: str | None,
        begun: EventMatched | None = None,
    ) -> None:
        self.about = about
        self.begun = begun
        self.event_id = event_id
        self.headers = headers
        self.trace_id = trace_id
        self.has_predicate = False
        self.said: list[tuple[str, Mapping[str, Any]]] = []
        self.pattern: tuple[Any, ...] | None = None
        if trace_id is not None and about["replay_of_event_id"] is None:
            self.pattern = () if begun is None else pattern_of_trigger(begun)

    def say(self, kind: str, value: Mapping[str, Any], state: State) -> None:
        """Add one thing that is drawn."""
        self.said.append((kind, value))
        if kind == "dispatch_started" and value["attempt"] == 1:
            self.has_predicate = _has_predicate(state, value["binding_key"])
        if self.pattern is not None:
            pattern = PATTERN.get(kind)
            more = None if pattern is None else (kind, self.has_predicate, pattern(value))
            self.pattern = None if more is None else self.pattern + more

    def update(self) -> Output | None:
        """Make the record of what is drawn; None when nothing is."""
        begun, trace_id = self.begun, self.trace_id
        texts = (self.about["dispatch_id"], self.event_id)
        dedupe_key = None if begun is None else begun["event"]["dedupe_key"]
        value: Value
        if self.pattern is None or trace_id is None:
            value = self._draw(*texts, trace_id, dedupe_key)
            if not value["observability"]["action_graph_nodes"]:
                return None
        else:
            ids = (*texts, trace_id) if dedupe_key is None else (*texts, trace_id, dedupe_key)
            value = Patterned(self.pattern, ids, self._draw)
        return Output(ACTION_GRAPH, "action_graph_update", self.event_id, value, None, self.headers)

    def _draw(
        self, dispatch_id: str, event_id: str, trace_id: str | None, dedupe_key: str | None = None
    ) -> ActionGraphUpdate:
        """Draw what is said as if it were of a dispatch with these ids."""
        canvas = Canvas(event_id, trace_id, dedupe_key, has_predicate=self.has_predicate)
        if self.begun is not None:
            draw_trigger(canvas, self.begun)
        for kind, value in self.said:
            DRAW[kind](canvas, value)
        about = self.about
        context = {
            "dispatch_id": dispatch_id,
            "binding_key": about["binding_key"],
            "trigger_id": about["trigger_id"],
        }
        if about["replay_of_event_id"] is not None:
            context["replay_of_event_id"] = about["replay_of_event_id"]
        return {
            "source": SOURCE,
            "trace_id": trace_id,
            "event_id": event_id,
            "observability": {
                "schema_version": 1,
                "action_graph_nodes": [*canvas.nodes.values()],
                "action_graph_edges": canvas.edges,
            },
            "context": context,
        }


def _has_predicate(state: State, binding_key: str) -> bool:
    index: DispatchIndex = state.index
    flow = index.flow(binding_key)
    return flow.when is not None or flow.function is not None


def _begun(state: State, matched: EventMatched) -> _Drawing:
    """Return the drawing of a dispatch that has just begun."""
    event = matched["event"]
    row: RowDispatch | None = state.rows.get(f"d:{matched['dispatch_id']}")
    headers = () if row is None else headers_of(row)
    return _Drawing(matched, event["id"], headers, event["trace_id"], matched)


def _updates(
    state: State, outputs: list[Output], first: _Drawing | None, traces: Mapping[str, str]
) -> list[Output]:
    """Draw a step: one update for each dispatch that it says something of, in that order.

    Args: first: the drawing of a dispatch that has just begun.  traces: known ones, by dispatch.
    """
    drawings: dict[str, _Drawing] = {}
    if first is not None:
        drawings[first.about["dispatch_id"]] = first
    for _, kind, event_id, value, _, headers in outputs:
        if kind not in DRAW:
            continue
        assert value is not None, "these records have values"
        dispatch_id: str = value["dispatch_id"]
        drawing = drawings.get(dispatch_id)
        if drawing is None:
            trace_id = traces.get(dispatch_id) or _trace_of(state, dispatch_id)
            drawing = drawings[dispatch_id] = _Drawing(value, event_id, headers, trace_id)
        elif not drawing.headers:
            drawing.headers = headers
        drawing.say(kind, value, state)
    updates = [drawing.update() for drawing in drawings.values()]
    return [update for update in updates if update is not None]


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
