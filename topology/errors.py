"""The one error of this package: declarations that do not fit together, or not to the cluster.

A broker that cannot be reached is not such an error: confluent-kafka's own exception passes.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["TopologyError"]


class TopologyError(Exception):
    """Topics, stages or tables do not fit each other or what the cluster has.

    `problems` names each one: what, where and what was expected; `str()` lists them all, so that
    one round of fixing is enough.  `remedy` is one imperative sentence, or None.
    """

    def __init__(self, problems: Iterable[str] | str, *, remedy: str | None = None) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        self.remedy = remedy
        assert self.problems, "a TopologyError says at least one problem"
        if len(self.problems) == 1:
            text = self.problems[0]
        else:
            lines = "".join(f"\n  - {problem}" for problem in self.problems)
            text = f"{len(self.problems)} topology problems:{lines}"
        super().__init__(text)
