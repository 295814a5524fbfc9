"""One batch of a partition: decode, fire timers, fold, encode, hash.  Pure: bytes in, bytes out.

`fold_batch` works on the memory's overlay; `settle` makes its result the committed state once the
transaction has ended well. Whoever drops a step instead must drop the memory with it: timers and
index have moved.

Where batches are cut never changes an output: every record has its own time, its own cause and its
own timers.

Source: DESIGN laws 1-6, 8; FINDINGS 10-12.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from streams.codec import DecodeError
from streams.core.pattern import Patterned
from streams.core.record import Output, Record, Rejection
from streams.engine import quarantine
from streams.engine.bound import (
    MAX_DERIVED_BYTES,
    MAX_INPUT_BYTES,
    MAX_RECORD_BYTES,
    BoundStage,
)
from streams.engine.evidence import Evidence
from streams.engine.failed import FoldFailed
from streams.engine.fetched import RawRecord, size_of
from streams.engine.memory import Memory, StatePosition
from streams.engine.store import RowChange
from streams.engine.tally import STANDING, encode_standing
from streams.errors import HarnError
from topology.model import RUNTIME_KINDS, TICK

DUE_MAX_PER_RECORD = 1_000
"""Ticking timers fired before one record; the rest wait for the next record or tick.

Part of the fold: never a setting.
"""

LAZY_DUE_MAX_PER_RECORD = 4
"""Timers of rows that merely expire; more than one a record, so that expiry outruns arrival."""

_DUE_LIMITS = ((True, DUE_MAX_PER_RECORD), (False, LAZY_DUE_MAX_PER_RECORD))

_CUT_OUTPUTS = 10_000
_CUT_OUTPUT_BYTES = 16_000_000
"""A batch is cut once it holds this much; the rest of the records are the next batch."""

EXTRAS_MAX = 1_024
"""Sets of headers whose encodings are kept, at most."""

_EXTRA_BYTES_MAX = 512
"""Of what is kept for one; a header that came with a record may have any length."""

_RUNTIME_KINDS = frozenset(kind for kind, _ in RUNTIME_KINDS)
_NO_HEADERS: dict[str, str] = {}
_NONE: frozenset[Any] = frozenset()


class EncodedOutput(NamedTuple):
    """A record ready to produce; `partition` None leaves the choice to the key.

    A `value` of None removes the key from a compacted topic.
    """

    topic: str
    partition: int | None
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Step:
    """What one batch does: everything that its transaction writes.

    `notes` are those of its outputs that the stage is to observe, as values.
    `standing` is what is told of the rows beside the position, as they are then.
    """

    outputs: list[EncodedOutput]
    rows: list[RowChange]
    journal: bytes
    position_row: bytes
    position: StatePosition
    records: int
    quarantined: int
    notes: tuple[Output, ...] = ()
    standing: bytes = b""

    @property
    def position_headers(self) -> list[tuple[str, bytes]]:
        """Headers of the position row's record."""
        return [(STANDING, self.standing)] if self.standing else []


def _read_headers(
    headers: Sequence[tuple[str, bytes | None]],
) -> tuple[str | None, int, dict[str, str]]:
    """Return the kind, the size that the record may have, and the headers that are not ours."""
    kind: str | None = None
    size_max = MAX_INPUT_BYTES
    extra = _NO_HEADERS
    for name, content in headers:
        if content is None:  # a null header is legal, and says nothing
            continue
        if name == "kind":
            kind = content.decode(errors="replace") or None
        elif name == "fold":
            size_max = MAX_DERIVED_BYTES
        elif name != "cause":
            if extra is _NO_HEADERS:
                extra = {}
            extra[name] = content.decode(errors="replace")
    return kind, size_max, extra


_Extra = tuple[tuple[str, str], ...]
_encoded = partial(tuple.__new__, EncodedOutput)
"""Makes one of all its fields; a named tuple's own constructor takes three times as long."""


_EXTRAS: dict[_Extra, tuple[tuple[tuple[str, bytes], ...], bytes]] = {}


def _encode_extra(extra: _Extra) -> tuple[tuple[tuple[str, bytes], ...], bytes]:
    """Encode the headers besides ours, for the record and for the evidence.

    What it came to is kept: the outputs of a record say the same, and so do those of a tenant.
    """
    made = tuple((name, text.encode()) for name, text in extra), repr(extra).encode()
    if len(made[1]) <= _EXTRA_BYTES_MAX:
        if len(_EXTRAS) >= EXTRAS_MAX:
            _EXTRAS.clear()
        _EXTRAS[extra] = made
    return made


def extras_kept() -> int:
    """Return how many sets of headers are kept encoded at this moment."""
    return len(_EXTRAS)


