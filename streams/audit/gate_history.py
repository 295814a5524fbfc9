"""What the gates of a queue's consumers may have let pass: a judge of its own, not the fold's.

A slot is held from `job_admitted` until the claim ends.  Limits may change meanwhile: whoever
passed last of those that hold a slot was counted with all of them, so that there are never more
than the greatest `max` among them.  A window is judged at each pass, by the limit that let it pass.

Source: decision 18; DESIGN "Proof".
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["GateHistory"]

_Key = tuple[str, str, str]
"""Trigger, gate, key value."""


class _Pass(NamedTuple):
    at_ms: int
    job_id: str
    most: int
    period_ms: int


class GateHistory:
    """Slots in force and passes in their windows, by gate key."""

    def __init__(self) -> None:
        self._slots: defaultdict[_Key, dict[str, int]] = defaultdict(dict)
        self._held: dict[str, list[_Key]] = {}
        self._passes: defaultdict[_Key, list[_Pass]] = defaultdict(list)
        self._passed: set[tuple[str, str]] = set()

    def admitted(
        self, job_id: str, trigger_id: str, passed: Sequence[Mapping[str, Any]]
    ) -> Iterator[str]:
        """Take an admission; yield what is wrong with it."""
        self.free(job_id)
        for each in passed:
            key = trigger_id, each["gate"], each["key"]
            if each["period_ms"] is None:
                yield from self._hold(job_id, key, each["max"])
            elif (job_id, each["gate"]) not in self._passed:
                # A job that is delivered again has passed once.
                self._passed.add((job_id, each["gate"]))
                found = _Pass(each["at_ms"], job_id, each["max"], each["period_ms"])
                yield from self._pass(key, found)

    def free(self, job_id: str) -> None:
        """A claim has ended: its job holds no slot."""
        for key in self._held.pop(job_id, ()):
            del self._slots[key][job_id]
            if not self._slots[key]:
                del self._slots[key]

    def _hold(self, job_id: str, key: _Key, most: int) -> Iterator[str]:
        holders = self._slots[key]
        holders[job_id] = most
        self._held.setdefault(job_id, []).append(key)
        allowed = max(holders.values())
        if len(holders) > allowed:
            yield f"{_text(key)} has {len(holders)} at once, expected at most {allowed}"

    def _pass(self, key: _Key, found: _Pass) -> Iterator[str]:
        """Judge the windows that end with this pass, or with a later one that it counts in."""
        passes = self._passes[key]
        insort(passes, found)
        first = passes.index(found)
        for at in range(first, len(passes)):
            each = passes[at]
            if each.at_ms - found.at_ms >= each.period_ms:
                break
            before = at - each.most
            if before >= 0 and each.at_ms - passes[before].at_ms < each.period_ms:
                yield (
                    f"{_text(key)} let {each.most + 1} pass from {passes[before].at_ms} to "
                    f"{each.at_ms}, expected at most {each.most} in {each.period_ms} ms"
                )
                break


def _text(key: _Key) -> str:
    trigger_id, gate, value = key
    return f"{gate} of trigger {trigger_id!r} at key {value!r}"
