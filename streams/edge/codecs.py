"""The codec of a process, as its settings want it."""

from __future__ import annotations

import importlib

from streams.codec import Codec
from streams.settings import Settings

__all__ = ["codec_of"]


def codec_of(settings: Settings) -> Codec:
    """Return the codec: Confluent's wire format when a schema registry is configured.

    Raises: BrokerError when the registry does not answer, ConfigError when it refuses our schemas.
    """
    if settings.schema_registry_url is None:
        return Codec()
    # Imported here: the registry's client is a fifth of a second of every command's start.
    registry = importlib.import_module("streams.edge.schema_registry")
    return Codec(registry=registry.register_schemas(settings))
