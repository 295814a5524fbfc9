"""Which triggers can be named, and what is said of those that cannot."""

from __future__ import annotations

import pytest

from streams.cli.known_trigger import in_force, require_in_force, require_version
from streams.core.wire import RowRegisteredBinding
from streams.errors import ConfigError
from streams.testing import binding


def row(trigger_id: str, state: str, version: int = 1) -> RowRegisteredBinding:
    return {
        "binding": binding(trigger_id, version=version),
        "state": state,  # pyright: ignore[reportReturnType]
        "source": "manifest",
        "revision": 1,
        "ended": None,
    }


def test_one_whose_versions_have_all_ended_says_how_they_stand() -> None:
    rows = [row("old", "terminated"), row("old", "draining", 2), row("new", "active")]
    assert in_force(rows) == {"new"}
    require_in_force(rows, "new", "--trigger")
    with pytest.raises(ConfigError) as found:
        require_in_force(rows, "old", "--trigger")
    assert str(found.value) == (
        "--trigger: trigger 'old' has no version in force "
        "(old@v1 is terminated, old@v2 is draining)"
    )
    assert found.value.remedy is not None
    assert found.value.remedy.startswith("name one of those in force (new)")


def test_where_nothing_is_in_force_the_manifest_is_asked_for() -> None:
    with pytest.raises(ConfigError) as found:
        require_in_force([], "any", "--trigger")
    assert str(found.value) == "--trigger: trigger 'any' is unknown; there is none"
    assert found.value.remedy == "apply the manifest that brings it first"


def test_versions_that_have_ended_can_still_be_named() -> None:
    rows = [row("one", "terminated"), row("one", "active", 2)]
    require_version(rows, "one@v1", "--binding")
    with pytest.raises(ConfigError, match="one@v3 is unknown; there is one@v1, one@v2"):
        require_version(rows, "one@v3", "--binding")
