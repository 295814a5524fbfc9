"""Every error this package raises on purpose, by who must act on it.

    HarnError                   base; carries a remedy and the exit code of the command it ends
    ├── ConfigError             exit 2   operator: one or more settings are wrong (all are listed)
    ├── TopologyError           exit 3   author: declarations do not fit together or the cluster
    ├── ManifestError           exit 4   author: a manifest is wrong (all problems are listed)
    ├── BrokerError             exit 5   outage or refusal of Kafka; `retryable` says which
    ├── TaskQueueUnavailable    exit 5   the database that carries agent turns: the same
    │   └── TaskQueueFull       exit 5   it holds as many turns as it may
    ├── StageHalted             exit 6   a fold raised: the partition waits for a fix or a skip
    ├── InvokerStuck            exit 7   handlers that do not end: the process must start anew
    ├── ReplayDivergence        exit 1   auditor: the log does not say what was recorded
    └── AuditIncomplete         exit 2   auditor: a part of the log cannot be judged

Bad data is not in this tree: it is an output (a rejection, the DLQ).  Messages say what, where and
what was expected; they never hold a record's body or a secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

__all__ = [
    "AuditIncomplete",
    "BrokerError",
    "ConfigError",
    "HarnError",
    "InvokerStuck",
    "ManifestError",
    "ReplayDivergence",
    "StageHalted",
    "TaskQueueFull",
    "TaskQueueUnavailable",
    "TopologyError",
]


class HarnError(Exception):
    """An expected failure: `str()` is the message for the person who must act.

    `remedy` is one imperative sentence, or None when the message already says what to do.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


class _ListedError(HarnError):
    """Several problems of one source, told at once so that one round of fixing is enough."""

    heading: ClassVar[str]

    def __init__(self, problems: Iterable[str] | str, *, remedy: str | None = None) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        if not self.problems:
            raise ValueError(f"{type(self).__name__} needs at least one problem")
        if len(self.problems) == 1:
            message = self.problems[0]
        else:
            lines = "".join(f"\n  - {problem}" for problem in self.problems)
            message = f"{len(self.problems)} {self.heading}:{lines}"
        super().__init__(message, remedy=remedy)


class ConfigError(_ListedError):
    """Settings are missing or invalid; `problems` names each variable, value and expectation."""

    exit_code = 2
    heading = "settings are invalid"


class TopologyError(_ListedError):
    """Declared topics, stages and tables do not fit each other or what the cluster has."""

    exit_code = 3
    heading = "topology problems"


class ManifestError(_ListedError):
    """A manifest cannot be used; `problems` names each place in it."""

    exit_code = 4
    heading = "manifest problems"


class BrokerError(HarnError):
    """Kafka could not be started or reached, or refused.

    `retryable` is true for an outage (the same call may succeed later), false for a refusal.
    """

    exit_code = 5

    def __init__(self, message: str, *, retryable: bool, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.retryable = retryable


class TaskQueueUnavailable(HarnError):  # noqa: N818 - the seed's name
    """The database that carries agent turns is out of reach, unusable or refuses.

    `endpoint` says where it is, without a password.  `retryable` is true for an outage (the same
    call may succeed later), false where somebody must act first.
    """

    exit_code = 5

    def __init__(
        self, endpoint: str, reason: str, *, retryable: bool, remedy: str | None = None
    ) -> None:
        super().__init__(f"the task queue {endpoint} is unavailable: {reason}", remedy=remedy)
        self.endpoint = endpoint
        self.retryable = retryable


class TaskQueueFull(TaskQueueUnavailable):
    """The queue holds as many turns as it may: the turn was not taken."""


class StageHalted(HarnError):  # noqa: N818 - a state of a partition, which others go on without
    """A fold raised on a record, so its partition stopped with nothing committed.

    `position` is the record's (topic, partition, offset).
    """

    exit_code = 6

    def __init__(
        self, stage: str, position: tuple[str, int, int], reason: str, *, remedy: str | None = None
    ) -> None:
        topic, partition, offset = position
        super().__init__(
            f"stage {stage} halted at {topic}/{partition}/{offset}: {reason}",
            remedy=remedy
            or f"fix the fold and run `harn stage resume`, or `harn stage skip {topic}/{partition}"
            f"/{offset}` to quarantine the record",
        )
        self.stage = stage
        self.position = position
        self.reason = reason


class InvokerStuck(HarnError):  # noqa: N818 - a state of a process, which a new one is not in
    """Handlers that never return hold what an invoker needs; only another process is free of them.

    Nothing is lost: what ran is issued again.
    """

    exit_code = 7


class ReplayDivergence(HarnError):  # noqa: N818 - the auditor's finding, named as in its report
    """A recomputed output, row or offset differs from the recorded one.

    `position` is where the first difference lies, (topic, partition, offset); `expected` is what
    the fold gives and `actual` what the log holds, both as short descriptions without bodies.
    """

    def __init__(
        self,
        position: tuple[str, int, int],
        expected: str,
        actual: str,
        *,
        remedy: str | None = None,
    ) -> None:
        topic, partition, offset = position
        super().__init__(
            f"replay diverges at {topic}/{partition}/{offset}: expected {expected}, found {actual}",
            remedy=remedy,
        )
        self.position = position
        self.expected = expected
        self.actual = actual


class AuditIncomplete(HarnError):  # noqa: N818 - a verdict, as ReplayDivergence is
    """Nothing diverges, but a range of the log could not be judged; the message names it."""

    exit_code = 2
