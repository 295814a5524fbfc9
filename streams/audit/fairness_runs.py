"""Runs of different lengths over the keys of one queue, so that each kind of unfairness shows.

| run | begins anew | shows |
|---|---|---|
| short | when a key that got nothing would have shown, or most keys that wait are not in it | who is passed over, new keys too |
| long | when it is eight times as long | who gets less than its share |
| whole | when nobody is left to compare | a small, steady advantage |

Each costs a few steps a selection, and, when it begins, one for each key that waits; it has had as
many selections before it begins anew.

Source: DESIGN "Proof".
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from streams.audit.fairness_run import Run, Stake

__all__ = ["Runs"]

_LONGER: Final = (2, 16, None)
"""How long each run is, in times its patience."""

_SHORT: Final = 0

Stakes = Callable[[], Mapping[str, Stake]]


class Runs:
    """The runs of one queue under one policy.

    Args:  stakes: says which keys wait now, and what each has.
           settled: is told which keys have no credit left of an earlier policy.
    """

    __slots__ = ("_quantum", "_runs", "_settled", "_stakes")

    def __init__(
        self, began: str, quantum: int, stakes: Stakes, settled: Callable[[str], None]
    ) -> None:
        self._quantum, self._stakes, self._settled = quantum, stakes, settled
        self._runs = [Run(began, quantum, stakes()) for _ in _LONGER]

    def leave(self, name: str, /) -> None:
        """A key waits no more, or nobody can say whether it does."""
        for run in self._runs:
            run.leave(name)

    def select(self, name: str, /) -> str | None:
        """A key is selected, at the cost of credit; return what is wrong then."""
        found = [told for run in self._runs if (told := run.select(name)) is not None]
        return found[-1] if found else None

    def renew(self, began: str, waiting: int, /) -> None:
        """Begin those runs anew that have shown what they can; `waiting` keys wait now."""
        for at, run in enumerate(self._runs):
            if run.selections >= waiting and self._is_over(at, run, waiting):
                if run.is_judged_by_more and run.is_settled:
                    for name in run:
                        self._settled(name)
                self._runs[at] = Run(began, self._quantum, self._stakes())

    def _is_over(self, at: int, run: Run, waiting: int) -> bool:
        if len(run) < 2:  # one alone is compared with nobody
            return waiting >= 2
        if run.is_judged_by_more and run.is_settled:
            return True
        if at == _SHORT and 2 * len(run) < waiting:
            return True
        longer = _LONGER[at]
        return longer is not None and run.rounds > longer * run.patience
