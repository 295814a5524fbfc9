"""A turn on its way to a worker: who it is for, and where its body lies; never the body itself.

    {"job_id": "dispatch-…", "session_id": "sess-1", "kind": "goal_loop", "payload_ref": "goal-1",
     "agent_name": "", "tenant": "acme", "priority": "high", "deadline_unix": 1767225600.5,
     "attempt": 0, "enqueued_at": 1767222000.0}

On the wire it is one flat JSON object, UTF-8, or the record `agent_turn`; both are read as one
value.  JSON has seconds as the seed does, everything else milliseconds: what is finer is rounded.

`session_id` is required.  `job_id`, the idempotency key, and `enqueued_at` are random and now where
a turn is made; a reader names what stands for them in an envelope that has none.  `priority` is
one of PRIORITIES, or its place among them (0 the most urgent, 2 the default), also under the name
`prio_bucket`.  A deadline of 0 or null is none.  `when_busy` is one of POLICIES: what becomes of
the turn, and of those before it, when its session has unfinished ones; JSON without it means
`enqueue`, and that is written by leaving it out, as producers that do not know it do.

A field that is not known is a problem: whoever misspells `deadline_unix` must hear of it, and
bodies stay where `payload_ref` points.

Invariants: an envelope that exists is valid; `parse_json(envelope.json_bytes())` equals it, and so
does `from_record(envelope.record())`.

Source: SEMANTICS 8.1; seed queue-driven-agent-dispatch, "The model".
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from streams.core.turn.envelope_fields import (
    ATTEMPT_MAX,
    KINDS,
    POLICIES,
    PRIORITIES,
    TIME_MS_MAX,
    Kind,
    Policy,
    Priority,
    fits,
    problem_of,
    shown,
)
from streams.core.wire import AgentTurn

__all__ = [
    "ATTEMPT_MAX",
    "ENVELOPE_BYTES_MAX",
    "JOB_ID_PREFIX",
    "KINDS",
    "POLICIES",
    "PRIORITIES",
    "TIME_MS_MAX",
    "AgentTurnEnvelope",
    "EnvelopeError",
    "Kind",
    "Policy",
    "Priority",
    "from_record",
    "is_json",
    "parse_json",
]

JOB_ID_PREFIX = "dispatch-"
"""Begins the ids that are made for turns; any other id is taken as well."""

ENVELOPE_BYTES_MAX = 65_536
"""Of an envelope's JSON: all fields at their bounds, escaped, fit in."""


