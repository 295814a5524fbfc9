"""The invoker: intents in, handlers run, outcomes out."""

from streams.edge.invoker.invoker import HandlerSource, Invoker
from streams.edge.invoker.observer import InvokerObserver

__all__ = ["HandlerSource", "Invoker", "InvokerObserver"]
