"""The numbers that turn declarations into topics of one cluster: counts, ages, sizes and times.

A `Layout` is made from the settings by whoever holds them; nothing here reads an environment.
Each number is checked alone here, and in relation to the others by `topology.check`.

Source: DESIGN "Topics", "Partitions", "The stage runtime".
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from topology.model import PartitionRule, RetentionRule, Topic

_SECOND_MS = 1_000
_HOUR_MS = 3_600 * _SECOND_MS
_DAY_MS = 24 * _HOUR_MS

SHORT_RETENTION_MS = _HOUR_MS
"""Age of cancel intents: whoever runs the handler reads them at once, or has lost its lease."""

FOREVER_MS = -1
"""Kafka's word for an age without bound."""

FENCE_MS = 2 * _SECOND_MS
"""Time a new owner takes, at most, to end the transaction of the one that it replaces."""

ABORT_SWEEP_MS = 1 * _SECOND_MS
"""How often the broker looks for transactions past their timeout
(`transaction.abort.timed.out.transaction.cleanup.interval.ms`)."""

SVIX_SEVEN_ATTEMPTS_MS = 63_305 * _SECOND_MS
"""From the first to the last of the 7 attempts that a binding gets by default: 17 h 35 m 05 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a deployment decides about its topics.  The defaults are those of a real cluster.

    Counts:  `partitions` of mailboxes, tables and outputs; `agent_turns_partitions` of turns;
             `replication_factor` and `min_insync_replicas` of every topic.
    Ages:    `retention_mailbox_ms`, `retention_output_ms`, `retention_audit_ms`, ms.
    Sizes:   `max_record_bytes`, the largest record a fold emits, bytes.
    Times:   group `session_timeout_ms` and `heartbeat_interval_ms`, `transaction_timeout_ms`,
             `lease_ms` of a running handler, `heartbeat_ttl_ms` (silence after which a worker
             counts as gone), `drain_ms` (time to finish when asked to stop), ms;
             `longest_retry_ms` from the first to the last attempt of the longest retry policy.

    Raises ValueError, naming every field that is out of its range.
    """

    partitions: int = 12
    agent_turns_partitions: int = 6
    replication_factor: int = 3
    min_insync_replicas: int = 2
    retention_mailbox_ms: int = 7 * _DAY_MS
    retention_output_ms: int = 8 * _DAY_MS
    retention_audit_ms: int = 30 * _DAY_MS
    max_record_bytes: int = 900_000
    session_timeout_ms: int = 6 * _SECOND_MS
    heartbeat_interval_ms: int = 1_500
    transaction_timeout_ms: int = 10 * _SECOND_MS
    lease_ms: int = 24 * _SECOND_MS
    heartbeat_ttl_ms: int = 45 * _SECOND_MS
    drain_ms: int = 25 * _SECOND_MS
    longest_retry_ms: int = SVIX_SEVEN_ATTEMPTS_MS

    def __post_init__(self) -> None:
        # A drain of nothing is a number that `check` may refuse, not one without meaning.
        least = {each.name: 0 if each.name == "drain_ms" else 1 for each in fields(self)}
        problems = [
            f"{name} is {value!r}, expected a whole number of at least {minimum}"
            for name, minimum in least.items()
            if type(value := getattr(self, name)) is not int or value < minimum
        ]
        if problems:
            raise ValueError("layout: " + "; ".join(problems))

    @property
    def reader_wait_ms(self) -> int:
        """Longest wait of a reader behind a stopped owner's open transaction, ms.

        An owner that is gone is replaced after its session and fenced; one that keeps sending
        heartbeats holds its transaction until the broker aborts it.
        """
        replaced_ms = self.session_timeout_ms + FENCE_MS
        timed_out_ms = self.transaction_timeout_ms + ABORT_SWEEP_MS
        return max(replaced_ms, timed_out_ms)

    def partitions_of(self, topic: Topic) -> int:
        """Return how many partitions `topic` has."""
        match topic.partitions:
            case PartitionRule.MAILBOX:
                return self.partitions
            case PartitionRule.TURNS:
                return self.agent_turns_partitions
            case int() as count:
                return count

    def retention_ms_of(self, topic: Topic) -> int:
        """Return the age at which records of `topic` go, ms; FOREVER_MS when they stay."""
        match topic.retention:
            case RetentionRule.MAILBOX:
                return self.retention_mailbox_ms
            case RetentionRule.OUTPUT:
                return self.retention_output_ms
            case RetentionRule.AUDIT:
                return self.retention_audit_ms
            case RetentionRule.SHORT:
                return SHORT_RETENTION_MS
            case RetentionRule.FOREVER:
                return FOREVER_MS
