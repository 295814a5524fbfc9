"""One partition of one stage under a log that the test writes: records in, outputs and rows out.

Folds run through the engine, codec included, one record a batch unless `replay` says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from streams.audit.log import LogRecord
from streams.codec import Codec
from streams.engine import BoundStage, Memory, MemoryStore, Step, fold_batch, settle
from streams.stages import FOLDS
from topology import TOPOLOGY

CODEC = Codec()
START_MS = 1_700_000_000_000
DRAWN = "action_graph_update"


class Out(NamedTuple):
    """An output, decoded."""

    topic: str
    kind: str
    key: str
    partition: int | None
    value: dict[str, Any]
    headers: dict[str, str]


class StageLog:
    """A partition and its mailbox.  `now_ms` is the append time of the next record."""

    def __init__(self, stage: str | BoundStage, *, partition: int = 0, partitions: int = 1) -> None:
        if isinstance(stage, str):
            declared = TOPOLOGY.stage(stage)
            stage = BoundStage(declared, FOLDS[stage], TOPOLOGY, CODEC, partitions)
        self.stage = stage
        self.memory = Memory(self.stage, partition)
        self.now_ms = START_MS
        self.records: list[LogRecord] = []
        self.steps: list[Step] = []
        self.drawn: list[Out] = []
        """What the last record added to action graphs: it repeats what the other outputs say."""

    def add(
        self,
        kind: str,
        value: Mapping[str, Any],
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> list[Out]:
        """Append one record, fold it and commit; return what came of it but for `drawn`."""
        schema = self.stage.kinds[kind]
        extra = [(name, text.encode()) for name, text in (headers or {}).items()]
        return self.add_raw(
            self.stage.codec.encode(schema, value),
            key=key.encode(),
            headers=[("kind", kind.encode()), *extra],
        )

    def add_raw(
        self,
        value: bytes | None,
        *,
        key: bytes | None = b"",
        headers: Sequence[tuple[str, Any]] = (),
    ) -> list[Out]:
        """Append any bytes, fold them and commit; return what came of it."""
        offset = len(self.records)
        record = LogRecord(offset, self.now_ms, key, value, list(headers))
        self.records.append(record)
        step = fold_batch(self.memory, [record])
        check_rows(self.memory, step)
        settle(self.memory, step)
        self.steps.append(step)
        outputs = decoded(step, self.stage.codec)
        self.drawn = [output for output in outputs if output.kind == DRAWN]
        return [output for output in outputs if output.kind != DRAWN]

    def outputs_of(self, step: Step) -> list[Out]:
        """Return a step's outputs, decoded."""
        return decoded(step, self.stage.codec)

    def tick(self, after_ms: int = 0) -> list[Out]:
        """Let time pass, and a tick say so."""
        self.now_ms += after_ms
        return self.add("tick", {"due_ms": self.now_ms})

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """Committed rows by key."""
        return rows_of(self.memory)

    def replay(self, cuts: Iterable[int], reload_at: frozenset[int] = frozenset()) -> Replay:
        """Fold the whole log anew, cut into batches of these lengths; the last one repeats.

        Memory is rebuilt from the committed rows before the batches numbered in `reload_at`.
        """
        memory = Memory(self.stage, self.memory.partition)
        replayed = Replay(memory, [])
        lengths = iter(cuts)
        length, at, batch = 1, 0, 0
        while at < len(self.records):
            length = next(lengths, length)
            if batch in reload_at:
                replayed.memory = memory = reloaded(memory)
            step = fold_batch(memory, self.records[at : at + length])
            check_rows(memory, step)
            settle(memory, step)
            replayed.steps.append(step)
            at += step.records
            batch += 1
        return replayed

    def assert_replays(self, cuts: Iterable[int], reload_at: frozenset[int] = frozenset()) -> None:
        """Whatever the cuts: same outputs, rows, state hash, stream time and timers."""
        replayed = self.replay(cuts, reload_at)
        live = [output for step in self.steps for output in step.outputs]
        assert [output for step in replayed.steps for output in step.outputs] == live
        assert rows_of(replayed.memory) == self.rows
        ours, theirs = self.memory, replayed.memory
        assert theirs.position.state_hash == ours.position.state_hash
        assert theirs.position.now_ms == ours.position.now_ms
        assert theirs.position.next_offset == ours.position.next_offset
        assert theirs.rows.next_tick_ms() == ours.rows.next_tick_ms()


class Replay:
    """What folding a log anew came to."""

    def __init__(self, memory: Memory, steps: list[Step]) -> None:
        self.memory = memory
        self.steps = steps


def reloaded(memory: Memory) -> Memory:
    """Memory as a new owner loads it: from committed rows and position alone."""
    rows = dict(memory.rows.store.items())
    return Memory(memory.stage, memory.partition, MemoryStore(rows), memory.position)


def check_rows(memory: Memory, step: Step) -> None:
    """A fold sees a row alike before and after it was committed: as a new batch decodes it."""
    for key, value in step.rows:
        seen = memory.rows.get(key.decode())
        assert seen == (None if value is None else memory.stage.codec.decode(value)[1]), key


def rows_of(memory: Memory) -> dict[str, dict[str, Any]]:
    """Committed rows, decoded, by key."""
    decode = memory.stage.codec.decode
    return {key.decode(): decode(value)[1] for key, value in memory.rows.store.items()}


def decoded(step: Step, codec: Codec = CODEC) -> list[Out]:
    """A step's outputs, decoded."""
    found: list[Out] = []
    for output in step.outputs:
        headers = {name: text.decode() for name, text in output.headers}
        value = {} if output.value is None else codec.decode(output.value)[1]
        key = output.key.decode()
        kind = headers.pop("kind")
        found.append(Out(output.topic, kind, key, output.partition, value, headers))
    return found


def kinds(outputs: Iterable[Out]) -> list[str]:
    """The kinds of outputs, in order."""
    return [output.kind for output in outputs]
