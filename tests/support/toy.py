"""A stage whose records say what its fold shall do: the engine's tests are about the engine.

Rows: `t:` ticking timers, `l:` timers that merely expire, `p:` plain ones.  What a command does:

| op | the fold |
|---|---|
| put, delete | writes the row |
| emit | appends `count` outputs keyed by `key` |
| show | appends an output that says what the row is |
| list | appends an output per row that starts with `key` |
| raise, reject | raises, refuses |

A timer that is due says so, and is deleted; a text of `again:<ms>` arms it anew, `stuck` leaves it,
`poison` raises.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from schemas.load import SchemaSet, make_schema
from streams.codec import Codec
from streams.core.record import Output, Record, Rejection
from streams.core.state import Answer, Fold, State
from streams.engine import BoundStage
from topology import RowType, Stage, Table, Topic, Topology
from topology.model import TopicRole

SOURCE = "toy.in"
SINK = "toy.out"
DLQ = "toy.dlq"

STAGE = Stage(
    name="toy",
    version=1,
    role="toy",
    source=SOURCE,
    sinks=(SINK,),
    quarantine=DLQ,
    doc="Does as it is told.",
    table=Table(
        name="toys",
        rows=(
            RowType(
                prefix="t",
                schema="row_toy",
                doc="Ticks.",
                due_field="due_ms",
                tally_field="text",
            ),
            RowType(prefix="l", schema="row_toy", doc="Lazy.", due_field="due_ms", ticking=False),
            RowType(prefix="p", schema="row_toy", doc="Plain."),
        ),
    ),
)

TOPOLOGY = Topology(
    topics=(
        Topic(
            name=SOURCE,
            role=TopicRole.MAILBOX,
            key="key",
            doc="Commands.",
            kinds=(("command", "toy_command"), ("twin_a", "toy_said"), ("twin_b", "toy_said")),
        ),
        Topic(
            name=SINK, role=TopicRole.OUTPUT, key="key", doc="Said.", kinds=(("said", "toy_said"),)
        ),
        Topic(
            name=DLQ,
            role=TopicRole.OUTPUT,
            key="position",
            doc="Quarantine.",
            kinds=(("record_quarantined", "record_quarantined"),),
        ),
    ),
    stages=(STAGE,),
)


def _definition(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    listed = [{"name": field, "type": kind} for field, kind in fields]
    return {"type": "record", "name": name, "namespace": "harn.streams", "fields": listed}


@cache
def toy_codec() -> Codec:
    """The shipped schemas and the toy's own."""
    own = {
        "toy_command": _definition(
            "ToyCommand",
            ("op", "string"),
            ("key", "string"),
            ("due_ms", ["null", "long"]),
            ("text", "string"),
            ("count", "int"),
        ),
        "toy_said": _definition("ToySaid", ("text", "string")),
        "row_toy": _definition("RowToy", ("due_ms", ["null", "long"]), ("text", "string")),
    }
    made = {stem: make_schema(stem, definition) for stem, definition in own.items()}
    return Codec(SchemaSet({**SchemaSet.load(), **made}))


def toy_stage(fold: Fold | None = None) -> BoundStage:
    """The stage, bound."""
    return BoundStage(STAGE, fold or FOLD, TOPOLOGY, toy_codec(), 1)


def command(
    op: str, key: str = "", *, due_ms: int | None = None, text: str = "", count: int = 1
) -> dict[str, Any]:
    """A command's value."""
    return {"op": op, "key": key, "due_ms": due_ms, "text": text, "count": count}


def said(key: str, text: str, **options: Any) -> Output:
    """An output of the toy."""
    return Output(SINK, "said", key, {"text": text}, **options)


def _on_record(state: State, record: Record, /) -> Answer:
    value = record.value
    key: str = value["key"]
    match value["op"]:
        case "put":
            state.rows.put(key, {"due_ms": value["due_ms"], "text": value["text"]})
        case "delete":
            state.rows.delete(key)
        case "emit":
            return [said(key, f"{value['text']}{place}") for place in range(value["count"])]
        case "show":
            return [said(key, repr(state.rows.get(key)))]
        case "list":
            return [said(each, row["text"]) for each, row in state.rows.scan(key)]
        case "reject":
            return Rejection("TOY-001", value["text"])
        case op:
            raise RuntimeError(op)
    return ()


def _on_due(state: State, key: str, row: Any, record: Record, /) -> Iterable[Output]:
    text: str = row["text"]
    if text == "poison":
        raise RuntimeError("poison")
    if text.startswith("again:"):
        state.rows.put(key, {**row, "due_ms": state.now_ms + int(text[6:])})
    elif text == "stuck":
        state.rows.put(key, {**row})
    else:
        state.rows.delete(key)
    return [said(key, f"due {row['due_ms']} at {state.now_ms} by {record.offset} ({record.kind})")]


def _build_index(state: State, /) -> frozenset[str]:
    return frozenset(key for key, _ in state.rows.scan("p:"))


FOLD = Fold(on_record=_on_record, on_due=_on_due, build_index=_build_index)
