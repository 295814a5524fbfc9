"""Bindings as a manifest's reader makes them, for tests of the pipeline in memory."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence

from streams.core.manifest import Manifest, parse_manifest
from streams.core.wire import BindingDefinition
from streams.expressions import EXPRESSIONS
from streams.schedules import CALENDAR


def bindings_of(text: str) -> Sequence[BindingDefinition]:
    """The bindings of a manifest, given as TOML; its handlers are functions of `lib`."""
    manifest = parse_manifest(tomllib.loads(text), "harn.toml", EXPRESSIONS, CALENDAR)
    assert isinstance(manifest, Manifest), manifest
    return manifest.bindings


def published(text: str, version: int = 1) -> list[BindingDefinition]:
    """The same bindings as the registry publishes them, all in one version."""
    return [
        {**found, "version": version, "binding_key": f"{found['trigger_id']}@v{version}"}
        for found in bindings_of(text)
    ]
