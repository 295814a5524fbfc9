"""Prove that a topology fits together, before anything is created or started.

`check` runs every rule and returns every problem, so that one round of fixing is enough.

Source: STYLE 2.14.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from schemas import Schema, SchemaSet
from topology.errors import TopologyError
from topology.layout import Layout
from topology.model import Topology
from topology.problem import Code, Problem
from topology.rules import numbers, stages, topics

__all__ = ["Bindings", "Code", "Problem", "check", "raise_if_broken"]

Bindings = Mapping[str, object] | Iterable[tuple[str, object]]
"""The fold of each stage, by stage name."""


def check(
    topology: Topology,
    layout: Layout,
    *,
    bindings: Bindings | None = None,
    schemas: Mapping[str, Schema] | None = None,
) -> list[Problem]:
    """Return everything that is wrong with `topology` laid out by `layout`.

    Args:    bindings: stage names with their folds; None leaves out the rules about them.
             schemas: by file stem; None reads the shipped ones.
    Raises:  SchemaError when a shipped schema file is unusable.
    """
    known = SchemaSet.load() if schemas is None else schemas
    return [
        *topics.broken_names(topology),
        *topics.broken_kinds(topology, known),
        *topics.broken_cleanup(topology),
        *topics.broken_partitions(topology, layout),
        *topics.broken_journal(topology, layout),
        *stages.broken_stage_names(topology),
        *stages.broken_sources(topology),
        *stages.broken_sinks(topology),
        *stages.broken_tables(topology, layout),
        *stages.broken_rows(topology, known),
        *stages.broken_edges(topology),
        *numbers.broken_replication(layout),
        *numbers.broken_retention_order(topology, layout),
        *numbers.broken_retention(topology, layout),
        *numbers.broken_times(layout),
        *(() if bindings is None else _broken_bindings(topology, bindings)),
    ]


def raise_if_broken(
    topology: Topology,
    layout: Layout,
    *,
    bindings: Bindings | None = None,
    schemas: Mapping[str, Schema] | None = None,
) -> None:
    """Raise TopologyError with every problem that `check` finds."""
    problems = check(topology, layout, bindings=bindings, schemas=schemas)
    if problems:
        raise TopologyError([str(problem) for problem in problems])


def _broken_bindings(topology: Topology, bindings: Bindings) -> Iterator[Problem]:
    """Yield stages without a fold or with two, folds of no stage, and folds of two stages."""
    if isinstance(bindings, Mapping):
        pairs = list(cast("Mapping[str, object]", bindings).items())
    else:
        pairs = list(bindings)
    declared = {stage.name for stage in topology.stages}
    counts = Counter(name for name, _ in pairs)
    for name in sorted(declared - counts.keys()):
        yield Problem(Code.UNBOUND_STAGE, f"stage {name}", "has no fold, expected one")
    for name in sorted(counts.keys() - declared):
        yield Problem(Code.UNKNOWN_STAGE, f"stage {name}", "has a fold but is not declared")
    for name, count in counts.items():
        if count > 1:
            yield Problem(Code.DOUBLY_BOUND, f"stage {name}", f"has {count} folds, expected one")
    stages_of: defaultdict[int, set[str]] = defaultdict(set)
    for name, fold in pairs:
        stages_of[id(fold)].add(name)
    for names in stages_of.values():
        if len(names) > 1:
            yield Problem(
                Code.DOUBLY_BOUND,
                f"stages {', '.join(sorted(names))}",
                "share one fold, expected a fold each",
            )
