"""Bindings that take webhooks, and deliveries signed as their senders sign them."""

from __future__ import annotations

import json
from typing import Any

from streams.core.manifest import canonical_json
from streams.core.wire import BindingDefinition


def with_path(
    binding: BindingDefinition, path: str, secret: str = "github/hook", **ingress: Any
) -> BindingDefinition:
    """A binding that takes deliveries at a path, as its manifest would have it."""
    table = json.loads(binding["definition"])
    table["match"]["path"] = path
    table["secrets"] = {"signing_secret": secret}
    if ingress:
        table["ingress"] = ingress
    text = canonical_json(table)
    return {**binding, "definition": text, "fingerprint": f"{binding['fingerprint']}-{path}"}
