"""The relay: tells the scheduler, in order, of every job on every queue's topic."""

from streams.edge.relay.relay import Relay, RelayObserver

__all__ = ["Relay", "RelayObserver"]
