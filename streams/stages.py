"""Which fold is which stage: the one place where declarations meet behaviour.

Source: DESIGN "Roles".
"""

from __future__ import annotations

from collections.abc import Callable

from streams.codec import Codec
from streams.core import dispatch, inbox, registry, scheduler
from streams.core.state import Fold
from streams.engine import BoundStage
from streams.expressions import EXPRESSIONS
from streams.schedules import CALENDAR
from topology import TOPOLOGY, Topology

FOLDS: dict[str, Fold] = {
    "registry": registry.FOLD,
    "inbox": inbox.make_fold(EXPRESSIONS, CALENDAR),
    "dispatch": dispatch.FOLD,
    "scheduler": scheduler.FOLD,
}


def bind(
    codec: Codec,
    partitions_of: Callable[[str], int],
    topology: Topology = TOPOLOGY,
    folds: dict[str, Fold] = FOLDS,
    observed: frozenset[tuple[str, str]] = frozenset(),
) -> dict[str, BoundStage]:
    """Every declared stage, bound.

    Args:    codec: encodes and decodes all records.  partitions_of: partition count of a mailbox
             topic.  observed: (topic, kind) of outputs that steps note as values.
    Raises:  KeyError when a declared stage has no fold.
    """
    return {
        stage.name: BoundStage(
            stage, folds[stage.name], topology, codec, partitions_of(stage.source), observed
        )
        for stage in topology.stages
    }
