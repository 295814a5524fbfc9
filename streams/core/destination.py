"""What attempts go to: bindings with one target share its circuit."""

from __future__ import annotations

from streams.core.wire import BindingDefinition


def destination_of(binding: BindingDefinition, /) -> str:
    """Return a binding's destination, `<handler kind>:<target uri>`."""
    return f"{binding['handler_kind']}:{binding['target_uri']}"


def circuit_key(destination: str, /) -> str:
    """Key of the row that says how a destination fails."""
    return f"o:{destination}"


def parked_key(destination: str, /) -> tuple[str, str, str]:
    """Key under which parked dispatches wait, first parked first, beside those of the gates."""
    return "circuit", "", destination