class _Batch:
    """Collects what one batch produces; lives for one call of `fold_batch`."""

    __slots__ = (
        "_cause",
        "_passed_timers",
        "_skips",
        "_timer_skips",
        "bytes",
        "evidence",
        "firing",
        "memory",
        "notes",
        "outputs",
        "quarantined",
        "skipped",
        "stage",
    )

    def __init__(self, memory: Memory, skips: frozenset[int], timer_skips: frozenset[str]) -> None:
        self.memory = memory
        self.stage: BoundStage = memory.stage
        self.outputs: list[EncodedOutput] = []
        self.notes: list[Output] = []
        self.evidence = Evidence()
        self.bytes = 0
        self.quarantined = 0
        self.skipped: list[int] = []
        self.firing: str | None = None
        self._skips = skips
        self._timer_skips = timer_skips
        self._passed_timers: list[str] = []
        self._cause = f"{self.stage.declaration.source}/{memory.partition}/"

    def fold(self, raw: RawRecord) -> None:
        """Advance time to the record, fire what is due, fold it, encode what comes of it."""
        state = self.memory.state
        state.now_ms = max(state.now_ms, raw.timestamp)
        record = self._decode(raw, self.evidence.add_input(raw))
        cause = f"{self._cause}{raw.offset}/"
        index = 0
        if self.memory.rows.any_due(state.now_ms):
            moment = record if isinstance(record, Record) else self._stand_in(raw)
            index = self._emit(self._due(moment, raw), cause, 0)
        if isinstance(record, Output):
            self._emit((record,), cause, index)
        elif raw.offset in self._skips:
            self.skipped.append(raw.offset)
            reason = "passed over on an operator's word"
            output = self._quarantine(raw, record.kind, quarantine.SKIPPED, reason)
            self._emit((output,), cause, index)
        elif record.kind not in _RUNTIME_KINDS:
            answer = self.stage.fold.on_record(state, record)
            if isinstance(answer, Rejection):
                reason = f"{answer.code}: {answer.reason}"
                answer = (self._quarantine(raw, record.kind, quarantine.REJECTED, reason),)
            self._emit(answer, cause, index)

    def _decode(self, raw: RawRecord, framed: int) -> Record | Output:
        """Return the record to fold, or the quarantine output that stands for it.

        `framed` is at least the size of the record.
        """
        kind, size_max, extra = _read_headers(raw.headers)
        if framed > size_max and (size := size_of(raw)) > size_max:
            reason = f"key, value and headers have {size} bytes, at most {size_max} are folded"
            return self._quarantine(raw, kind, quarantine.OVERSIZED, reason)
        stage = self.stage
        try:
            schema, body = stage.codec.decode(raw.value or b"")
        except DecodeError as error:
            return self._quarantine(raw, kind, quarantine.UNDECODABLE, str(error))
        if kind is None:
            kind = stage.kind_of_schema.get(schema)
        source = stage.declaration.source
        if kind is None or stage.kinds.get(kind) != schema:
            reason = f"kind {kind!r} with schema {schema!r} does not belong into {source}"
            return self._quarantine(raw, kind, quarantine.UNKNOWN_KIND, reason)
        partition = self.memory.partition
        return Record(
            source, partition, raw.offset, raw.timestamp, raw.key or b"", kind, body, extra
        )

    def _quarantine(self, raw: RawRecord, kind: str | None, code: str, reason: str) -> Output:
        self.quarantined += 1
        return quarantine.quarantined(self.stage, self.memory.partition, raw, kind, code, reason)

    def _stand_in(self, raw: RawRecord) -> Record:
        """Make a record without content: what timers fired by an unusable record go by."""
        source, partition = self.stage.declaration.source, self.memory.partition
        return Record(source, partition, raw.offset, raw.timestamp, b"", TICK, {}, _NO_HEADERS)

    def _due(self, moment: Record, raw: RawRecord) -> Iterable[Output]:
        """Fire the timers that are due; what they answer, in order."""
        rows, state, on_due = self.memory.rows, self.memory.state, self.stage.fold.on_due
        for ticking, limit in _DUE_LIMITS:
            for _ in range(limit):
                entry = rows.pop_due(state.now_ms, ticking=ticking)
                if entry is None:
                    break
                due_ms, key = entry
                self.firing = key
                if key in self._timer_skips:
                    yield self._pass_over_timer(key, raw)
                else:
                    yield from on_due(state, key, rows.get(key), moment)
                if rows.is_due_at(key, due_ms):
                    raise AssertionError(
                        f"the fold left row {key!r} due at {due_ms}: it would fire again"
                    )
                self.firing = None

    def _pass_over_timer(self, key: str, raw: RawRecord) -> Output:
        """Remove a row whose timer cannot be fired; its content goes into quarantine."""
        rows = self.memory.rows
        encoded = rows.encoded(key)
        rows.delete(key)
        # What the fold derives from its rows must not remember the one that is gone.
        self.memory.state.index = self.stage.fold.build_index(self.memory.state)
        self._passed_timers.append(key)
        self.quarantined += 1
        return quarantine.quarantined_row(self.stage, self.memory.partition, raw, key, encoded)

    def _emit(self, outputs: Iterable[Output], cause: str, index: int) -> int:
        """Encode outputs with their headers; return the next index."""
        sinks, fold_header = self.stage.sinks, self.stage.fold_header
        add, append = self.evidence.add_output, self.outputs.append
        for output in outputs:
            topic, kind, key_text, body, partition, extra = output
            sink = sinks[topic, kind]
            if type(body) is Patterned:
                value = sink.forms.encode(body)
            else:
                value = None if body is None else sink.encode(body)
            key = key_text.encode()
            cause_bytes = f"{cause}{index}".encode()
            headers = [sink.kind_header, ("cause", cause_bytes), fold_header]
            if extra:
                extra_headers, extra_bytes = _EXTRAS.get(extra) or _encode_extra(extra)
                headers += extra_headers
            else:
                extra_bytes = b""
            size = len(key) + len(value or b"") + len(extra_bytes)
            if size > MAX_RECORD_BYTES:
                message = (
                    f"{kind} for {topic} has {size} bytes, at most {MAX_RECORD_BYTES} are allowed"
                )
                raise ValueError(message)
            add(sink.tag, partition, cause_bytes, extra_bytes, key, value)
            append(_encoded((topic, partition, key, value, headers)))
            if sink.observed:
                self.notes.append(output)
            self.bytes += size
            index += 1
        return index

    @property
    def full(self) -> bool:
        """Whether the batch should be cut here."""
        return len(self.outputs) >= _CUT_OUTPUTS or self.bytes >= _CUT_OUTPUT_BYTES

    def finish(self, first_offset: int, next_offset: int, records: int) -> Step:
        """Encode the dirty rows, extend the hash chain, write the journal entry."""
        before = self.memory.position
        changes = self.memory.rows.changes()
        state_hash = self.evidence.add_rows(changes, before.state_hash)
        position = StatePosition(
            seq=before.seq + 1,
            next_offset=next_offset,
            now_ms=self.memory.state.now_ms,
            chain=before.chain,
            state_hash=state_hash,
        )
        stage = self.stage.declaration
        entry: dict[str, Any] = {
            **position.as_row(),
            "stage": stage.name,
            "fold": stage.fold_id,
            "partition": self.memory.partition,
            "first_offset": first_offset,
            "records": records,
            "outputs": len(self.outputs),
            "rows": len(changes),
            "skipped": self.skipped,
            "skipped_timers": self._passed_timers,
        }
        chain = self.evidence.chain(self.stage.encode_journal(entry))
        journal = self.stage.encode_journal({**entry, "chain": chain})
        position = replace(position, chain=chain)
        row = self.stage.encode_position(position.as_row())
        rows = [change for change, _ in changes]
        return Step(
            outputs=self.outputs,
            rows=rows,
            journal=journal,
            position_row=row,
            position=position,
            records=records,
            quarantined=self.quarantined,
            notes=tuple(self.notes),
            standing=encode_standing(self.memory.rows.standing()),
        )


