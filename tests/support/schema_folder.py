"""The application's schema files in a folder of the test's own, with one of them changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import schemas
from schemas import SchemaSet

Change = Callable[[dict[str, Any]], object]


def copied_schemas(folder: Path, stem: str, change: Change) -> SchemaSet:
    """Copy every current `.avsc` to `folder`, apply `change` to the definition of `stem`, load."""
    for file in Path(schemas.__file__).parent.glob("*.avsc"):
        shutil.copy(file, folder)
    path = folder / f"{stem}.avsc"
    definition = json.loads(path.read_text(encoding="utf-8"))
    change(definition)
    path.write_text(json.dumps(definition), encoding="utf-8")
    return SchemaSet.load(folder)


def unchanged(_definition: dict[str, Any]) -> None:
    """Leave the schema as it is."""


def field(definition: dict[str, Any], name: str) -> dict[str, Any]:
    """Find a field's entry in a definition."""
    return next(entry for entry in definition["fields"] if entry["name"] == name)
