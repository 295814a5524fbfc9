"""Seconds that partitions are silent when the member that serves them goes.

Two members, 400 records a second.  The gap is the longest time between two transactions of a
partition that moved, read from the journal.
"""

from __future__ import annotations

import dataclasses
import signal
import time

from bench.journal import Journal, journal_from_now, longest_silence_s
from bench.lab import Lab
from bench.load import steady_load
from bench.orders import PARTITIONS, bench_codec, mailbox_of
from bench.process import Process
from bench.row import Row, at_most
from streams.settings import Settings

_PER_SECOND = 400
_SESSION_MS = 6_000
_KILLS = 5
_BALANCED_S = 60.0
_STEADY_S = 3.0
_SERVED_S = 30.0
_POLL_S = 0.05


def measure(lab: Lab) -> list[Row]:
    """Killed, killed and restarted under its name, asked to stop."""
    rounds = 1 if lab.quick else lab.rounds
    kills = [_gap(lab, "kill") for _ in range(1 if lab.quick else max(rounds, _KILLS))]
    restarts = [_gap(lab, "kill and restart") for _ in range(rounds)]
    stops = [_gap(lab, "stop") for _ in range(rounds)]
    return [
        Row("served_again_after_kill_median", "s", kills, at_most(8)),
        Row("served_again_after_kill_worst", "s", kills, at_most(10), pick=max),
        Row("served_again_after_kill_and_static_restart", "s", restarts, at_most(5), pick=max),
        Row("served_again_after_sigterm", "s", stops, at_most(1.5), pick=max),
    ]


class Pair:
    """Two members of one stage."""

    def __init__(self, name: str, settings: Settings, *, static: bool) -> None:
        self._name = name
        self._settings = dataclasses.replace(settings, session_timeout_ms=_SESSION_MS)
        self._static = static
        self.members = [self.start(number) for number in range(2)]

    def start(self, number: int) -> Process:
        """Start a member; with a static name when the pair has such."""
        instance = f"{self._name}-{number}" if self._static else None
        settings = dataclasses.replace(self._settings, instance_id=instance)
        return Process(["bench.member", self._name], settings)

    def owned(self, number: int) -> list[int]:
        """The partitions that a member took last."""
        taken = [e for e in self.members[number].events if e.get("event") == "partitions_taken"]
        return taken[-1]["partitions"] if taken else []

    def wait_balanced(self) -> None:
        """Wait until each serves half of the partitions."""
        deadline_s = time.monotonic() + _BALANCED_S
        while not all(len(self.owned(number)) == PARTITIONS // 2 for number in range(2)):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not balanced:\n{self.members[0].tail()}")
            time.sleep(_POLL_S)

    def end(self) -> None:
        """Leave nothing of them."""
        for member in self.members:
            member.end()


def _gap(lab: Lab, fate: str) -> float:
    """How long the moved partitions are silent when the first member meets its fate."""
    codec = bench_codec()
    name = lab.new_stage("failover")
    pair = Pair(name, lab.settings, static=fate == "kill and restart")
    try:
        with (
            journal_from_now(lab.settings, codec) as journal,
            steady_load(lab.settings, mailbox_of(name), codec, _PER_SECOND),
        ):
            pair.wait_balanced()
            _read_for(journal, _STEADY_S)
            moved = pair.owned(0)
            fated_ms = time.time() * 1_000
            if fate == "stop":
                pair.members[0].signal(signal.SIGTERM)
            else:
                pair.members[0].kill()
            if fate == "kill and restart":
                pair.members[0] = pair.start(0)
            return _longest_gap_s(journal, name, moved, fated_ms)
    finally:
        pair.end()


def _read_for(journal: Journal, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        journal.read()


def _longest_gap_s(journal: Journal, name: str, moved: list[int], fated_ms: float) -> float:
    """Read until every moved partition has been served again for a while; its longest silence."""

    def served() -> bool:
        last = {e.partition: e.at_ms for e in journal.of(name) if e.at_ms > fated_ms + 1_000}
        return all(partition in last for partition in moved)

    journal.read_until(served, _SERVED_S)
    _read_for(journal, _STEADY_S)
    around = [entry for entry in journal.of(name) if entry.at_ms > fated_ms - 1_000]
    return max(longest_silence_s(around, partition) for partition in moved)