class EnvelopeError(ValueError):
    """What cannot be a turn: `problems` names every field, its value, and what was expected.

    `job_id` and `session_id` are what the envelope still says of itself, where that is usable: a
    reader can tell whom it concerns.
    """

    def __init__(
        self, problems: tuple[str, ...], *, job_id: str | None = None, session_id: str | None = None
    ) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        self.job_id = job_id
        self.session_id = session_id


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTurnEnvelope:
    """One turn; times are ms since the epoch, UTC.  Raises EnvelopeError when a field is unusable.

    `attempt` is what the producer says; how often the turn was delivered follows from its claims.
    """

    job_id: str
    session_id: str
    kind: Kind = KINDS[0]
    payload_ref: str = ""
    agent_name: str = ""
    tenant: str = ""
    priority: Priority = "normal"
    deadline_ms: int | None = None
    attempt: int = 0
    when_busy: Policy = POLICIES[0]
    enqueued_at_ms: int

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in _FIELDS}
        problems = [problem for name in _FIELDS if (problem := problem_of(name, values[name]))]
        if problems:
            raise _error(problems, values)

    @property
    def bucket(self) -> int:
        """The place of its priority, 0 the most urgent."""
        return PRIORITIES.index(self.priority)

    def expired_at(self, now_ms: int) -> bool:
        """Whether its deadline has passed; at the deadline itself it has not."""
        return self.deadline_ms is not None and now_ms > self.deadline_ms

    def json_fields(self) -> dict[str, Any]:
        """Return the envelope as JSON has it; `when_busy` is there when it is not the default."""
        deadline_ms = self.deadline_ms
        policy = {} if self.when_busy == POLICIES[0] else {"when_busy": self.when_busy}
        return {
            "job_id": self.job_id,
            "session_id": self.session_id,
            "kind": self.kind,
            "payload_ref": self.payload_ref,
            "agent_name": self.agent_name,
            "tenant": self.tenant,
            "priority": self.priority,
            "deadline_unix": None if deadline_ms is None else deadline_ms / 1_000,
            "attempt": self.attempt,
            "enqueued_at": self.enqueued_at_ms / 1_000,
            **policy,
        }

    def json_bytes(self) -> bytes:
        """Return the envelope as one flat JSON object, UTF-8, its fields in the order above."""
        return json.dumps(self.json_fields(), ensure_ascii=False, separators=(",", ":")).encode()

    def record(self) -> AgentTurn:
        """Return the envelope as a record of the schema `agent_turn`."""
        return {
            "job_id": self.job_id,
            "session_id": self.session_id,
            "kind": self.kind,
            "payload_ref": self.payload_ref,
            "agent_name": self.agent_name,
            "tenant": self.tenant,
            "priority": self.priority,
            "deadline_unix_ms": self.deadline_ms,
            "attempt": self.attempt,
            "when_busy": self.when_busy,
            "enqueued_at_ms": self.enqueued_at_ms,
        }

    def handle(self) -> dict[str, str]:
        """Return what the caller gets who enqueued the turn."""
        handle = {
            "job_id": self.job_id,
            "session_id": self.session_id,
            "kind": self.kind,
            "dispatch": "queued",
            "status": "pending",
        }
        if self.kind == "orchestrator_task":
            handle["status_url"] = f"/api/graph/orchestrate/job/{self.job_id}"
        return handle


_FIELDS = tuple(each.name for each in fields(AgentTurnEnvelope))


def is_json(value: bytes, /) -> bool:
    """Whether a turn's bytes are to be read as JSON: framed records begin with 00 or C3."""
    return value[:1] not in (b"\x00", b"\xc3")


def from_record(record: AgentTurn, /) -> AgentTurnEnvelope:
    """Read a decoded `agent_turn`.

    Raises: EnvelopeError, also for a kind or priority of a later release.
    """
    deadline_ms = record["deadline_unix_ms"]
    return AgentTurnEnvelope(
        job_id=record["job_id"],
        session_id=record["session_id"],
        kind=cast("Kind", record["kind"]),
        payload_ref=record["payload_ref"],
        agent_name=record["agent_name"],
        tenant=record["tenant"],
        priority=record["priority"],
        deadline_ms=deadline_ms or None,
        attempt=record["attempt"],
        when_busy=record["when_busy"],
        enqueued_at_ms=record["enqueued_at_ms"],
    )


def parse_json(
    value: bytes, /, *, job_id: str | None = None, enqueued_at_ms: int | None = None
) -> AgentTurnEnvelope:
    """Read an envelope's JSON.

    Args:    job_id, enqueued_at_ms: of an envelope that has none, for example from where it stands
             in its topic, so that it is the same whenever it is read; None makes that a problem.
    Raises:  EnvelopeError with every problem found, and nothing else.
    """
    found = _object(value)
    problems = [
        f"{shown(name)} is no field of a turn, expected one of {', '.join(_READERS)}"
        for name in found
        if name not in _READERS
    ]
    values: dict[str, Any] = {"job_id": job_id, "enqueued_at_ms": enqueued_at_ms}
    for name, (target, read) in _READERS.items():
        if name in found:
            values[target] = read(name, found[name], problems)
    if "prio_bucket" in found and "priority" in found and not problems:
        named, bucket = _priority("priority", found["priority"], problems), values["priority"]
        if named != bucket:
            problems.append(
                f"prio_bucket is {found['prio_bucket']}, expected {PRIORITIES.index(named)} "
                f"with priority {named}, or one of the two left out"
            )
    if values.get("session_id") is None and "session_id" not in found:
        problems.append("session_id is missing, expected a text")
    problems += [
        f"{name} is missing, expected {expected}"
        for name, target, expected in (
            ("job_id", "job_id", "a text"),
            ("enqueued_at", "enqueued_at_ms", _SECONDS),
        )
        if values[target] is None and name not in found
    ]
    if problems:
        # What is readable is judged as well, so that one round of mending is enough.
        read = (name for name in _FIELDS if values.get(name) is not None)
        problems += [problem for name in read if (problem := problem_of(name, values[name]))]
        raise _error(problems, values)
    return AgentTurnEnvelope(**values)


