"""What the scheduler's mailbox says about turns, noted once, and told again beside the claims.

    worker.requests, one partition → notes: jobs by queue, policies, workers that take once
    notes of a queue + its claims, by the mailbox record that caused each → `Fairness`

Claims and mailbox are put together by `cause`: what a record says, then what came of it.  Of a
record that brings jobs, those that come count from the first claim of one of them on, since timers
that were due are fired before; under a record that changes the policy nothing is judged.

Jobs go to a file of the size of a few numbers each; in memory are the texts that tell keys apart.

Source: DESIGN law 6 (`cause`), "A job", "Proof".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from streams.audit.fairness_history import Fairness, JobFacts
from streams.audit.log import LogReader, LogRecord, Place, Span
from streams.audit.spool import Sequence as Spooled
from streams.audit.spool import Spool
from streams.codec import Codec, DecodeError
from streams.core import scheduler_policy
from streams.core.shards import mailbox_key
from streams.core.wire import SchedulerPolicy

__all__ = ["FairnessFeed", "InForce", "MailboxNotes", "cause_of", "note_mailbox"]

_ENTRY: Final = struct.Struct("<qiqqiii")
"""Mailbox offset, source partition, offset there, enqueue time, tenant, binding, trigger."""

_NOBODY: Final = -1

_DIGITS_MAX: Final = 19  # of an offset

_KINDS: Final = frozenset(
    {
        "jobs_ready",
        "revision_published",
        "worker_heartbeat",
        "consumer_registered",
        "stage_skip",
    }
)


class InForce(NamedTuple):
    """A policy, and the revision that put it in force; 0 before the first."""

    revision: int
    policy: SchedulerPolicy


class Put(NamedTuple):
    """Where the mailbox says that a policy is in force."""

    offset: int
    revision: int
    policy: SchedulerPolicy


@dataclass(slots=True)
class MailboxNotes:
    """What one partition of the mailbox says, by offset."""

    place: Place
    span: Span
    jobs: dict[str, Spooled] = field(default_factory=dict[str, Spooled])
    texts: list[str] = field(default_factory=list[str])
    policies: list[Put] = field(default_factory=list["Put"])
    once: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    skipped: set[int] = field(default_factory=set[int])
    gated: set[str] = field(default_factory=set[str])
    """Queues and shards for which gates were registered, or taken back."""

    def homes(self, queue: str) -> list[str]:
        """Return the queue, or its shards, that live here."""
        return sorted(home for home in self.jobs if home.partition("#")[0] == queue)


class _Noting:
    """Reads one partition and makes its notes."""

    def __init__(self, notes: MailboxNotes, codec: Codec, spool: Spool) -> None:
        self._notes, self._codec, self._spool = notes, codec, spool
        self._numbers: dict[str, int] = {}
        self._once: set[str] = set()
        self._revision = 0

    def note(self, record: LogRecord) -> None:
        """Take the next record."""
        kind = next((text for name, text in record.headers if name == "kind"), b"") or b""
        if (said := kind.decode(errors="replace")) not in _KINDS:
            return
        try:
            schema, value = self._codec.decode(record.value or b"")
        except DecodeError:
            return  # the scheduler has quarantined it
        if schema == said:
            self._take(record.offset, said, value)

    def _take(self, offset: int, kind: str, value: Mapping[str, Any]) -> None:
        notes = self._notes
        match kind:
            case "jobs_ready":
                self._note_jobs(offset, value)
            case "revision_published":
                if value["revision"] > self._revision:  # else a broadcaster repeats itself
                    self._revision = value["revision"]
                    policy = value["policy"]["scheduler"] or scheduler_policy.DEFAULT
                    notes.policies.append(Put(offset, self._revision, policy))
            case "consumer_registered":
                notes.gated.add(value["queue"])
            case "worker_heartbeat":
                if value["once"] and value["consumer_id"] not in self._once:
                    self._once.add(value["consumer_id"])
                    notes.once.append((offset, value["consumer_id"]))
            case _:
                topic, partition = notes.place
                if value["timer"] is None and (value["topic"], value["partition"]) == (
                    topic,
                    partition,
                ):
                    notes.skipped.add(value["offset"])

    def _note_jobs(self, offset: int, value: Mapping[str, Any]) -> None:
        home = mailbox_key(value["queue"], value["shard"])
        jobs = self._notes.jobs.get(home)
        if jobs is None:
            jobs = self._notes.jobs[home] = self._spool.sequence()
        for job in value["jobs"]:
            tenant = _NOBODY if job["tenant_id"] is None else self._number(job["tenant_id"])
            texts = tenant, self._number(job["binding_key"]), self._number(job["trigger_id"])
            at = value["source_partition"], job["offset"], job["occurred_at_ms"]
            jobs.add(offset, *at, *texts)

    def _number(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._notes.texts)
            self._notes.texts.append(text)
        return number


def note_mailbox(
    reader: LogReader, codec: Codec, place: Place, span: Span, folder: Path
) -> MailboxNotes:
    """Note what a partition of the scheduler's mailbox says.

    Args: folder: for the file of the notes; others remove it.
    """
    notes = MailboxNotes(place, span)
    with Spool(folder / f"requests-{place[1]}", _ENTRY) as spool:
        noting = _Noting(notes, codec, spool)
        for records in reader.read(place, *span):
            for record in records:
                noting.note(record)
    return notes


class _Cause(NamedTuple):
    """The record of the mailbox that something came of."""

    partition: int
    offset: int


def cause_of(record: LogRecord, mailbox: str) -> _Cause | None:
    """Return what a record came of; None when that is nothing in this mailbox."""
    said = next((text for name, text in record.headers if name == "cause"), None) or b""
    topic, _, rest = said.decode(errors="replace").partition("/")
    parts = rest.split("/")
    if topic != mailbox or len(parts) != 3 or not all(_is_number(each) for each in parts):
        return None
    return _Cause(int(parts[0]), int(parts[1]))


class FairnessFeed:
    """Tells one queue, or a shard of it, what the mailbox says between its claims.

    Args:  in_force: policy in force at the end, as the scheduler's rows have it.  In a mailbox
           whose beginning was removed, what says an earlier one may be a broadcaster's repeat, at
           which nothing happens: nothing is judged before that one is said.
           begins: the first mailbox offset whose claims are all there.
           earlier: every policy that ever was, by revision: keys may have credit of those.
           gates: whether its consumers have gates now.
    """

    def __init__(
        self,
        notes: MailboxNotes,
        home: str,
        in_force: InForce,
        *,
        begins: int,
        earlier: Sequence[InForce] = (),
        gates: bool = False,
    ) -> None:
        self._notes = notes
        self._begins = begins
        self._jobs = iter(notes.jobs[home].stored())
        self._next_job = next(self._jobs, None)
        self._policy_at = self._once_at = 0
        self._at = -1
        self._coming: dict[str, JobFacts] = {}
        self._following: dict[int, int] = {}
        self.is_whole = begins == 0
        """Whether all that was ever said of the queue is there."""
        from_start = notes.span.start == 0
        revision = 0 if from_start else in_force.revision
        self._puts = [each for each in notes.policies if each.revision >= revision]
        before = [InForce(*each[1:]) for each in self._puts if each.offset < begins]
        known = from_start or bool(before) or not self._puts
        if before:
            first = before[-1]
        elif from_start:
            first = InForce(0, scheduler_policy.DEFAULT)
        else:
            first = InForce(*self._puts[0][1:]) if self._puts else in_force
        self._policy = first.policy
        past = [each.policy for each in earlier if each.revision < first.revision]
        gates = gates or home in notes.gated
        self._fairness = Fairness(*past, self._policy, whole=self.is_whole, gates=gates)
        if known:
            self._fairness.begin(self._named(begins))

    def _named(self, offset: int) -> str:
        topic, partition = self._notes.place
        return f"{topic}/{partition}/{offset}"

    def claim(self, at: str, offset: int, kind: str, value: Mapping[str, Any], /) -> Iterator[str]:
        """Take the next record of the claims that came of the mailbox's record at `offset`."""
        if offset >= self._notes.span.end:
            return  # it came later than what was noted
        job_id: str = value.get("job_event_id", "")
        if offset < self._begins:
            partition, source = _place_of(job_id)
            self._following[partition] = max(self._following.get(partition, 0), source + 1)
            return
        if offset > self._at:
            self._advance(offset)
        if job_id in self._coming:
            self._arrive()
        yield from self._fairness.add(at, kind, value)

    def _advance(self, offset: int) -> None:
        """Tell what is said before a record, then what it says itself."""
        self._settle()
        while (at := self._next_offset()) is not None and at < offset:
            self._take(at)
            self._settle()
        self._at = offset
        if self._next_offset() == offset:
            self._take(offset)

    def _settle(self) -> None:
        """All claims of the record that was told last are behind us."""
        self._arrive()
        self._fairness.changed(self._named(self._at + 1))

    def _arrive(self) -> None:
        for job_id, facts in self._coming.items():
            self._fairness.came(job_id, facts)
        self._coming.clear()

    def _next_offset(self) -> int | None:
        notes = self._notes
        offsets: list[int] = []
        if self._next_job is not None:
            offsets.append(self._next_job[0])
        if self._policy_at < len(self._puts):
            offsets.append(self._puts[self._policy_at].offset)
        if self._once_at < len(notes.once):
            offsets.append(notes.once[self._once_at][0])
        return min(offsets, default=None)

    def _take(self, offset: int) -> None:
        """Tell what the mailbox's record at `offset` says."""
        notes, self._at = self._notes, offset
        counts = offset >= self._begins and offset not in notes.skipped
        while self._next_job is not None and self._next_job[0] == offset:
            if counts:
                self._comes(self._next_job)
            self._next_job = next(self._jobs, None)
        if self._policy_at < len(self._puts) and self._puts[self._policy_at].offset == offset:
            policy = self._puts[self._policy_at].policy
            self._policy_at += 1
            if counts and (policy != self._policy or not self._fairness.judged):
                self._policy = policy
                self._fairness.changes(policy)
        while self._once_at < len(notes.once) and notes.once[self._once_at][0] == offset:
            self._fairness.takes_once(notes.once[self._once_at][1])
            self._once_at += 1

    def _comes(self, entry: tuple[Any, ...]) -> None:
        _, partition, source, occurred_ms, tenant, binding, trigger = entry
        if source < self._following.get(partition, 0):
            return  # the relay repeats itself
        self._following[partition] = source + 1
        texts = self._notes.texts
        tenant_id = None if tenant == _NOBODY else texts[tenant]
        facts = JobFacts(occurred_ms, tenant_id, texts[binding], texts[trigger])
        self._coming[f"{partition}-{source}" if partition else str(source)] = facts


def _place_of(job_id: str) -> tuple[int, int]:
    """Return source partition and offset of a job's id; of what is none, a place before all."""
    partition, dash, offset = job_id.partition("-")
    numbers = (partition, offset) if dash else ("0", partition)
    if not all(_is_number(each) for each in numbers):
        return 0, -1
    return int(numbers[0]), int(numbers[1])


def _is_number(text: str) -> bool:
    """Whether a text is a partition, or an offset."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
