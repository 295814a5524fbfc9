"""What a manifest says of agents: the functions that run turns, by the names that turns use.

    [agents]
    default = "agents::work"            # runs turns that name no agent
    reviewer = { handler = "agents::review", timeout = "10m" }
    fixer = { handler = "agents::fix", validate = "agents::is_fixed" }

`validate` decides whether a goal is reached after an iteration, where the goal has no command for
it.  `timeout` is of each call.

Source: seed queue-driven-agent-dispatch, "The model".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from streams.core.bounds import DURATION_MS_MAX
from streams.core.handler_uri import parse_handler
from streams.core.manifest_durations import read_timing
from streams.core.manifest_place import Place
from streams.core.manifest_table import Field, read_table, read_text, table_of
from streams.core.suggestion import no_export

__all__ = ["AGENTS_MAX", "AgentDefinition", "agents_of", "is_agent_name", "read_agents"]

AGENTS_MAX = 1_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FIELDS = (
    Field(
        name="handler",
        read=read_text,
        required=True,
        default="",
        missing="is missing: an agent needs a function, such as handler = 'agents::work'",
    ),
    Field(name="validate", read=read_text),
    Field(name="timeout", read=read_timing(DURATION_MS_MAX, "366 days")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefinition:
    """An agent as it is declared: references to functions of exports, `module::function`."""

    name: str
    handler: str
    validate: str | None = None
    timeout_ms: int | None = None


def is_agent_name(name: str, /) -> bool:
    """Whether an agent can be registered by a name."""
    return _NAME.fullmatch(name) is not None


def read_agents(value: object, place: Place) -> dict[str, AgentDefinition]:
    """Take the table of agents; what its references name is looked up later, by `agents_of`."""
    agents: dict[str, AgentDefinition] = {}
    table = table_of(value, place) or {}
    if len(table) > AGENTS_MAX:
        place.refuse(f"has {len(table)} entries, expected at most {AGENTS_MAX}")
        return agents
    for name, given in table.items():
        entry = place.field(name)
        if not is_agent_name(name):
            entry.refuse(
                "is not the name of an agent, expected 1 to 100 letters, digits, dots, dashes or "
                "underscores, the first one a letter or digit"
            )
            continue
        fields = {"handler": given} if isinstance(given, str) else table_of(given, entry)
        if fields is not None:
            values = read_table(fields, _FIELDS, entry)
            agents[name] = AgentDefinition(
                name=name,
                handler=values["handler"],
                validate=values["validate"],
                timeout_ms=values["timeout"],
            )
    return agents


def agents_of(
    agents: Mapping[str, AgentDefinition], exports: Mapping[str, str], place: Place
) -> tuple[AgentDefinition, ...]:
    """Return the agents, with a problem noted for each reference that no export has."""
    for agent in agents.values():
        for name in ("handler", "validate"):
            reference: str | None = getattr(agent, name)
            if reference:  # an empty one is a problem already
                _check(reference, exports, place.field("agents").field(agent.name).field(name))
    return tuple(agents.values())


def _check(reference: str, exports: Mapping[str, str], place: Place) -> None:
    try:
        uri = parse_handler(reference)
    except ValueError as error:
        place.refuse(f"{error}: expected a function, as 'fn' or 'module::fn'")
        return
    if uri.kind == "a2a":
        place.refuse(f"is {reference!r}: a2a:// agents are not built in this release")
    elif uri.kind != "local":
        place.refuse(f"is {reference!r}, expected a function: turns have a queue of their own")
    elif uri.module not in exports:
        place.refuse(f"is {reference!r}, but {no_export(uri.module, exports)}")
