"""How agent turns are dispatched, as the environment says it.

The variables have the names that users of the dispatch know, and so no prefix.  Some of them steer
programs that are not ours: what has no effect here is told, see `TurnSettings.warnings`.

Source: seed queue-driven-agent-dispatch, "Deployment shape"; SEMANTICS 8.2, 8.4 and 8.10, A32.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from streams.setting import NAME, Kind, integer, setting

__all__ = [
    "DISPATCH_BACKENDS",
    "GROUP_PROTOCOLS",
    "QUEUE_BACKENDS",
    "TurnSettings",
    "turn_contradictions",
]

DISPATCH_BACKENDS = ("inline", "queue")
"""Where a turn runs: in the process that accepts it, or in a worker."""

QUEUE_BACKENDS = ("kafka", "postgres", "sqlite")
"""What may carry turns; the first is meant by `auto`."""

GROUP_PROTOCOLS = ("classic", "consumer")
"""How members of the group of turns agree on who has which partition."""

_AUTO = "auto"
_OFF, _ON = "off", "on"
_CLIENT = "client"
_DAY_S = 86_400
_RETENTION_S_MAX = 366 * _DAY_S
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": _DAY_S, "w": 7 * _DAY_S}
_DURATION = re.compile(r"([1-9][0-9]{0,9})([smhdw])")


def _either_case(*names: str) -> Kind:
    """Take one of `names`, in small or capital letters."""

    def parse(text: str) -> str:
        if text.lower() not in names:
            raise ValueError(text)
        return text.lower()

    return Kind("one of " + ", ".join(names), parse)


def _parse_database(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"postgresql", "postgres"} or any(char.isspace() for char in text):
        raise ValueError(text)
    return text


def _duration_s(text: str) -> int:
    """Return the seconds of a duration as manifests write it; 0 of `0`, which has no unit."""
    if text == "0":
        return 0
    found = _DURATION.fullmatch(text)
    if found is None or (seconds := int(found[1]) * _UNIT_S[found[2]]) > _RETENTION_S_MAX:
        raise ValueError(text)
    return seconds


def _parse_retention(text: str) -> str:
    small = text.lower()
    _duration_s(small)
    return small


_DATABASE = Kind("a postgresql:// address", _parse_database)
_RETENTION = Kind("a duration such as 30m, 12h, 7d or 2w, at most 366d, or 0", _parse_retention)


# Without slots, since `Settings` has another part with slots, and a class has one layout.
@dataclass(frozen=True, kw_only=True)
class TurnSettings:
    """The part of the settings that is about agent turns."""

    agent_dispatch_backend: str = setting(
        "AGENT_DISPATCH_BACKEND",
        DISPATCH_BACKENDS[0],
        _either_case(*DISPATCH_BACKENDS),
        "Where a turn runs: in the process that accepts it, or in a worker, by way of a queue.",
    )
    agent_inline_turns_max: int = setting(
        "AGENT_INLINE_TURNS_MAX",
        64,
        integer(1, 1_000),
        "Turns that run or wait in a process that runs them itself; more are refused.",
    )
    agent_turns_api: str = setting(
        "AGENT_TURNS_API",
        _OFF,
        _either_case(_OFF, _ON),
        "Whether role ingest serves `/api/...` as well, where turns are enqueued and sessions "
        "killed; it authenticates nobody.",
    )
    task_queue_backend: str = setting(
        "TASK_QUEUE_BACKEND",
        _AUTO,
        _either_case(_AUTO, *QUEUE_BACKENDS),
        "What carries turns to workers; `auto` means Kafka, whatever else is set.",
    )
    queue_backend: str | None = setting(
        "QUEUE_BACKEND",
        None,
        _either_case(_AUTO, *QUEUE_BACKENDS),
        "Former name of TASK_QUEUE_BACKEND, heeded where that is `auto`.",
    )
    state_db_uri: str | None = setting(
        "STATE_DB_URI",
        None,
        _DATABASE,
        "PostgreSQL that carries turns and their records when TASK_QUEUE_BACKEND is `postgres`.",
        secret=True,
    )
    agent_turns_partitions: int = setting(
        "AGENT_TURNS_PARTITIONS",
        6,
        integer(1, 1_024),
        "Partitions of `agent_turns`: as many workers can share turns; "
        "`harn topology grow-turns` adds some.",
    )
    agent_group_protocol: str = setting(
        "AGENT_GROUP_PROTOCOL",
        _AUTO,
        _either_case(_AUTO, *GROUP_PROTOCOLS),
        "How workers of turns share partitions on Kafka: the newer consumer protocol or the "
        "classic one; `auto` takes the newer where the group's times can be set.",
    )
    claim_ttl_s: int = setting(
        "CLAIM_TTL_S",
        3_600,
        integer(1, 7 * _DAY_S),
        "Age at which a claim of a turn is presumed dead and taken over, s; on Kafka a worker's "
        "claim ends with its partition's owner instead.",
    )
    turn_handover_s: int = setting(
        "TURN_HANDOVER_S",
        60,
        integer(0, _DAY_S),
        "Time running turns get to finish before their partition is given up, s; at a shutdown it "
        "is HARN_DRAIN_MS.",
    )
    turns_max_beyond_prefix: int = setting(
        "AGENT_TURNS_MAX_BEYOND_PREFIX",
        1_000,
        integer(1, 100_000),
        "Turns of a partition that may finish while an earlier one runs, before it is paused.",
    )
    agent_job_retention: str = setting(
        "AGENT_JOB_RETENTION",
        "7d",
        _RETENTION,
        "How long goals and tasks that have ended are kept, and sessions that have none left and "
        "were not changed; 0 keeps them for ever.",
    )
    agent_validation_commands: str = setting(
        "AGENT_VALIDATION_COMMANDS",
        _OFF,
        _either_case(_OFF, _ON),
        "Whether the validation commands of goals are run: whoever may enqueue a goal runs "
        "programs as the worker's user by them.",
    )
    agent_validation_timeout_s: int = setting(
        "AGENT_VALIDATION_TIMEOUT_S",
        600,
        integer(1, _DAY_S),
        "Time that a validation command may take, s; then it has not passed.",
    )
    kg_daemon_role: str = setting(
        "KG_DAEMON_ROLE",
        _CLIENT,
        NAME,
        "Role of a graph daemon; there is none here, so all but `client` has no effect.",
    )
    gateway_workers: int = setting(
        "GATEWAY_WORKERS",
        1,
        integer(1, 1_024),
        "Processes of a gateway; here a process is one, so all but 1 has no effect: run more "
        "of them.",
    )

    @property
    def turn_queue_backend(self) -> str:
        """What carries turns: one of QUEUE_BACKENDS."""
        for chosen in (self.task_queue_backend, self.queue_backend):
            if chosen not in (None, _AUTO):
                return chosen
        return QUEUE_BACKENDS[0]

    @property
    def serves_turns(self) -> bool:
        """Whether role ingest serves the API of turns."""
        return self.agent_turns_api == _ON

    @property
    def runs_turns_inline(self) -> bool:
        """Whether turns run in the process that takes them."""
        return self.agent_dispatch_backend == DISPATCH_BACKENDS[0]

    @property
    def runs_validation_commands(self) -> bool:
        """Whether commands of goals are run."""
        return self.agent_validation_commands == _ON

    @property
    def agent_job_retention_ms(self) -> int:
        """How long what has ended is kept, ms; 0 for ever."""
        return _duration_s(self.agent_job_retention) * 1_000

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is set but should not be, or to no effect; a sentence each, for a person."""
        said: list[str] = []
        if self.queue_backend is not None:
            chosen = self.task_queue_backend
            instead = f"write TASK_QUEUE_BACKEND={self.queue_backend}"
            remedy = instead if chosen == _AUTO else f"TASK_QUEUE_BACKEND={chosen} wins, remove it"
            said.append(f"QUEUE_BACKEND is the former name of TASK_QUEUE_BACKEND: {remedy}")
        if self.kg_daemon_role != _CLIENT:
            why = "this application has no graph daemon"
            said.append(f"KG_DAEMON_ROLE is {self.kg_daemon_role}, to no effect: {why}")
        if self.gateway_workers != 1:
            why = "run as many processes as are wanted"
            said.append(f"GATEWAY_WORKERS is {self.gateway_workers}, to no effect: {why}")
        return tuple(said)


def turn_contradictions(values: Mapping[str, Any]) -> list[str]:
    """Return what is wrong between values of `TurnSettings`, by field name."""
    for name, variable in (
        ("task_queue_backend", "TASK_QUEUE_BACKEND"),
        ("queue_backend", "QUEUE_BACKEND"),
    ):
        chosen = values[name]
        if chosen not in (None, _AUTO):
            if chosen == "postgres" and values["state_db_uri"] is None:
                return [f"{variable} is postgres, expected STATE_DB_URI to be set with it"]
            return []
    return []