def _object(value: bytes) -> dict[str, Any]:
    """Return the fields of a flat JSON object; EnvelopeError for everything else."""
    if len(value) > ENVELOPE_BYTES_MAX:
        problem = (
            f"the envelope has {len(value)} bytes, expected at most {ENVELOPE_BYTES_MAX}: "
            "bodies stay where payload_ref points"
        )
        raise EnvelopeError((problem,))
    try:
        found: object = json.loads(value.decode(), object_pairs_hook=_fields_once)
    except EnvelopeError:
        raise
    except (ValueError, RecursionError) as error:
        raise EnvelopeError(("the envelope is no JSON, expected one flat object",)) from error
    if not isinstance(found, dict):
        raise EnvelopeError((f"the envelope is {shown(found)}, expected one flat JSON object",))
    return cast("dict[str, Any]", found)


def _fields_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise EnvelopeError(
            tuple(f"{shown(name)} stands there twice, expected it once" for name in twice)
        )
    return found


_Reader = Callable[[str, object, list[str]], Any]
_SECONDS = f"seconds since the epoch, a number from 0 to {TIME_MS_MAX // 1_000}"
_PRIORITY = f"one of {', '.join(PRIORITIES)}, or their place from 0 to {len(PRIORITIES) - 1}"


def _as_is(_name: str, value: object, _problems: list[str]) -> object:
    return value


def _text_or_empty(name: str, value: object, problems: list[str]) -> object:
    """Take null for a text that says nothing."""
    return _as_is(name, "" if value is None else value, problems)


def _policy(_name: str, value: object, _problems: list[str]) -> object:
    return POLICIES[0] if value is None else value


def _seconds(name: str, value: object, problems: list[str]) -> int | None:
    """Return seconds as ms; None with a problem noted when they are none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        in_range = 0 <= value <= TIME_MS_MAX / 1_000  # false for what is not a number
        if in_range and math.isfinite(value):
            return min(round(value * 1_000), TIME_MS_MAX)
    problems.append(f"{name} is {shown(value)}, expected {_SECONDS}")
    return None


def _deadline(name: str, value: object, problems: list[str]) -> int | None:
    return None if value is None else _seconds(name, value, problems) or None


def _priority(name: str, value: object, problems: list[str]) -> Priority:
    """Return the priority that a name or a bucket means; the default with a problem noted."""
    if isinstance(value, str) and value in PRIORITIES and name == "priority":
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(PRIORITIES):
        return PRIORITIES[value]
    problems.append(f"{name} is {shown(value)}, expected {_PRIORITY}")
    return "normal"


_READERS: dict[str, tuple[str, _Reader]] = {
    "job_id": ("job_id", _as_is),
    "session_id": ("session_id", _as_is),
    "kind": ("kind", _as_is),
    "payload_ref": ("payload_ref", _text_or_empty),
    "agent_name": ("agent_name", _text_or_empty),
    "tenant": ("tenant", _text_or_empty),
    "priority": ("priority", _priority),
    "prio_bucket": ("priority", _priority),
    "deadline_unix": ("deadline_ms", _deadline),
    "attempt": ("attempt", _as_is),
    "when_busy": ("when_busy", _policy),
    "enqueued_at": ("enqueued_at_ms", _seconds),
}
"""By the name in JSON: the field that it sets, and what reads it."""


def _error(problems: list[str], values: Mapping[str, Any]) -> EnvelopeError:
    known = {
        name: values[name] for name in ("job_id", "session_id") if fits(name, values.get(name))
    }
    return EnvelopeError(tuple(problems), **known)
