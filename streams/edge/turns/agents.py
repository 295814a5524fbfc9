"""Agents by name: those of a manifest, and those of installed distributions.

A manifest's `[agents]` are loaded as handlers of triggers are, and whatever cannot be loaded is a
problem.  An entry point of the group `harn.agents` names a function; one that cannot be loaded is
logged, and a turn that names it fails with the reason.  A name that both have is the manifest's.

Source: seed queue-driven-agent-dispatch, "The model".
"""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streams.core.handler_uri import parse_handler
from streams.core.manifest import Manifest
from streams.core.manifest_agents import AgentDefinition, is_agent_name
from streams.edge.handlers import Loader, load_manifest, raised
from streams.errors import ManifestError
from streams.observe import logs

__all__ = ["DEFAULT_AGENT", "GROUP", "Agent", "AgentFunction", "Agents", "agent_function"]

GROUP = "harn.agents"
"""The group of entry points that name agents."""

DEFAULT_AGENT = "default"
"""Runs turns that name no agent."""

_NAMED_MAX = 20
_LOG = logs.logger(__name__)


@dataclass(frozen=True, slots=True)
class AgentFunction:
    """A function that takes a turn."""

    function: Callable[..., Any]
    is_async: bool


@dataclass(frozen=True, slots=True)
class Agent:
    """What runs turns that name it."""

    name: str
    work: AgentFunction
    validate: AgentFunction | None = None
    """Says after an iteration whether the goal is reached, unless the goal has a command."""
    timeout_ms: int | None = None
    """Of each call."""


class Agents:
    """The agents of a process.

    Args: broken: why an agent that is known cannot be used, by its name.
    """

    def __init__(
        self, agents: Mapping[str, Agent], broken: Mapping[str, str] | None = None
    ) -> None:
        self._agents = dict(agents)
        self._broken = dict(broken or {})

    @classmethod
    def load(cls, manifest: Path | None = None) -> Agents:
        """Load the agents of the manifest at `manifest`, and those that are installed.

        Raises: ManifestError that lists every agent of the manifest that cannot be used.
        """
        installed, broken = _installed()
        if manifest is None:
            return cls(installed, broken)
        own = _of_manifest(load_manifest(manifest))
        return cls(
            {**installed, **own},
            {name: reason for name, reason in broken.items() if name not in own},
        )

    def find(self, name: str, /) -> Agent | str:
        """Return the agent of a turn that names it, or say why there is none."""
        wanted = name or DEFAULT_AGENT
        found = self._agents.get(wanted)
        if found is not None:
            return found
        if "://" in wanted:
            what = "a2a:// agents are" if wanted.startswith("a2a://") else "agents by address are"
            return f"agent {wanted[:200]!r}: {what} not built in this release"
        if wanted in self._broken:
            return f"agent {wanted!r} cannot be used: {self._broken[wanted]}"
        named = "" if name else ", which runs turns that name no agent"
        return f"there is no agent {wanted[:200]!r}{named}; known are {self._known()}"

    def __len__(self) -> int:
        return len(self._agents)

    def _known(self) -> str:
        names = sorted(self._agents)
        more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        return ", ".join(names[:_NAMED_MAX]) + more if names else "none"


def agent_function(function: Any) -> AgentFunction:  # noqa: ANN401 - whatever the user's module has there
    """Check the form of a function that takes a turn.

    Raises: ValueError that says what it must be.
    """
    if not callable(function):
        raise ValueError(  # noqa: TRY004 - a value of the user's, not an argument of ours
            f"is {type(function).__name__}, expected a function"
        )
    body = function if inspect.isroutine(function) else function.__call__
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise ValueError("is a generator, expected a function that returns its result")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin, which does not say
        signature = None
    if signature is not None:
        try:
            signature.bind(None)
        except TypeError:
            raise ValueError(f"takes {signature}, expected one argument, (turn)") from None
    is_async = inspect.iscoroutinefunction(body) or inspect.iscoroutinefunction(function)
    return AgentFunction(function, is_async)


def _of_manifest(manifest: Manifest) -> dict[str, Agent]:
    loader = Loader(manifest, Path(manifest.file).parent.resolve())

    def load(definition: AgentDefinition, key: str, reference: str) -> AgentFunction | None:
        place = f"{manifest.file}: agents.{definition.name}: {key} {reference!r}"
        function = loader.function(parse_handler(reference), place)
        try:
            return None if function is None else agent_function(function)
        except ValueError as error:
            loader.problems.append(f"{place}: {error}")
            return None

    agents: dict[str, Agent] = {}
    for each in manifest.agents:
        work = load(each, "handler", each.handler)
        validate = None if each.validate is None else load(each, "validate", each.validate)
        if work is not None:
            agents[each.name] = Agent(each.name, work, validate, each.timeout_ms)
    if loader.problems:
        raise ManifestError(loader.problems)
    return agents


def _installed() -> tuple[dict[str, Agent], dict[str, str]]:
    """Return the agents of entry points, and what is wrong with those that cannot be used."""
    agents: dict[str, Agent] = {}
    broken: dict[str, str] = {}
    found: dict[str, list[importlib.metadata.EntryPoint]] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    for name, points in found.items():
        values = sorted({point.value for point in points})
        try:
            if len(values) > 1:
                raise ValueError(f"several distributions name it: {', '.join(values)}")
            if not is_agent_name(name):
                raise ValueError("is not the name of an agent")
            agents[name] = Agent(name, agent_function(_imported(points[0])))
        except ValueError as error:
            broken[name] = f"entry point {values[0]}: {error}"
            _LOG.warning("agent_not_loaded", extra={"agent": name, "reason": broken[name]})
    return agents, broken


def _imported(point: importlib.metadata.EntryPoint) -> Any:  # noqa: ANN401 - whatever stands there
    """Return what an entry point names.  Raises ValueError, whatever the import raised."""
    try:
        return point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ValueError(f"its import {raised(error)}") from error
