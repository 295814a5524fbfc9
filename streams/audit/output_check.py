"""Compares what a stage partition should have written with what it wrote, output by output.

Invariant: every lane is walked in order, and an output counts as found only where the key, or its
explicit partition, puts it.

Source: DESIGN "Proof".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from streams.audit.divergence import Divergence
from streams.audit.log import Place
from streams.audit.output_diagnosis import Diagnosis, Expected
from streams.audit.output_index import Entry, Lanes, fingerprint
from streams.core.placement import partition_of
from streams.engine import EncodedOutput

__all__ = ["Lane", "OutputCheck"]

_place_of_key = lru_cache(maxsize=65_536)(partition_of)  # the outputs of one event share its key


class Lane:
    """A lane while it is compared: `head` is its next entry, `after` the offset after the last."""

    __slots__ = ("_entries", "after", "head", "place", "taken")

    def __init__(self, place: Place, entries: Iterator[tuple[int, int, int, bytes]]) -> None:
        self.place = place
        self._entries = entries
        self.head = next(entries, None)
        self.taken = 0
        self.after = 0

    def advance(self) -> None:
        """Step over the head, which was found right."""
        assert self.head is not None, "there is a head to step over"
        self.after = self.head[2] + 1
        self.taken += 1
        self.head = next(self._entries, None)


class OutputCheck:
    """The outputs of one stage partition; its methods raise Divergence at the first difference."""

    def __init__(self, lanes: Lanes, partitions: Mapping[str, int], diagnosis: Diagnosis) -> None:
        """Start at the first noted output.

        Args: partitions: partition count of each output topic; outputs for others are not judged.
        """
        self._lanes = {place: Lane(place, iter(entries)) for place, entries in lanes.items()}
        self._partitions = partitions
        self._diagnosis = diagnosis
        self.outputs = 0

    def begin(self, offset: int) -> None:
        """Pass over outputs whose cause lies before the mailbox offset at which judging begins."""
        for lane in self._lanes.values():
            while lane.head is not None and lane.head[0] < offset:
                lane.advance()

    def compare(self, outputs: list[EncodedOutput]) -> None:
        """Compare the outputs of the next batch."""
        lanes, partitions = self._lanes, self._partitions
        for output in outputs:
            count = partitions.get(output.topic)
            if count is None:
                continue  # a compacted topic, which does not keep what was written
            partition = output.partition
            if partition is None:
                partition = _place_of_key(output.key, count)
            lane = lanes.get((output.topic, partition))
            head = None if lane is None else lane.head
            if head is None or head[3] != fingerprint(output.key, output.value, output.headers):
                raise self._difference(output, (output.topic, partition))
            assert lane is not None, "a head is the head of a lane"
            lane.advance()
        self.outputs += len(outputs)

    def _difference(self, output: EncodedOutput, place: Place) -> Divergence:
        return self._diagnosis.of_expected(Expected.of(output, place), self._lanes)

    def finish(self, next_offset: int, witnessed_offset: int) -> None:
        """Raise if something is left that a transaction up to `next_offset` should have written.

        Args: witnessed_offset: mailbox offset up to which transactions are known to have ended by
              now; outputs caused beyond it were written by none.
        """
        left: list[tuple[Lane, Entry]] = []
        for lane in self._lanes.values():
            while lane.head is not None:
                entry = Entry(*lane.head)
                if entry.cause_offset < next_offset or entry.cause_offset >= witnessed_offset:
                    left.append((lane, entry))
                    break
                lane.advance()
        if left:
            lane, entry = min(left, key=lambda found: (found[1].cause, found[0].place))
            raise self._diagnosis.of_left(entry, lane.place, self._lanes)
