"""What the registry knows, recomputed from its log: nobody needs to ask a running role.

The view folds `triggers.registry` with the registry's own fold, up to the stable end.  It may
be ahead of the registry by an apply that is not answered yet; the answer is certain all the same.

Source: DESIGN "Registry"; law 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streams.codec import Codec, DecodeError
from streams.core import registry, revision
from streams.core.state import Fold
from streams.core.wire import Policy, RowRegisteredBinding
from streams.edge.topic_reader import ReadRecord, TopicReader
from streams.engine import BoundStage, FoldFailed, Memory, fold_batch, settle
from streams.errors import BrokerError, StageHalted
from streams.settings import Settings
from topology import TOPOLOGY
from topology.model import STAGE_SKIP

__all__ = ["RegistryLog", "RegistryView", "fold_registry", "read_registry"]

_STAGE = "registry"
_READ_S = 1.0
_SILENT_READS_MAX = 30


@dataclass(frozen=True, slots=True)
class RegistryView:
    """The registry as its log has it.

    `revision` is the last one published and `broadcast` the last one that every mailbox has;
    `next_offset` is the first offset of the log that the view does not know.  `memory` is the
    registry's partition itself, for whoever wants to see what a further record would do.
    """

    revision: int
    broadcast: int
    policy: Policy
    rows: tuple[RowRegisteredBinding, ...]
    next_offset: int
    memory: Memory


def read_registry(settings: Settings, codec: Codec) -> RegistryView:
    """Read and fold the registry's log up to its end.

    Raises: TopologyError when the topic is missing; BrokerError when it cannot be read;
    StageHalted when the fold raises on a record, so that the registry itself stands there.
    """
    with TopicReader(settings, registry.REGISTRY) as reader:
        reader.start_at({0: 0})
        records: list[ReadRecord] = []
        silent_reads = 0
        while not reader.at_end:
            found = reader.read(_READ_S)
            records += found
            silent_reads = 0 if found else silent_reads + 1
            if silent_reads > _SILENT_READS_MAX:
                seconds = int(_READ_S * _SILENT_READS_MAX)
                message = f"{registry.REGISTRY}: no answer from the broker for {seconds} s"
                raise BrokerError(message, retryable=True)
    return fold_registry(records, codec)


def fold_registry(
    records: Sequence[ReadRecord], codec: Codec, fold: Fold = registry.FOLD
) -> RegistryView:
    """Fold the registry's log from its beginning; see `read_registry`."""
    log = RegistryLog(codec, fold)
    log.add(records)
    return log.view()


class RegistryLog:
    """The registry's log as far as it was read, folded on as it grows."""

    def __init__(self, codec: Codec, fold: Fold = registry.FOLD) -> None:
        self._codec = codec
        self._declared = TOPOLOGY.stage(_STAGE)
        self._memory = Memory(BoundStage(self._declared, fold, TOPOLOGY, codec, partitions=1), 0)
        self._pending: list[ReadRecord] = []
        self._skipped: set[int] = set()
        self._broadcast = 0
        self._next_offset = 0

    def add(self, records: Sequence[ReadRecord]) -> None:
        """Note the next records of the log; they are folded when somebody looks."""
        for record in records:
            self._next_offset = record.offset + 1
            if record.kind == STAGE_SKIP:
                self._note_skip(record)
            elif record.kind == "revision_broadcast":
                said = _decoded(record, self._codec)
                self._broadcast = max(self._broadcast, said["revision"] if said else 0)
        self._pending += records

    def _note_skip(self, record: ReadRecord) -> None:
        """Note the offset that an operator told the registry to pass over."""
        said = _decoded(record, self._codec)
        if said is not None and (said["stage"], said["timer"]) == (_STAGE, None):
            self._skipped.add(said["offset"])

    def view(self) -> RegistryView:
        """Return what the registry knows.  Raises StageHalted where the fold raises on a record."""
        while self._pending:
            try:
                step = fold_batch(self._memory, self._pending, skips=frozenset(self._skipped))
            except FoldFailed as error:
                position = (self._declared.source, 0, error.offset)
                cause = repr(error.__cause__)
                raise StageHalted(self._declared.name, position, cause) from error
            settle(self._memory, step)
            del self._pending[: step.records]
        state = self._memory.state
        return RegistryView(
            revision=revision.last_revision(state),
            broadcast=self._broadcast,
            policy=revision.policy_in_force(state),
            rows=tuple(registry.registered(state)),
            next_offset=self._next_offset,
            memory=self._memory,
        )


def _decoded(record: ReadRecord, codec: Codec) -> dict[str, Any] | None:
    """Return what a record says; None for what the fold quarantines."""
    try:
        schema, said = codec.decode(record.value or b"")
    except DecodeError:
        return None
    return said if schema == record.kind else None
