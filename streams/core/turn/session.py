"""A session as it stands, and what people want of it: two records with two writers.

    queued ──a turn begins──▸ running ──it ends──▸ queued, while others wait
                                                   idle, or what its goal came to

The API creates a session; the owner of its partition writes it from then on.  What people want is
the API's alone, so that a request is never overwritten by what runs.

Invariants: what was said is numbered from 1 without gaps, and the newest SAID_KEPT_MAX are kept.

Source: SEMANTICS 8.1, 8.2, 8.9; seed queue-driven-agent-dispatch, "Enqueue seams".
"""

from __future__ import annotations

import json
from typing import Final, Literal

from streams.core.bounds import shortened
from streams.core.wire import (
    AgentJobStatus,
    AgentSession,
    AgentSessionDesired,
    AgentSessionStatus,
    SessionUtterance,
)

__all__ = [
    "CONTENT_CHARS_MAX",
    "METADATA_BYTES_MAX",
    "SAID_KEPT_MAX",
    "Role",
    "asked",
    "began",
    "ended",
    "new_session",
    "said",
    "status_after",
    "wished",
]

Role = Literal["user", "assistant", "system", "tool"]

SAID_KEPT_MAX = 20
"""What a record keeps of what was said: at its bound a third of the largest record."""

CONTENT_CHARS_MAX = 4_000
METADATA_BYTES_MAX = 65_536

_SESSION_AFTER: Final[dict[AgentJobStatus, AgentSessionStatus]] = {
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "paused": "paused",
}


def new_session(
    session_id: str,
    /,
    *,
    tenant: str = "",
    domain: str = "",
    background: bool = True,
    metadata_json: str = "{}",
    now_ms: int,
) -> AgentSession:
    """Make the record of a session whose first turn waits.

    Raises: ValueError when the metadata are no JSON object, or too large.
    """
    try:
        size = len(metadata_json.encode())
        is_object = size > METADATA_BYTES_MAX or isinstance(json.loads(metadata_json), dict)
    except (ValueError, RecursionError):
        size, is_object = 0, False
    if size > METADATA_BYTES_MAX:
        raise ValueError(f"metadata has {size} bytes, expected at most {METADATA_BYTES_MAX}")
    if not is_object:
        raise ValueError("metadata is no JSON object, expected one")
    return {
        "session_id": session_id,
        "tenant": tenant,
        "domain": domain,
        "status": "queued",
        "background": background,
        "needs_input": False,
        "metadata_json": metadata_json,
        "said": [],
        "said_count": 0,
        "created_at_ms": now_ms,
        "updated_at_ms": now_ms,
    }


def began(session: AgentSession, /, *, now_ms: int) -> AgentSession:
    """Return the session while a turn of it runs."""
    return {**session, "status": "running", "needs_input": False, "updated_at_ms": now_ms}


def ended(
    session: AgentSession,
    /,
    *,
    record_status: AgentJobStatus | None,
    others_wait: bool,
    now_ms: int,
) -> AgentSession:
    """Return the session after a turn of it.

    Args: record_status: of the turn's goal or task; None when it has none.
          others_wait: whether more turns of the session are known.
    """
    status: AgentSessionStatus = "queued" if others_wait else status_after(record_status)
    return {**session, "status": status, "updated_at_ms": now_ms}


def status_after(record_status: AgentJobStatus | None, /) -> AgentSessionStatus:
    """Return how a session stands after its last turn, by what that one's goal or task is now."""
    return "idle" if record_status is None else _SESSION_AFTER.get(record_status, "idle")


def said(session: AgentSession, role: Role, content: str, /, *, now_ms: int) -> AgentSession:
    """Return the session with one thing more that was said in it, cut at its bound."""
    utterance: SessionUtterance = {
        "number": session["said_count"] + 1,
        "role": role,
        "content": content[:CONTENT_CHARS_MAX],
        "at_ms": now_ms,
    }
    return {
        **session,
        "said": [*session["said"], utterance][-SAID_KEPT_MAX:],
        "said_count": utterance["number"],
        "updated_at_ms": now_ms,
    }


def wished(
    before: AgentSessionDesired | None, after: AgentSessionDesired, /
) -> AgentSessionDesired:
    """Return what is wanted of a session after a further word: a kill is never taken back."""
    if before is None or not before["kill_requested"] or after["kill_requested"]:
        return after
    return {**after, "kill_requested": True}


def asked(
    session_id: str,
    before: AgentSessionDesired | None,
    /,
    *,
    pause: bool | None = None,
    kill: bool | None = None,
    requested_by: str = "",
    reason: str = "",
    now_ms: int,
) -> AgentSessionDesired:
    """Return what people want of a session now; None leaves a wish as it was."""
    paused = before is not None and before["pause_requested"]
    killed = before is not None and before["kill_requested"]
    return {
        "session_id": session_id,
        "pause_requested": paused if pause is None else pause,
        "kill_requested": killed if kill is None else kill,
        "requested_by": requested_by,
        "reason": shortened(reason),
        "requested_at_ms": now_ms,
    }
