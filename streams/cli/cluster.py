"""Which Kafka a command talks to: the one that is named, or the embedded broker."""

from __future__ import annotations

from streams.cli.broker import progress_shown
from streams.edge.broker import ensure_broker
from streams.settings import Settings


def cluster_of(settings: Settings) -> Settings:
    """The same settings with a cluster named; starts the embedded broker when none is."""
    if settings.bootstrap is not None:
        return settings
    with progress_shown() as progress:
        return settings.with_bootstrap(ensure_broker(settings, progress).bootstrap)
