"""A stage declaration bound to its fold and to the codec.

Together they are everything that turns mailbox bytes into committed bytes.
The live agent, the in-memory driver and the auditor build the same `BoundStage` and call the same
functions on it.

Source: DESIGN "The one idea".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from streams.codec import Codec
from streams.core.state import Fold
from topology import Stage, Topology

MAX_RECORD_BYTES = 900_000
"""No fold emits a larger record: the broker's default limit is 1,048,588 with its own framing."""

MAX_INPUT_BYTES = 600_000
"""A larger mailbox record is quarantined: what follows from it must stay under MAX_RECORD_BYTES."""

MAX_DERIVED_BYTES = 650_000
"""The limit for a record that a stage wrote: ids and headers add to what it came from."""

Encode = Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class RowCodec:
    """How rows of one prefix are encoded, and which field arms their timer."""

    prefix: str
    encode: Encode
    due_field: str | None
    ticking: bool


@dataclass(frozen=True, slots=True)
class Sink:
    """How outputs of one (topic, kind) are encoded; `tag` stands for both in the hash chain."""

    topic: str
    kind_header: tuple[str, bytes]
    encode: Encode
    tag: bytes


@dataclass(slots=True)
class BoundStage:
    """One stage ready to fold.

    `partitions` is the partition count of its mailbox.  Building one checks that the declaration
    and the schemas agree.
    """

    declaration: Stage
    fold: Fold
    topology: Topology
    codec: Codec
    partitions: int
    kinds: dict[str, str] = field(init=False)
    kind_of_schema: dict[str, str] = field(init=False)
    sinks: dict[tuple[str, str], Sink] = field(init=False)
    rows: dict[str, RowCodec] = field(init=False)
    fold_header: tuple[str, bytes] = field(init=False)
    encode_journal: Encode = field(init=False)
    encode_position: Encode = field(init=False)

    def __post_init__(self) -> None:
        """Resolve every schema that the stage reads or writes."""
        stage = self.declaration
        self.kinds = {k: s for (t, k), s in self.topology.kinds.items() if t == stage.source}
        by_schema: dict[str, list[str]] = {}
        for kind, schema in self.kinds.items():
            by_schema.setdefault(schema, []).append(kind)
        self.kind_of_schema = {s: kinds[0] for s, kinds in by_schema.items() if len(kinds) == 1}
        writable = {*stage.sinks, stage.quarantine}
        self.sinks = {
            (topic, kind): Sink(
                topic,
                ("kind", kind.encode()),
                self.codec.encoder(schema),
                f"{topic}\0{kind}\0".encode(),
            )
            for (topic, kind), schema in self.topology.kinds.items()
            if topic in writable
        }
        self.rows = {
            row.prefix: RowCodec(
                row.prefix, self.codec.encoder(row.schema), row.due_field, row.ticking
            )
            for row in stage.table.rows
        }
        self.fold_header = ("fold", stage.fold_id.encode())
        self.encode_journal = self.codec.encoder("journal_entry")
        self.encode_position = self.codec.encoder("row_position")
