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
from streams.engine.forms import Forms
from topology import Stage, Topology
from topology.family import family_of

MAX_RECORD_BYTES = 900_000
"""No fold emits a larger record: the broker's default limit is 1,048,588 with its own framing."""

MAX_INPUT_BYTES = 600_000
"""A larger mailbox record is quarantined: what follows from it must stay under MAX_RECORD_BYTES."""

MAX_DERIVED_BYTES = 650_000
"""The limit for a record that a stage wrote: ids and headers add to what it came from."""

Encode = Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class RowCodec:
    """How rows of one prefix are encoded, which field arms their timer, what is told of them."""

    prefix: str
    encode: Encode
    due_field: str | None
    ticking: bool
    tally_field: str | None
    told: bool


@dataclass(frozen=True, slots=True)
class Sink:
    """How outputs of one (topic, kind) are encoded; `tag` stands for both in the hash chain.

    `forms` encode values that come by their pattern.
    `observed` outputs are noted in the step as values, for whoever counts what was committed.
    """

    topic: str
    kind_header: tuple[str, bytes]
    encode: Encode
    forms: Forms
    tag: bytes
    observed: bool = False


def sink_of(topic: str, kind: str, encode: Encode, *, observed: bool = False) -> Sink:
    """How outputs of a kind for a topic are written."""
    tag = f"{topic}\0{kind}\0".encode()
    return Sink(topic, ("kind", kind.encode()), encode, Forms(encode), tag, observed)


class _Sinks(dict[tuple[str, str], Sink]):
    """Sinks by (topic, kind); those of a topic family's members are made when first met."""

    def __init__(self, topology: Topology, codec: Codec, stage: Stage) -> None:
        super().__init__()
        self._topology = topology
        self._codec = codec
        self._families = frozenset(stage.family_sinks)

    def __missing__(self, key: tuple[str, str]) -> Sink:
        topic, kind = key
        family = family_of(self._topology, topic) if self._families else None
        if family is None or family.name not in self._families:
            raise KeyError(key)
        schema = self._topology.kinds[family.name, kind]
        sink = self[key] = sink_of(topic, kind, self._codec.encoder(schema))
        return sink


@dataclass(slots=True)
class BoundStage:
    """One stage ready to fold.

    `partitions` is the partition count of its mailbox.  `observed` are the (topic, kind) of outputs
    that steps note as values.  Building one checks that the declaration and the schemas agree.
    """

    declaration: Stage
    fold: Fold
    topology: Topology
    codec: Codec
    partitions: int
    observed: frozenset[tuple[str, str]] = frozenset()
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
        self.sinks = _Sinks(self.topology, self.codec, stage)
        for (topic, kind), schema in self.topology.kinds.items():
            if topic in writable:
                encode, observed = self.codec.encoder(schema), (topic, kind) in self.observed
                self.sinks[topic, kind] = sink_of(topic, kind, encode, observed=observed)
        self.rows = {
            row.prefix: RowCodec(
                row.prefix,
                self.codec.encoder(row.schema),
                row.due_field,
                row.ticking,
                row.tally_field,
                row.told,
            )
            for row in stage.table.rows
        }
        self.fold_header = ("fold", stage.fold_id.encode())
        self.encode_journal = self.codec.encoder("journal_entry")
        self.encode_position = self.codec.encoder("row_position")
