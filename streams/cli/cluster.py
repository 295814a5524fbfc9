"""Which Kafka a command talks to: the one that is named, or the embedded broker."""

from __future__ import annotations

from streams.cli.broker import progress_shown
from streams.edge.broker import ensure_broker
from streams.provision import provision_topics
from streams.settings import Settings

__all__ = ["cluster_of", "cluster_with_topics"]


def cluster_of(settings: Settings) -> Settings:
    """The same settings with a cluster named; starts the embedded broker when none is."""
    if settings.bootstrap is not None:
        return settings
    with progress_shown() as progress:
        return settings.with_bootstrap(ensure_broker(settings, progress).bootstrap)


def cluster_with_topics(settings: Settings) -> Settings:
    """As `cluster_of`; a broker of our own has its topics then, whatever command comes first."""
    running = cluster_of(settings)
    if settings.embedded:
        provision_topics(running)
    return running
