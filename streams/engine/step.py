"""One batch of a partition: decode, fire timers, fold, encode, hash.  Pure: bytes in, bytes out.

`fold_batch` works on the memory's overlay; `settle` makes its result the committed state once the transaction has ended well.
Whoever drops a step instead must drop the memory with it: timers and index have moved.

Where batches are cut never changes an output: every record has its own time, its own cause and its own timers.

Source: DESIGN laws 1-6, 8; FINDINGS 10-12.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import Any, NamedTuple, Protocol

from streams.codec import DecodeError
from streams.core.record import Output, Record, Rejection
from streams.engine import quarantine
from streams.engine.bound import MAX_INPUT_BYTES, MAX_RECORD_BYTES, BoundStage
from streams.engine.memory import Memory, StatePosition
from streams.engine.store import RowChange
from topology.model import RUNTIME_KINDS

DUE_MAX_PER_RECORD = 1_000
"""Ticking timers fired before one record; the rest wait for the next record or tick.  Part of the fold: never a setting."""

LAZY_DUE_MAX_PER_RECORD = 4
"""Timers of rows that merely expire; more than one a record, so that expiry outruns arrival."""

_CUT_OUTPUTS = 10_000
_CUT_OUTPUT_BYTES = 16_000_000
"""A batch is cut once it holds this much; the rest of the records are the next batch."""

_INPUT = Struct(">qqIII")
_OUTPUT = Struct(">iIII")
_ROW = Struct(">Ii")
_ENGINE_HEADERS = frozenset({"kind", "cause", "fold"})
_RUNTIME_KINDS = frozenset(kind for kind, _ in RUNTIME_KINDS)
_NO_HEADERS: dict[str, str] = {}
_MODULUS = 1 << 256


class RawRecord(Protocol):
    """A fetched record: what aiokafka's and the readers' records have in common.  `timestamp` is ms since epoch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


class EncodedOutput(NamedTuple):
    """A record ready to produce; `partition` None leaves the choice to the key."""

    topic: str
    partition: int | None
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Step:
    """What one batch does: everything that its transaction writes."""

    outputs: list[EncodedOutput]
    rows: list[RowChange]
    journal: bytes
    position_row: bytes
    position: StatePosition
    records: int
    quarantined: int


class FoldFailed(Exception):  # noqa: N818 - it names what happened, as the rest of the tree does
    """A fold raised on the record at `offset`: a bug.  `index` is its place in the batch; the memory is unusable."""

    def __init__(self, offset: int, index: int, cause: BaseException) -> None:
        """Keep the place; the cause is chained."""
        super().__init__(f"fold raised on offset {offset}: {cause!r}")
        self.offset = offset
        self.index = index


def row_hash(key: bytes, value: bytes) -> int:
    """The hash of one row, as summed into the state hash."""
    return int.from_bytes(blake2b(_ROW.pack(len(key), len(value)) + key + value, digest_size=32).digest())


