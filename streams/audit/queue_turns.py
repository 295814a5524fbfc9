"""The fairness of each queue: the mailbox is read once for all of them, and each has its feeds.

A queue lives in one partition of the mailbox, or each of its shards in one; what came of a record
is told to the parts of the queue that live in that record's partition.

Source: DESIGN "Proof"; SEMANTICS 6.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streams.audit.fairness_log import FairnessFeed, InForce, MailboxNotes, cause_of, note_mailbox
from streams.audit.happening import happening
from streams.audit.log import LogReader, LogRecord
from streams.audit.table_rows import table_rows
from streams.codec import Codec
from streams.core import scheduler_policy
from streams.core.record import Position
from streams.core.registry import REGISTRY
from streams.core.revision import REVISION_ROW
from topology.model import Stage

__all__ = ["QueueTurns", "Turns"]

_GATES = "g:"


class QueueTurns:
    """What the mailbox says of every queue; files are in `folder`, for others to remove.

    Raises: BrokerError.
    """

    def __init__(self, reader: LogReader, codec: Codec, stage: Stage, folder: Path) -> None:
        # Before the ends of the mailbox are fixed, so that a later policy is found there.
        rows = list(table_rows(reader, codec, stage, REVISION_ROW, _GATES))
        self._in_force = {
            row.partition: InForce(
                row.value["revision"], scheduler_policy.in_force(row.value["policy"])
            )
            for row in rows
            if row.key == REVISION_ROW
        }
        self._gated = {
            row.key.removeprefix(_GATES)
            for row in rows
            if row.key.startswith(_GATES) and row.value["gates"]
        }
        places = [(stage.source, each) for each in range(reader.partitions(stage.source))]
        spans = reader.spans(places) if places else {}
        removed = any(span.start > 0 for span in spans.values())
        self._earlier = _policies(reader, codec) if removed else []
        self._notes = [
            note_mailbox(reader, codec, place, span, folder) for place, span in spans.items()
        ]

    def of(self, queue: str, *, whole: bool) -> Turns:
        """Return what judges a queue; `whole`: whether its claims still have their beginning."""
        parts = [(notes, home) for notes in self._notes for home in notes.homes(queue)]
        return Turns(parts, self._in_force, self._earlier, self._gated, whole=whole)


class Turns:
    """One queue, with all its shards."""

    def __init__(
        self,
        parts: list[tuple[MailboxNotes, str]],
        in_force: Mapping[int, InForce],
        earlier: Sequence[InForce],
        gated: Container[str],
        *,
        whole: bool,
    ) -> None:
        self.notes: list[str] = []
        self._parts = parts
        self._in_force = in_force
        self._earlier = earlier
        self._gated = gated
        self._whole = whole
        self._feeds: dict[int, list[FairnessFeed]] = {}
        self._mailbox = parts[0][0].place[0] if parts else ""

    def add(
        self, position: Position, record: LogRecord, kind: str, value: Mapping[str, Any], /
    ) -> Iterator[str]:
        """Take the next record of the queue's claims; yield what is unfair about it."""
        cause = cause_of(record, self._mailbox)
        if cause is None:
            return
        feeds = self._feeds.get(cause.partition)
        if feeds is None:
            feeds = self._feeds[cause.partition] = list(self._begin(cause.partition, cause.offset))
        for feed in feeds:
            for what in feed.claim(str(position), cause.offset, kind, value):
                yield f"{kind} of job {value['job_event_id']}: {what}"

    def _begin(self, partition: int, offset: int) -> Iterator[FairnessFeed]:
        """Begin with the parts that live in a partition, at the first record about one of them."""
        default = InForce(0, scheduler_policy.DEFAULT)
        for notes, home in self._parts:
            if notes.place[1] != partition:
                continue
            # Of a queue whose first claims were removed, more may be missing of this record.
            begins = max(notes.span.start, 0 if self._whole else offset + 1)
            if begins:
                since = f"{notes.place[0]}/{partition}/{begins}"
                self.notes.append(
                    f"the turns of {home} are judged from {since} on: what was before is not there"
                )
            in_force = self._in_force.get(partition, default)
            # Of a mailbox that is whole, the earlier ones stand in it.
            told = [InForce(*each[1:]) for each in notes.policies]
            earlier = self._earlier if notes.span.start else told
            yield FairnessFeed(
                notes, home, in_force, begins=begins, earlier=earlier, gates=home in self._gated
            )


def _policies(reader: LogReader, codec: Codec) -> list[InForce]:
    """Return every policy that ever was, by revision: the registry's log is kept for ever."""
    found: list[InForce] = []
    if not reader.partitions(REGISTRY):
        return found
    place = (REGISTRY, 0)
    for records in reader.read(place, *reader.spans([place])[place]):
        for record in records:
            if ("kind", b"revision_published") not in record.headers:
                continue
            said = happening(codec, place, record)
            if said is not None and "policy" in said.value:
                policy = scheduler_policy.in_force(said.value["policy"])
                if not found or found[-1].policy != policy:
                    found.append(InForce(said.value["revision"], policy))
    return found