def fold_batch(
    memory: Memory,
    raws: Sequence[RawRecord],
    *,
    skips: frozenset[int] = _NONE,
    timer_skips: frozenset[str] = _NONE,
) -> Step:
    """Fold fetched records of one partition.

    Args:    raws: records in offset order, the first at or after the memory's next offset; one at
             least.  skips: offsets that an operator told the stage to pass over.
             timer_skips: keys of rows whose timers an operator told the stage to pass over; the
             rows are removed when they are due.
    Returns: the step; `step.records` says how many of `raws` it covers (a full batch is cut early).
    Raises:  FoldFailed when the fold raises, or leaves what cannot be encoded; an outage's own
             HarnError (a schema registry that does not answer).  The memory must then be dropped.
    Source:  DESIGN "The stage runtime".
    """
    first_offset = raws[0].offset
    next_offset = memory.position.next_offset
    assert first_offset >= next_offset, f"offset {first_offset} was folded before {next_offset}"
    batch = _Batch(memory, skips, timer_skips)
    done = 0
    for raw in raws:
        assert raw.offset >= next_offset, f"offset {raw.offset} comes after {next_offset - 1}"
        try:
            batch.fold(raw)
        except HarnError:
            raise  # an outage says nothing about the record
        except Exception as error:
            raise FoldFailed(raw.offset, done, error, batch.firing) from error
        next_offset = raw.offset + 1
        done += 1
        if batch.full:
            break
    try:
        return batch.finish(first_offset, next_offset, done)
    except Exception as error:
        raise FoldFailed(first_offset, 0, error, suspects=done) from error


def settle(memory: Memory, step: Step) -> None:
    """Make a committed step the memory's state."""
    memory.rows.store.apply(step.rows, step.position_row)
    memory.rows.settle()
    memory.position = step.position