class _Batch:
    """Collects what one batch produces; lives for one call of `fold_batch`."""

    __slots__ = ("bytes", "material", "memory", "outputs", "quarantined", "skipped", "stage")

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.stage: BoundStage = memory.stage
        self.outputs: list[EncodedOutput] = []
        self.material: list[bytes] = []
        self.bytes = 0
        self.quarantined = 0
        self.skipped: list[int] = []

    def decode(self, raw: RawRecord) -> Record | Output:
        """The record to fold, or the quarantine output that stands for it."""
        kind_bytes = b""
        extra: dict[str, str] = _NO_HEADERS
        for name, content in raw.headers:
            if name == "kind":
                kind_bytes = content
            elif name not in _ENGINE_HEADERS:
                if extra is _NO_HEADERS:
                    extra = {}
                extra[name] = content.decode(errors="replace")
        key, value = raw.key or b"", raw.value or b""
        extra_bytes = repr(sorted(extra.items())).encode() if extra else b""
        self.material += (
            _INPUT.pack(raw.offset, raw.timestamp, len(kind_bytes), len(extra_bytes), len(key)),
            kind_bytes,
            extra_bytes,
            key,
            value,
        )
        kind = kind_bytes.decode(errors="replace") or None
        if len(value) > MAX_INPUT_BYTES:
            reason = f"value has {len(value)} bytes, at most {MAX_INPUT_BYTES} are folded"
            return self._quarantine(raw, kind, quarantine.OVERSIZED, reason)
        try:
            schema, body = self.stage.codec.decode(value)
        except DecodeError as error:
            return self._quarantine(raw, kind, quarantine.UNDECODABLE, str(error))
        if kind is None:
            kind = self.stage.kind_of_schema.get(schema)
        if kind is None or self.stage.kinds.get(kind) != schema:
            reason = f"kind {kind!r} with schema {schema!r} does not belong into {self.stage.declaration.source}"
            return self._quarantine(raw, kind, quarantine.UNKNOWN_KIND, reason)
        stage = self.stage.declaration
        return Record(stage.source, self.memory.partition, raw.offset, raw.timestamp, key, kind, body, extra)

    def _quarantine(self, raw: RawRecord, kind: str | None, code: str, reason: str) -> Output:
        self.quarantined += 1
        return quarantine.quarantined(self.stage, self.memory.partition, raw, kind, code, reason)

    def fold(self, raw: RawRecord, skips: frozenset[int]) -> None:
        """Advance time to the record, fire what is due, fold it, encode what comes of it."""
        state = self.memory.state
        state.now_ms = max(state.now_ms, raw.timestamp)
        record = self.decode(raw)
        cause = f"{self.stage.declaration.source}/{self.memory.partition}/{raw.offset}/"
        if isinstance(record, Output):
            stand_in = self._stand_in(raw)
            index = self.emit(self._due(stand_in), cause, 0)
            self.emit((record,), cause, index)
            return
        index = self.emit(self._due(record), cause, 0)
        if raw.offset in skips:
            self.skipped.append(raw.offset)
            output = self._quarantine(raw, record.kind, quarantine.SKIPPED, "passed over on an operator's word")
            self.emit((output,), cause, index)
            return
        if record.kind in _RUNTIME_KINDS:
            return
        answer = self.stage.fold.on_record(state, record)
        if isinstance(answer, Rejection):
            reason = f"{answer.code}: {answer.reason}"
            answer = (self._quarantine(raw, record.kind, quarantine.REJECTED, reason),)
        self.emit(answer, cause, index)

    def _stand_in(self, raw: RawRecord) -> Record:
        """A record without content, so that timers fired by an unusable record have a position and a time."""
        stage = self.stage.declaration
        partition = self.memory.partition
        return Record(stage.source, partition, raw.offset, raw.timestamp, b"", "tick", {}, _NO_HEADERS)

    def _due(self, record: Record) -> Iterable[Output]:
        rows, state, on_due = self.memory.rows, self.memory.state, self.stage.fold.on_due
        for lazy, limit in ((False, DUE_MAX_PER_RECORD), (True, LAZY_DUE_MAX_PER_RECORD)):
            for _ in range(limit):
                entry = rows.pop_due(state.now_ms, lazy=lazy)
                if entry is None:
                    break
                yield from on_due(state, entry[0], entry[1], record)

    def emit(self, outputs: Iterable[Output], cause: str, index: int) -> int:
        """Encode outputs with their headers; return the next index."""
        sinks, fold_header = self.stage.sinks, self.stage.fold_header
        for output in outputs:
            sink = sinks[output.topic, output.kind]
            value = sink.encode(output.value)
            if len(value) > MAX_RECORD_BYTES:
                message = f"{output.kind} for {output.topic} has {len(value)} bytes, at most {MAX_RECORD_BYTES} are allowed"
                raise ValueError(message)
            key = output.key.encode()
            cause_bytes = f"{cause}{index}".encode()
            headers = [("kind", sink.kind), ("cause", cause_bytes), fold_header]
            extra_bytes = b""
            if output.headers:
                headers += [(name, text.encode()) for name, text in output.headers]
                extra_bytes = repr(output.headers).encode()
            partition = -1 if output.partition is None else output.partition
            self.material += (
                _OUTPUT.pack(partition, len(cause_bytes), len(extra_bytes), len(key)),
                sink.tag,
                cause_bytes,
                extra_bytes,
                key,
                value,
            )
            self.outputs.append(EncodedOutput(output.topic, output.partition, key, value, headers))
            self.bytes += len(value)
            index += 1
        return index

    @property
    def full(self) -> bool:
        """Whether the batch should be cut here."""
        return len(self.outputs) >= _CUT_OUTPUTS or self.bytes >= _CUT_OUTPUT_BYTES

    def finish(self, first_offset: int, next_offset: int, records: int) -> Step:
        """Encode the dirty rows, extend the hash chain, write the journal entry."""
        before = self.memory.position
        rows: list[RowChange] = []
        total = int.from_bytes(before.state_hash)
        material = self.material
        for change, old in self.memory.rows.changes():
            key, new = change
            rows.append(change)
            if old is not None:
                total -= row_hash(key, old)
            if new is not None:
                total += row_hash(key, new)
            material += (_ROW.pack(len(key), -1 if new is None else len(new)), key, new or b"")
        chain = blake2b(before.chain + b"".join(material), digest_size=32).digest()
        position = StatePosition(
            seq=before.seq + 1,
            next_offset=next_offset,
            now_ms=self.memory.state.now_ms,
            chain=chain,
            state_hash=(total % _MODULUS).to_bytes(32),
        )
        stage = self.stage.declaration
        journal = self.stage.encode_journal(
            {
                **position.as_row(),
                "stage": stage.name,
                "fold": stage.fold_id,
                "partition": self.memory.partition,
                "first_offset": first_offset,
                "records": records,
                "outputs": len(self.outputs),
                "rows": len(rows),
                "skipped": self.skipped,
            }
        )
        row = self.stage.encode_position(position.as_row())
        return Step(self.outputs, rows, journal, row, position, records, self.quarantined)


def fold_batch(memory: Memory, raws: Sequence[RawRecord], *, skips: frozenset[int] = frozenset()) -> Step:
    """Fold fetched records of one partition.

    Args:    raws: records in offset order, the first at or after the memory's next offset; at least one.
             skips: offsets that an operator told the stage to pass over.
    Returns: the step; `step.records` says how many of `raws` it covers (a full batch is cut early).
    Raises:  FoldFailed when the fold raises; the memory must then be dropped.
    Source:  DESIGN "The stage runtime".
    """
    batch = _Batch(memory)
    done = 0
    for raw in raws:
        try:
            batch.fold(raw, skips)
        except Exception as error:
            raise FoldFailed(raw.offset, done, error) from error
        done += 1
        if batch.full:
            break
    return batch.finish(raws[0].offset, raws[done - 1].offset + 1, done)


def settle(memory: Memory, step: Step) -> None:
    """Make a committed step the memory's state."""
    memory.rows.store.apply(step.rows, step.position_row)
    memory.rows.settle()
    memory.position = step.position
