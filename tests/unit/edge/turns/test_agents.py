"""Agents come from a manifest and from installed distributions; what is wrong is told at once."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from streams.edge.turns.agents import Agent, Agents
from streams.errors import ManifestError

AGENTS = """
    def plain(turn): ...
    async def waits(turn): ...
    def says(turn): return True
    def two(turn, context): ...
    def none(): ...
    def generates(turn): yield 1
    value = 3
    class Callable:
        async def __call__(self, turn): ...
    instance = Callable()
"""


def manifest(folder: Path, agents: str, exports: str = 'agents = "agents.py"') -> Path:
    (folder / "harn.toml").write_text(f"[agents]\n{agents}\n[exports]\n{exports}\n")
    (folder / "agents.py").write_text(dedent(AGENTS))
    return folder


def problems(folder: Path) -> tuple[str, ...]:
    with pytest.raises(ManifestError) as caught:
        Agents.load(folder)
    return caught.value.problems


def found(agents: Agents, name: str) -> Agent:
    agent = agents.find(name)
    assert isinstance(agent, Agent)
    return agent


def test_a_manifest_names_agents(tmp_path: Path) -> None:
    agents = Agents.load(
        manifest(
            tmp_path,
            'default = "agents::plain"\nslow = "agents::waits"\nobject = "agents::instance"\n'
            'fixer = { handler = "agents::plain", validate = "agents::says", timeout = "10m" }',
        )
    )

    assert len(agents) == 4
    assert found(agents, "").name == "default"
    assert not found(agents, "default").work.is_async
    assert found(agents, "slow").work.is_async
    assert found(agents, "object").work.is_async
    fixer = found(agents, "fixer")
    assert fixer.timeout_ms == 600_000
    assert fixer.validate is not None
    assert fixer.validate.function(None) is True


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("agents::nothing", "agents.py has no 'nothing'; did you mean 'none'?"),
        ("agents::two", "takes (turn, context), expected one argument, (turn)"),
        ("agents::none", "takes (), expected one argument, (turn)"),
        ("agents::generates", "is a generator, expected a function that returns its result"),
        ("agents::value", "is int, expected a function"),
    ],
)
@pytest.mark.parametrize("key", ["handler", "validate"])
def test_what_is_no_agent_is_refused_with_its_name(
    key: str, reference: str, told: str, tmp_path: Path
) -> None:
    other = 'handler = "agents::plain", ' if key == "validate" else ""
    folder = manifest(tmp_path, f'fixer = {{ {other}{key} = "{reference}" }}')

    assert problems(folder) == (
        f"{folder / 'harn.toml'}: agents.fixer: {key} {reference!r}: {told}",
    )


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    folder = manifest(tmp_path, 'a = "other::work"', 'other = "other.py"')

    (problem,) = problems(folder)
    assert "there is no file" in problem


def distribution(folder: Path, name: str, points: dict[str, str]) -> None:
    """A distribution as an installer leaves it behind."""
    home = folder / f"{name}-1.dist-info"
    home.mkdir(parents=True)
    (home / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    lines = "\n".join(f"{point} = {value}" for point, value in points.items())
    (home / "entry_points.txt").write_text(f"[harn.agents]\n{lines}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "installed_agents.py").write_text(dedent(AGENTS))
    (folder / "broken_agents.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(str(folder))
    for module in ("installed_agents", "broken_agents"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return folder


def test_installed_distributions_name_agents(site: Path) -> None:
    distribution(site, "one", {"reviewer": "installed_agents:plain"})

    assert found(Agents.load(), "reviewer").work.function.__name__ == "plain"


def test_a_manifest_has_the_last_word(site: Path, tmp_path: Path) -> None:
    distribution(site, "one", {"reviewer": "installed_agents:plain", "x": "broken_agents:work"})
    folder = manifest(tmp_path, 'reviewer = "agents::waits"\nx = "agents::plain"')

    agents = Agents.load(folder)

    assert found(agents, "reviewer").work.is_async
    assert found(agents, "x").work.function.__name__ == "plain"


def test_one_that_cannot_be_loaded_is_told_by_the_turn_that_names_it(site: Path) -> None:
    distribution(
        site,
        "one",
        {
            "stops": "broken_agents:work",
            "lacks": "installed_agents:nothing",
            "takes": "installed_agents:two",
            "twice": "installed_agents:plain",
            "good": "installed_agents:plain",
        },
    )
    distribution(site, "two", {"twice": "installed_agents:waits"})

    agents = Agents.load()

    assert found(agents, "good").name == "good"
    for name, told in (
        ("stops", "entry point broken_agents:work: its import raised SystemExit: 3"),
        ("lacks", "its import raised AttributeError"),
        ("takes", "takes (turn, context), expected one argument"),
        ("twice", "several distributions name it: installed_agents:plain, installed_agents:waits"),
    ):
        reason = agents.find(name)
        assert isinstance(reason, str)
        assert reason.startswith(f"agent {name!r} cannot be used: ")
        assert told in reason
