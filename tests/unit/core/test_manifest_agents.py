"""The table of agents: what it takes, and how it says what is wrong."""

from __future__ import annotations

import tomllib

import pytest

from streams.core.manifest import Manifest, parse_manifest
from streams.core.manifest_agents import AGENTS_MAX, AgentDefinition


def parse(text: str) -> Manifest | tuple[str, ...]:
    return parse_manifest(tomllib.loads(text), "m")


def agents(table: str) -> tuple[AgentDefinition, ...] | tuple[str, ...]:
    found = parse(f'[exports]\nagents = "agents.py"\n[agents]\n{table}')
    return found.agents if isinstance(found, Manifest) else found


def test_an_agent_is_a_reference_or_a_table() -> None:
    assert agents(
        'default = "work"\n'
        'fixer = { handler = "agents::fix", validate = "agents::ok", timeout = "90s" }'
    ) == (
        AgentDefinition(name="default", handler="work"),
        AgentDefinition(
            name="fixer", handler="agents::fix", validate="agents::ok", timeout_ms=90_000
        ),
    )


def test_without_the_table_there_are_none() -> None:
    found = parse("triggers = []")
    assert isinstance(found, Manifest)
    assert found.agents == ()


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("a = 3", "a is 3, expected a table"),
        ('"a b" = "work"', "a b is not the name of an agent, expected 1 to 100 letters, digits,"),
        (f'{"x" * 101} = "work"', "is not the name of an agent"),
        ('-a = "work"', "-a is not the name of an agent"),
        ("a = {}", "a.handler is missing: an agent needs a function"),
        ('a = { handler = "work", retries = 3 }', "a.retries is not a key here"),
        ('a = { handler = "work", timeout = "soon" }', "a.timeout is 'soon', expected a duration"),
        ('a = ""', "a.handler is empty"),
        ('a = "other::work"', "a.handler is 'other::work', but [exports] has no 'other'"),
        ('a = "agents::1"', "a.handler is 'agents::1': '1' is not the name of a function"),
        (
            'a = "a2a://peer"',
            "a.handler is 'a2a://peer': a2a:// agents are not built in this release",
        ),
        ('a = "worker://q"', "a.handler is 'worker://q', expected a function"),
        ('a = { handler = "work", validate = "pool://p" }', "a.validate is 'pool://p', expected"),
        (
            'a = { handler = "work", validate = "other::ok" }',
            "a.validate is 'other::ok', but [exports] has no 'other'",
        ),
    ],
)
def test_what_cannot_be_used_is_told_with_its_place(table: str, problem: str) -> None:
    found = agents(table)
    assert len(found) == 1
    assert isinstance(found[0], str)
    assert found[0].startswith("m: agents.")
    assert problem in found[0]


def test_so_many_agents_and_no_more() -> None:
    table = [f'a{index} = "work"' for index in range(AGENTS_MAX + 1)]

    assert len(agents("\n".join(table[:-1]))) == AGENTS_MAX
    assert agents("\n".join(table)) == (
        f"m: agents has {AGENTS_MAX + 1} entries, expected at most {AGENTS_MAX}",
    )
