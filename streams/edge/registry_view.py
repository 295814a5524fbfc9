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

__all__ = ["RegistryView", "fold_registry", "read_registry"]

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
    declared = TOPOLOGY.stage(_STAGE)
    stage = BoundStage(declared, fold, TOPOLOGY, codec, partitions=1)
    memory = Memory(stage, 0)
    skips = _skipped(records, codec)
    folded = 0
    while folded < len(records):
        try:
            step = fold_batch(memory, records[folded:], skips=skips)
        except FoldFailed as error:
            position = (declared.source, 0, error.offset)
            raise StageHalted(declared.name, position, repr(error.__cause__)) from error
        settle(memory, step)
        folded += step.records
    state = memory.state
    return RegistryView(
        revision=revision.last_revision(state),
        broadcast=_broadcast(records, codec),
        policy=revision.policy_in_force(state),
        rows=tuple(registry.registered(state)),
        next_offset=records[-1].offset + 1 if records else 0,
        memory=memory,
    )


def _skipped(records: Sequence[ReadRecord], codec: Codec) -> frozenset[int]:
    """Return the offsets that an operator told the registry to pass over."""
    words = [record for record in records if record.kind == STAGE_SKIP]
    values = [value for record in words if (value := _decoded(record, codec)) is not None]
    about = [value for value in values if (value["stage"], value["timer"]) == (_STAGE, None)]
    return frozenset(value["offset"] for value in about)


def _broadcast(records: Sequence[ReadRecord], codec: Codec) -> int:
    words = [record for record in records if record.kind == "revision_broadcast"]
    values = [value for record in words if (value := _decoded(record, codec)) is not None]
    return max((value["revision"] for value in values), default=0)


def _decoded(record: ReadRecord, codec: Codec) -> dict[str, Any] | None:
    """Return what a record says; None for what the fold quarantines."""
    try:
        schema, said = codec.decode(record.value or b"")
    except DecodeError:
        return None
    return said if schema == record.kind else None
