"""A manifest of one trigger, and what becomes of it with one line changed."""

import tomllib

from streams.core.manifest import Manifest, parse_manifest
from streams.core.wire import BindingDefinition

TRIGGER = """
[[triggers]]
id = "new-issue"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "on_issue"
"""


def parse(text: str) -> Manifest | tuple[str, ...]:
    return parse_manifest(tomllib.loads(text), "harn.toml")


def binding(text: str) -> BindingDefinition:
    manifest = parse(text)
    assert isinstance(manifest, Manifest), manifest
    [found] = manifest.bindings
    return found


def problems(text: str) -> tuple[str, ...]:
    found = parse(text)
    assert isinstance(found, tuple), "expected problems"
    return found


def changed(line: str, *, without: str = "") -> str:
    """The trigger of these tests with one line put in for another."""
    kept = [each for each in TRIGGER.splitlines() if not without or not each.startswith(without)]
    return "\n".join([*kept, line])
