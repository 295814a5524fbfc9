"""What the gates of a queue's consumers may have let pass: a judge of its own, not the fold's.

A slot is held from `job_admitted` until the claim ends.  Limits may change meanwhile: whoever
passed last of those that hold a slot was counted with all of them, so that there are never more
than the greatest `max` among them.  A window is judged at each pass, by the limit that let it pass.

Source: decision 18; DESIGN "Proof".
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["GateHistory"]

_Key = tuple[str, str, str]
"""Trigger, gate, key value."""


class _Passes:
    """Passes of one gate key, by time: 16 bytes each, since one of long ago may be told late."""

    __slots__ = ("limits", "times")

    def __init__(self) -> None:
        self.times = array("q")
        self.limits = array("q")
        """For each pass the number of the limit that let it pass."""

    def add(self, at_ms: int, limit: int) -> int:
        """Enter a pass behind those of the same time; return its place."""
        place = bisect_right(self.times, at_ms)
        self.times.insert(place, at_ms)
        self.limits.insert(place, limit)
        return place


class GateHistory:
    """Slots in force and passes in their windows, by gate key."""

    def __init__(self) -> None:
        self._slots: defaultdict[_Key, dict[str, int]] = defaultdict(dict)
        self._held: dict[str, dict[_Key, None]] = {}
        self._passes: defaultdict[_Key, _Passes] = defaultdict(_Passes)
        self._limits: dict[tuple[int, int], int] = {}
        self._passed: defaultdict[str, set[str]] = defaultdict(set)

    def admitted(
        self, job_id: str, trigger_id: str, passed: Sequence[Mapping[str, Any]]
    ) -> Iterator[str]:
        """Take an admission; yield what is wrong with it."""
        self.free(job_id)
        for each in passed:
            key = trigger_id, each["gate"], each["key"]
            most, period_ms = each["max"], each["period_ms"]
            if most < 1 or (period_ms is not None and period_ms < 1):
                yield f"{_text(key)} let pass {most} in {period_ms} ms, expected at least 1 in 1 ms"
            elif period_ms is None:
                yield from self._hold(job_id, key, most)
            elif each["gate"] not in self._passed[job_id]:
                # A job that is delivered again has passed once.
                self._passed[job_id].add(each["gate"])
                yield from self._pass(key, each["at_ms"], most, period_ms)

    def ended(self, job_id: str) -> None:
        """A job is over, and holds no slot."""
        self._passed.pop(job_id, None)

    def free(self, job_id: str) -> None:
        """A claim has ended: its job holds no slot."""
        for key in self._held.pop(job_id, ()):
            del self._slots[key][job_id]
            if not self._slots[key]:
                del self._slots[key]

    def _hold(self, job_id: str, key: _Key, most: int) -> Iterator[str]:
        holders = self._slots[key]
        holders[job_id] = most
        self._held.setdefault(job_id, {})[key] = None
        if len(holders) > most and len(holders) > (allowed := max(holders.values())):
            yield f"{_text(key)} has {len(holders)} at once, expected at most {allowed}"

    def _pass(self, key: _Key, at_ms: int, most: int, period_ms: int) -> Iterator[str]:
        """Judge the windows that end with this pass, or with a later one that it counts in."""
        passes, limits = self._passes[key], self._limits
        limit = limits.setdefault((most, period_ms), len(limits))
        by_number = [*limits]
        for at in range(passes.add(at_ms, limit), len(passes.times)):
            each_ms = passes.times[at]
            each_most, each_period_ms = by_number[passes.limits[at]]
            if each_ms - at_ms >= each_period_ms:
                break
            before = at - each_most
            if before >= 0 and each_ms - passes.times[before] < each_period_ms:
                yield (
                    f"{_text(key)} let {each_most + 1} pass from {passes.times[before]} to "
                    f"{each_ms}, expected at most {each_most} in {each_period_ms} ms"
                )
                break


def _text(key: _Key) -> str:
    trigger_id, gate, value = key
    return f"{gate} of trigger {trigger_id!r} at key {value!r}"
