"""Bindings as a manifest's reader makes them, for tests of the pipeline in memory."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence

from streams.core.manifest import Manifest, parse_manifest
from streams.core.wire import BindingDefinition
from streams.expressions import EXPRESSIONS


def bindings_of(text: str) -> Sequence[BindingDefinition]:
    """The bindings of a manifest, given as TOML; its handlers are functions of `lib`."""
    manifest = parse_manifest(tomllib.loads(text), "harn.toml", EXPRESSIONS)
    assert isinstance(manifest, Manifest), manifest
    return manifest.bindings
